"""What tests of the command line share."""

import os

import pytest

from cairn.surfaces.cli import main


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys, request):
    """Runs a command in this process on a root of its own; returns (code, standard output, standard error).

    The embedder is the one that the test's module names (`EMBEDDING`), none where it names none.
    """
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("CAIRN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CAIRN_EMBEDDING__PROVIDER", getattr(request.module, "EMBEDDING", "none"))
    root = tmp_path / "root"

    def run(*words):
        try:
            code = main(["--root", str(root), *words])
        except SystemExit as stop:
            code = stop.code
        out = capsys.readouterr()
        return code, out.out, out.err

    run.root = root
    return run
