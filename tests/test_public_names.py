"""The public surface is exactly this list, and every name is there."""

import cairn

PUBLIC = {
    "AsyncMemory",
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


def test_every_operation_has_its_awaited_twin():
    """`cairn.open` and `cairn.open_blocking` give the same calls, in `memory` and in `memory.memories`."""
    import inspect

    from cairn.aio import AsyncMemories, AsyncMemory
    from cairn.memory import Memories, Memory

    for room, twin in ((Memory, AsyncMemory), (Memories, AsyncMemories)):
        calls = {
            name for name, value in inspect.getmembers(room, inspect.isfunction) if not name.startswith("_")
        }
        awaited = {
            name
            for name, value in inspect.getmembers(twin, inspect.iscoroutinefunction)
            if not name.startswith("_")
        }
        assert len(calls) > 20
        assert awaited == calls
        for name in calls:
            assert inspect.signature(getattr(room, name)) == inspect.signature(getattr(twin, name))


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
