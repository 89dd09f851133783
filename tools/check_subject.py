"""Check a commit message: `topic: what is now true`, then a blank line, then the reason.

    search: answer "nothing fits" instead of padding to k

The topic is one lower-case word or path part (Conventional Commits types are topics too, with an optional
scope in parentheses). Exit 0 when the message is fine, 1 with the trouble named otherwise.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

SUBJECT = re.compile(r"[a-z][a-z0-9_./-]*(\([a-z0-9_./-]+\))?(, [a-z][a-z0-9_./-]*)*!?: \S.*")
MERGE = re.compile(r"(Merge|Revert|fixup!|squash!) ?")


def trouble_with(message: str) -> str | None:
    """What is wrong with `message`, or None."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if MERGE.match(subject):
        return None
    if not SUBJECT.fullmatch(subject):
        return f'"{subject}" is not of the form "topic: what is now true"'
    if len(subject) > 72:
        return f"the subject has {len(subject)} characters; 72 fit"
    if subject.endswith("."):
        return "the subject ends with a full stop; leave it out"
    if len(lines) > 1 and lines[1].strip():
        return "the second line must be blank; the reason starts on the third"
    return None


def main(argv: list[str]) -> int:
    trouble = trouble_with(Path(argv[1]).read_text(encoding="utf-8"))
    if trouble:
        print(f"commit message: {trouble}", file=sys.stderr)
    return 1 if trouble else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
