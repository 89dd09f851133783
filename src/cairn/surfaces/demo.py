"""`cairn demo`: the main job, end to end, on a real root in a temporary folder, in under half a minute."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from cairn.surfaces.output import Output


def _messages(day: datetime, lines: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    start = int(day.timestamp() * 1000)
    return [
        {
            "sender_id": name.lower(),
            "sender_name": name,
            "role": "assistant" if name == "helper" else "user",
            "timestamp": start + 40_000 * number,
            "content": text,
        }
        for number, (name, text) in enumerate(lines)
    ]


def run(output: Output, *, keep: bool = False) -> int:
    """Show the product at work. Returns 0 if every step did what it promises, 1 otherwise."""
    from cairn.config import load
    from cairn.memory import Memory

    told = tomllib.loads(Path(__file__).with_name("demo.toml").read_text(encoding="utf-8"))
    root = Path(tempfile.mkdtemp(prefix="cairn-demo-"))
    steps: dict[str, Any] = {"root": str(root), "answers": {}}
    started = time.perf_counter()
    try:
        with Memory(load(root)) as memory:
            output.line(f"A memory root in a temporary folder: {root}", style="bold")
            for talk in told["talk"]:
                session, lines = talk["session"], talk["said"]
                memory.add(session, _messages(talk["begins"], lines))
                memory.flush(session)
                output.line(
                    f'  session "{session}": {len(lines)} messages added, flushed, written as Markdown'
                )
            # The strategies run by themselves in the background; asking for them only waits until they are done.
            for strategy in ("extract_atomic_facts", "extract_foresight", "extract_user_profile"):
                memory.trigger(strategy, timeout=20)
            output.line()
            _show_tree(root, output)
            note = min(root.glob("*/*/users/mara/episodes/*.md"))
            output.line(f"{note.relative_to(root)} reads:", style="bold")
            output.block(note.read_text(encoding="utf-8"), limit=1500)
            steps["profile"] = _show_profile(root, output)

            output.line()
            output.line("Questions, answered from the index with their sources:", style="bold")
            steps["model"] = memory.parts.embedder() is not None
            if not steps["model"]:
                output.line(
                    "  (The local model is not installed, so only words count: `cairn model install`.)"
                )
            memory.sync()  # vectors follow a moment after the notes, or a while after on a busy machine
            for question in told["questions"]:
                steps["answers"][question] = _ask(memory, question, output)

            output.line()
            output.line("A person corrects the note: Lisbon becomes Porto, in the file.", style="bold")
            edited = note.read_text(encoding="utf-8").replace("Lisbon", "Porto")
            note.write_text(edited, encoding="utf-8")
            steps["edit_found"] = _found(memory, "Porto")
            output.line(
                f'  search "Porto": {"found, in " + str(note.relative_to(root)) if steps["edit_found"] else "NOT FOUND"}'
            )

            output.line()
            output.line("The whole index is deleted while it runs.", style="bold")
            shutil.rmtree(root / ".index", ignore_errors=True)
            steps["survives_wipe"] = _found(memory, "octopus")
            output.line(
                f'  search "octopus": {"found all the same" if steps["survives_wipe"] else "NOT FOUND"}'
            )
        steps["seconds"] = round(time.perf_counter() - started, 1)
    finally:
        if not keep:
            shutil.rmtree(root, ignore_errors=True)
    # By words alone, a question in other words than the answer finds nothing, and says so.
    answered = all if steps["model"] else any
    good = (
        answered(steps["answers"].values())
        and steps["profile"]
        and steps["edit_found"]
        and steps["survives_wipe"]
    )
    steps["ok"] = good
    output.value(steps)
    output.line()
    output.line(
        f"Done in {steps['seconds']} s."
        if good
        else "Something above did not hold; please run `cairn doctor`."
    )
    command = _command()
    output.line(f"Next:  {command} init            your own memory in ~/.cairn")
    output.line(f"       {command} server start    the HTTP API on 127.0.0.1:8000, with /docs")
    output.line("       docs/quickstart.md    ten minutes, by copy and paste")
    return 0 if good else 1


def _command() -> str:
    """How this shell reaches the command: by name where it is on the path, else as it was called."""
    called = Path(sys.argv[0])
    return "cairn" if shutil.which("cairn") or called.name != "cairn" else str(called)


def _show_tree(root: Path, output: Output) -> None:
    output.line("What appeared on disk (.index/ can be deleted at any time):", style="bold")
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if path.is_file() and parts[0] not in {".index", ".tmp"}:
            output.line(f"  {'/'.join(parts)}  ({path.stat().st_size} bytes)")
    output.line()


def _show_profile(root: Path, output: Output) -> bool:
    """What the strategies made of the talk: the page about Mara, without its frontmatter."""
    for page in root.glob("*/*/users/mara/user.md"):
        output.line()
        output.line(f"{page.relative_to(root)}, made from what she said:", style="bold")
        output.block(page.read_text(encoding="utf-8").split("\n---\n", 1)[-1], limit=1200)
        return True
    return False


def _ask(memory: Any, question: str, output: Output) -> bool:
    result = memory.search(question, user_id="mara", evidence=2, consistency="strong")
    output.line(f"  {question}")
    for item in result.evidence[:1]:
        output.line(f'      "{item.text}"')
        source = f"mara_{item.entry_ids[0]}" if item.entry_ids else "-"
        when = f"{item.timestamp.day} {item.timestamp:%B %Y}"
        output.line(f"      said by {item.sender_name} on {when}; entry {source}")
    if not result.evidence:
        output.line("      Nothing fits.")
    return bool(result.evidence)


def _found(memory: Any, word: str) -> bool:
    result = memory.search(word, user_id="mara", method="keyword", consistency="strong")
    return any(word in (hit.fields.get("Content") or hit.text) for hit in result.episodes)
