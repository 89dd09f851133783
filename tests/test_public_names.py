"""The public surface is exactly this list, and every name is there."""

import cairn

PUBLIC = {
    "BlockingMemory",
    "CairnError",
    "Conflict",
    "ContentItem",
    "Evidence",
    "Forbidden",
    "Freshness",
    "Hit",
    "Invalid",
    "Memory",
    "Message",
    "Misconfigured",
    "NotFound",
    "Settings",
    "ToolCall",
    "Unavailable",
    "Verdict",
    "__version__",
    "open",
    "open_blocking",
    "open_project",
}


def test_public_names_are_exactly_the_list():
    """Adding or losing a public name is a decision, not an accident."""
    assert set(cairn.__all__) == PUBLIC
    for name in PUBLIC:
        assert getattr(cairn, name) is not None


def test_blocking_mirrors_async():
    """Every public coroutine of Memory has a blocking twin."""
    import inspect

    coroutines = {
        name
        for name, value in inspect.getmembers(cairn.Memory)
        if inspect.iscoroutinefunction(value) and not name.startswith("_")
    }
    missing = {name for name in coroutines if not hasattr(cairn.BlockingMemory, name)}
    assert missing == set()


def test_blocking_mirrors_governed_memories():
    """`memory.memories` has the same calls in both worlds."""
    import inspect

    from cairn.blocking_memories import BlockingMemories
    from cairn.governed_facade import Memories

    named = [name for name, _ in inspect.getmembers(Memories, inspect.iscoroutinefunction) if name[0] != "_"]
    assert {name for name in named if not hasattr(BlockingMemories, name)} == set()


def test_a_server_starts_without_what_its_first_answer_does_not_need():
    """Body checks, the model and the vector store load when first used: /health answers before that."""
    import subprocess
    import sys

    code = (
        "import sys, cairn.surfaces.http;"
        "sys.exit(' '.join({'pydantic', 'numpy', 'lancedb', 'pyarrow', 'onnxruntime'} & set(sys.modules)) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
