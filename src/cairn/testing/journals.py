"""The journal suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cairn.errors import Conflict, Invalid
from cairn.seams import Journals, Locator
from cairn.testing.suite import Mixin, in_threads, raises, require


def check_journal_round_trip(journals: Journals) -> None:
    """Lines come back in order and exactly; offsets continue where the last answer ended."""
    at = Locator("journal/x.jsonl")
    first = journals.append(at, ['{"n": 1}', '{"n": "ü"}'])
    require(first == journals.size(at) > 0, "append must return the offset after its lines")
    seen = journals.read(at)
    require(
        seen.lines == ('{"n": 1}', '{"n": "ü"}') and seen.end == first, f"lines must come back, got {seen}"
    )
    journals.append(at, ['{"n": 3}'])
    later = journals.read(at, seen.end)
    require(
        later.lines == ('{"n": 3}',) and later.end == journals.size(at), "an offset continues the reading"
    )
    require(journals.read(at, later.end).lines == (), "at the end there is nothing more")
    require(journals.append(at, []) == later.end, "appending nothing changes nothing")


def check_journal_absent(journals: Journals) -> None:
    """Where there is no journal there are no lines, and no error."""
    at = Locator("journal/none.jsonl")
    require(journals.read(at).lines == () and journals.read(at).end == 0, "an absent journal reads as empty")
    require(journals.size(at) == 0, "an absent journal has size 0")


def check_journal_all_or_none(journals: Journals) -> None:
    """A unit with one bad line leaves no line behind."""
    at = Locator("journal/x.jsonl")
    journals.append(at, ["kept"])
    for bad in ("line\nbreak", "half \ud800"):
        raises(Invalid, lambda bad=bad: journals.append(at, ["good", bad]), f"{bad!r} must raise Invalid")  # type: ignore[misc]
    require(journals.read(at).lines == ("kept",), "a refused unit must leave nothing behind")


def check_journal_expect(journals: Journals) -> None:
    """With `expect` a unit is added at the end the caller saw, or refused with nothing written."""
    at = Locator("journal/x.jsonl")
    end = journals.append(at, ["one"], expect=0)
    journals.append(at, ["two"], expect=end)
    raises(
        Conflict, lambda: journals.append(at, ["late"], expect=end), "an end that moved must raise Conflict"
    )
    require(journals.read(at).lines == ("one", "two"), "a refused unit must leave nothing behind")


def check_journal_replace(journals: Journals) -> None:
    """`replace` makes the lines the whole journal; an offset from before is met as a Conflict."""
    at = Locator("journal/x.jsonl")
    end = journals.append(at, ["one", "two", "three"])
    journals.replace(at, ["only"])
    require(journals.read(at).lines == ("only",), "replace must drop the old lines")
    raises(Conflict, lambda: journals.read(at, end), "an offset beyond the journal must raise Conflict")
    journals.append(at, ["more"])
    require(journals.read(at).lines == ("only", "more"), "appends continue after a replace")
    end = journals.size(at)
    journals.replace(at, ["only", "less"])
    raises(Conflict, lambda: journals.read(at, end), "a journal of equal length is another: Conflict")
    end = journals.size(at)
    journals.edit(at, lambda _: ["only", "more"])
    raises(Conflict, lambda: journals.read(at, end), "an edit to equal length must raise Conflict too")
    require(
        [line.strip() for line in journals.read(at).lines] == ["only", "more"], "blanks are all that is added"
    )


def check_journal_many_threads(journals: Journals) -> None:
    """Units of many threads are each whole, none is lost, none is doubled."""
    at = Locator("journal/x.jsonl")
    ends: list[int] = []

    def work(who: int) -> None:
        ends.extend(journals.append(at, [f"{who}.{n}a", f"{who}.{n}b"]) for n in range(20))

    in_threads(work, range(6))
    lines = journals.read(at).lines
    require(
        len(lines) == 240 and len(set(lines)) == 240, f"expected 240 different lines, got {len(set(lines))}"
    )
    require(
        all(one[:-1] == two[:-1] for one, two in zip(lines[::2], lines[1::2], strict=True)),
        "units stay together",
    )
    require(len(set(ends)) == 120 and max(ends) == journals.size(at), "every append has its own end")


JOURNAL_CHECKS: Mapping[str, Callable[[Journals], None]] = {
    "round_trip": check_journal_round_trip,
    "absent": check_journal_absent,
    "all_or_none": check_journal_all_or_none,
    "expect": check_journal_expect,
    "replace": check_journal_replace,
    "many_threads": check_journal_many_threads,
}


class JournalConformance(Mixin, checks=JOURNAL_CHECKS, make="make_journals"):
    """Derive from this, give `make_journals`, and every journal check is a test."""

    def make_journals(self) -> Journals:
        raise NotImplementedError
