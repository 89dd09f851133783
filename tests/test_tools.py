"""The gates of `make lint` bite: each refuses what it is there to refuse, and passes what is fine."""

import subprocess
import sys
from pathlib import Path

import pytest
from tools.check_calls import allowed, uncalled, uncalled_at_top
from tools.check_clock import main as check_clock
from tools.check_clock import naive_in
from tools.check_seam import VERBS, leaks_in
from tools.check_seam import main as check_seam
from tools.check_waits import main as check_waits

ROOT = Path(__file__).parent.parent


def backend(annotation, *, verb="read", base="StorageBackend", before=""):
    return f"{before}\nclass My({base}):\n    def {verb}(self, at) -> {annotation}:\n        ...\n"


@pytest.mark.parametrize(
    "annotation",
    [
        "Path",
        "pathlib.Path",
        "PurePath | None",
        "list[PosixPath]",
        "dict[str, tuple[int, list[WindowsPath]]]",
        "'Path'",
        'list["Path"]',
        "Optional['pathlib.PurePosixPath']",
        "os.PathLike[str]",
        "PureWindowsPath",
    ],
)
def test_a_path_in_a_verbs_answer_is_found(annotation):
    """S4, S69: every path type, however nested or quoted."""
    (leak,) = leaks_in(backend(annotation), "x.py")
    assert "My.read" in leak
    assert "x.py:3" in leak


@pytest.mark.parametrize(
    ("annotation", "before"),
    [
        ("P", "from pathlib import Path as P"),
        ("list[Where]", "Where = Path | None"),
        ("Where", "Where: TypeAlias = 'Path'"),
    ],
)
def test_a_renamed_path_is_found(annotation, before):
    """S69: an alias hides nothing."""
    assert leaks_in(backend(annotation, before=before), "x.py")


@pytest.mark.parametrize(
    ("base", "before"),
    [
        ("SB", "from cairn.seams import StorageBackend as SB"),
        ("Base", "import cairn.seams as seams; Base = seams.StorageBackend"),
        ("Between", "class Between(seams.StorageBackend): ..."),
        ("Generic[SB]", "from cairn.engines.files import DeviceLocalBackend as SB"),
    ],
)
def test_a_renamed_backend_is_found(base, before):
    """S69: a class is a backend by what it derives from, whatever that is called here."""
    assert leaks_in(backend("Path", base=base, before=before), "x.py")


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_each_of_the_seven_verbs_is_watched(verb):
    """S69: all seven, also async ones and ones without an annotation."""
    assert leaks_in(backend("Path", verb=verb), "x.py")
    assert leaks_in(backend("Path", verb=verb).replace("def ", "async def "), "x.py")
    assert "no return annotation" in leaks_in(backend("X", verb=verb).replace(" -> X", ""), "x.py")[0]


@pytest.mark.parametrize(
    "source",
    [
        backend("Locator"),
        backend("list[Locator]", verb="list"),
        backend("Path", verb="open_file"),
        backend("Path", base="Thing"),
        "def read(at) -> Path: ...",
        backend("'not an annotation at all'"),
    ],
)
def test_what_is_fine_passes(source):
    """S69: locators, other methods and other classes are nobody's business."""
    assert leaks_in(source, "x.py") == []


@pytest.mark.parametrize(
    "call",
    [
        "datetime.now()",
        "datetime.now(None)",
        "datetime.now(tz=None)",
        "datetime.datetime.now()",
        "dt.now()",
        "datetime.fromtimestamp(x)",
        "datetime.utcnow()",
        "datetime.utcfromtimestamp(x)",
        "date.today()",
        "time.localtime()",
        "when.astimezone()",
    ],
)
def test_a_time_without_a_zone_is_found(call):
    """Two-zone rule: whatever makes a naive or local time is refused."""
    assert naive_in(f"from datetime import datetime as dt\nx = {call}\n", "x.py")


@pytest.mark.parametrize(
    "call",
    [
        "datetime.now(UTC)",
        "datetime.now(tz=UTC)",
        "datetime.fromtimestamp(x, UTC)",
        "clock.now()",
        "when.astimezone(zone)",
    ],
)
def test_a_time_with_a_zone_passes(call):
    """Two-zone rule: aware times are fine, and the clock is."""
    assert naive_in(f"x = {call}\n", "x.py") == []


@pytest.mark.parametrize(
    ("check", "bad"),
    [
        (check_seam, backend("Path")),
        (check_clock, "x = datetime.now()\n"),
        (check_waits, "import time\nassert time.monotonic() < 5\n"),
        (check_waits, "from time import perf_counter as now\n"),
    ],
)
def test_exit_codes(tmp_path, capsys, check, bad):
    """S69: 0 clean, 1 found, 2 when there is nothing to check or a file is not Python."""
    assert check(["x", str(tmp_path)]) == 2
    assert check(["x", str(tmp_path / "none")]) == 2
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "test_a.py").write_text("x = 1\n")
    assert check(["x", str(tmp_path)]) == 0
    (tmp_path / "sub" / "test_b.py").write_text(bad)
    assert check(["x", str(tmp_path)]) == 1
    assert "test_b.py:" in capsys.readouterr().out
    (tmp_path / "sub" / "test_c.py").write_text("def (")
    assert check(["x", str(tmp_path)]) == 2


@pytest.mark.parametrize("tool", ["check_seam", "check_clock", "check_waits"])
def test_the_package_passes_and_lint_runs_the_gate(tool):
    """S69: the gate is clean on the package and is part of `make lint`."""
    done = subprocess.run([sys.executable, "-m", f"tools.{tool}"], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert f"-m tools.{tool}\n" in (ROOT / "Makefile").read_text()


def test_what_only_a_test_calls_is_found(tmp_path):
    """Dead code: functions, methods and classes without a caller; fields and names spelled in a string are not judged."""
    package = tmp_path / "src" / "cairn"
    package.mkdir(parents=True)
    (package / "a.py").write_text(
        "import os\n\nclass Used:\n    field: int = 0\n\n    def lost(self): ...\n\n    def __len__(self): ...\n\n"
        "class Spelled: ...\n\ndef dead(): ...\n\nROUTE = 'Spelled'\nprint(Used(), ROUTE)\n"
    )
    found = uncalled(tmp_path, ("src/cairn",))
    assert found == ["src/cairn/a.py:dead", "src/cairn/a.py:lost", "src/cairn/a.py:os"]


def test_a_function_is_not_called_through_its_namesake(tmp_path: Path):
    """Dead code: calls are followed through imports, also through a package that hands a name on."""
    folder = tmp_path / "src/cairn/room"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(
        "from cairn.room.a import handed_on\n__all__ = ['handed_on', 'lost']\n"
    )
    (folder / "a.py").write_text(
        "def rebuild(): rebuild()\n\ndef handed_on(): ...\n\ndef lost(): ...\n\ndef here(): ...\n\nhere()\n"
    )
    (folder / "b.py").write_text(
        "import cairn.room\nfrom . import c\n\ndef rebuild(): ...\n\n"
        "cairn.room.handed_on()\nc.far.cache_clear()\nrebuild()\n"
    )
    (folder / "c.py").write_text("def far(): ...\n")
    found = uncalled_at_top(tmp_path, ("src/cairn",))
    assert found == ["src/cairn/room/a.py:lost", "src/cairn/room/a.py:rebuild"]


def test_a_name_that_may_wait_needs_a_reason():
    """Dead code: the list gives a reason for each name, and each of its lines is still true."""
    with pytest.raises(ValueError, match="reason"):
        allowed("src/cairn/a.py:dead\n")
    listed = allowed((ROOT / "tools" / "uncalled.txt").read_text())
    assert {*uncalled(ROOT), *uncalled_at_top(ROOT)} == set(listed)
    assert "tools/check_calls.py" in (ROOT / "Makefile").read_text()
