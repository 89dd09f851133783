"""Where each kind lives, and that paths and meanings agree in both directions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cairn.errors import Invalid
from cairn.notes.format import parse_note, render_body, render_entry
from cairn.notes.frontmatter import dump
from cairn.notes.kinds import (
    KINDS,
    Kind,
    Place,
    check,
    checked_name,
    kind_named,
    kind_of_entry,
    place_of,
    safe_name,
    scope_locator,
    space_locator,
    space_of,
)
from cairn.seams import Locator
from cairn.types import Entry, Scope, Space, Track

REPOSITORY = Path(__file__).parent.parent
SAMPLE = Path(os.environ.get("CAIRN_SAMPLE_ROOT") or REPOSITORY.parent / "shared" / "spec" / "sample-root")
GOLDEN = Path(__file__).parent / "golden" / "root"


def roots() -> list[object]:
    missing = pytest.mark.skipif(not SAMPLE.is_dir(), reason="CAIRN_SAMPLE_ROOT names no memory root")
    return [pytest.param(GOLDEN, id="golden"), pytest.param(SAMPLE, marks=missing, id="sample")]


def scope(track: Track = "user", owner: str = "alice", space: Space = Space()) -> Scope:  # noqa: B008 - frozen
    return Scope(space, track, owner)


@pytest.mark.parametrize(
    ("kind", "track", "which", "key"),
    [
        ("episode", "user", "2026-06-01", "users/alice/episodes/episode-2026-06-01.md"),
        ("episode", "agent", "2026-06-01", "agents/alice/episodes/episode-2026-06-01.md"),
        ("atomic_fact", "user", "2026-06-01", "users/alice/.atomic_facts/atomic_fact-2026-06-01.md"),
        ("foresight", "user", "2026-06-01", "users/alice/.foresights/foresight-2026-06-01.md"),
        ("agent_case", "agent", "2026-06-01", "agents/alice/.cases/agent_case-2026-06-01.md"),
        ("agent_skill", "agent", "fix_it", "agents/alice/skills/skill_fix_it/SKILL.md"),
        ("profile", "user", "", "users/alice/user.md"),
        ("memory", "user", "2026-06-01", "users/alice/memories/memory-2026-06-01.md"),
        ("memory", "agent", "2026-06-01", "agents/alice/memories/memory-2026-06-01.md"),
        ("memory", "project", "2026-06-01", "shared/memories/memory-2026-06-01.md"),
        ("memory", "mission", "2026-06-01", "missions/alice/memories/memory-2026-06-01.md"),
        ("core", "project", "", "shared/core.md"),
        ("core", "agent", "", "agents/alice/core.md"),
        ("agent", "agent", "", "agents/alice/agent.md"),
        ("soul", "agent", "", "agents/alice/soul.md"),
        ("tools", "agent", "", "agents/alice/tools.md"),
        ("behaviors", "agent", "", "agents/alice/behaviors.md"),
    ],
)
def test_each_kind_has_its_place_and_the_place_names_the_kind(kind: str, track: Track, which: str, key: str):
    """E15 E16 E31 E33-E41 C2 C3: a note's path follows from kind, scope and day, and back again."""
    whose = scope(track, "" if track == "project" else "alice")
    locator = KINDS[kind].locator(whose, which)

    assert locator.key == f"default_app/default_project/{key}"
    place = place_of(locator)
    assert place is not None
    assert (place.kind.name, place.scope, place.day or place.name, place.locator) == (
        kind,
        whose,
        which,
        locator,
    )


def test_derived_kinds_are_hidden_and_the_rest_visible():
    """E18: facts, foresights and cases live in dot folders."""
    assert {kind.name for kind in KINDS.values() if kind.dir_name.startswith(".")} == {
        "atomic_fact",
        "foresight",
        "agent_case",
    }


def test_prefixes_and_types_are_those_of_the_format():
    """E47 E93: prefixes and frontmatter types, and each prefix leads back to its kind."""
    assert {k.prefix: k.type for k in KINDS.values() if k.prefix} == {
        "ep": "episode_daily",
        "af": "atomic_fact_daily",
        "fs": "foresight_daily",
        "ac": "agent_case_daily",
        "mem": "memory_daily",
    }
    assert (KINDS["profile"].type, KINDS["agent_skill"].type) == ("user_profile", "agent_skill")
    assert kind_of_entry("ac_20260601_00000001").name == "agent_case"


@pytest.mark.parametrize("entry_id", ["zz_20260601_00000001", "nonsense", ""])
def test_an_id_of_no_kind_is_refused(entry_id: str):
    """An entry id that belongs to no kind is a named error."""
    with pytest.raises(Invalid):
        kind_of_entry(entry_id)


def test_the_id_default_has_folders_of_its_own_and_back():
    """E12 E13 E14: two levels always, "default" <-> default_app/default_project, and only those."""
    assert space_locator(Space()).key == "default_app/default_project"
    assert space_locator(Space("default", "p")).key == "default_app/p"
    assert space_of(Locator("default_app/p/users")) == Space("default", "p")
    assert space_of(Locator("default/p/users")) is None, "a folder that no id maps to"
    assert space_of(Locator("a/default/users")) is None


@pytest.mark.parametrize("name", ["default_app", "default_project", "Default_App"])
def test_a_user_cannot_take_the_folder_name_of_default(name: str):
    """E13: an app or project named like the reserved folder is refused."""
    with pytest.raises(Invalid, match="reserved"):
        Space(name, "p")
    with pytest.raises(Invalid, match="reserved"):
        Space("a", name)


@pytest.mark.parametrize(
    "owner",
    ["", ".", "..", "a/b", "a\\b", "a\x00b", "a b", "ä", "x" * 129, "con", "nul.txt", ".hidden", "a."],
)
def test_hostile_owner_ids_name_no_folder(owner: str):
    """E102: 1 to 128 safe characters; dots, separators and device names are refused before any path exists."""
    with pytest.raises(Invalid):
        scope("user", owner)


@pytest.mark.parametrize(
    "key",
    [
        "default_app/default_project/users/alice/episodes/episode-2026-13-01.md",
        "default_app/default_project/users/alice/episodes/episode-2026-06-01.txt",
        "default_app/default_project/users/alice/episodes/episode-2026-06-01 (conflicted copy).md",
        "default_app/default_project/users/alice/episodes/x/episode-2026-06-01.md",
        "default_app/default_project/users/alice/.cases/agent_case-2026-06-01.md",
        "default_app/default_project/users/al ice/user.md",
        "default_app/default_project/users/alice/other.md",
        "default_app/default_project/agents/bot/skills/fix/SKILL.md",
        "default_app/default_project/agents/bot/skills/skill_x/references/SKILL.md",
        "default_app/default_project/knowledge/x/index.md",
        "default_app/default_project/users",
        ".index/sqlite/users/a/user.md",
        "ome.toml",
        "",
    ],
)
def test_other_files_are_no_notes(key: str):
    """A locator where no kind lives has no meaning, and is no error."""
    assert place_of(Locator(key)) is None


def test_a_kind_refuses_a_scope_it_does_not_belong_to():
    """E36-E41: a profile belongs to users, a case to agents."""
    with pytest.raises(Invalid, match="belong"):
        KINDS["profile"].locator(scope("agent"))
    with pytest.raises(Invalid, match="belong"):
        KINDS["agent_case"].locator(scope("user"), "2026-06-01")
    with pytest.raises(Invalid, match="no kind"):
        kind_named("memcell")


@pytest.mark.parametrize(
    "day", ["", "2026-6-1", "2026-02-30", "20260601", "../../x", "2026-06-01\n", "٢٠٢٦-٠٦-٠١"]
)
def test_a_bad_day_is_refused(day: str):
    """E52: the date bucket is a real ISO date, so no day can leave the folder."""
    with pytest.raises(Invalid):
        KINDS["episode"].locator(scope(), day)


def test_a_new_kind_is_one_declaration():
    """E42 E43: declare where it lives and it renders, hashes and checks like the others."""
    kind = Kind(
        "decision", "decision_daily", "daily", ("project",), prefix="dec", dir_name="decisions",
        file_name="decision", sections=("Content",), search_sections=("Content",),
    )  # fmt: skip
    whose = scope("project", "")

    assert kind.locator(whose, "2026-06-01").key.endswith("shared/decisions/decision-2026-06-01.md")
    assert kind.fresh_frontmatter(whose, "2026-06-01")["type"] == "decision_daily"
    assert (
        kind.search_text(Entry("dec_20260601_00000001", {}, {"Content": "We chose tea."})) == "We chose tea."
    )
    one, same, other = (
        Entry("dec_20260601_00000001", {"seen": seen}, {"Content": text})
        for seen, text in (("1", "We chose tea."), ("2", "We chose tea."), ("1", "We chose milk."))
    )
    assert kind.content_hash(one) == kind.content_hash(same) != kind.content_hash(other)
    place = Place(whose, kind, day="2026-06-01")
    assert place.locator == kind.locator(whose, "2026-06-01")
    found = tuple(
        check(kind.parse("---\ntype: episode_daily\ndate: '2026-06-01'\nentry_count: 0\n---\n"), place)
    )
    assert [problem.code for problem in found] == ["type-mismatch"]


def test_the_head_has_the_keys_of_the_format_in_order():
    """E44 E45 E46 E48 E49: key order, quoting, and no app or project in it."""
    head = KINDS["episode"].fresh_frontmatter(scope(space=Space("shop", "web")), "2026-06-01")

    assert dump({**head, "entry_count": 2, "last_appended_at": "2026-06-01T09:30:00+00:00"}) == (
        "id: episode_log_alice_2026-06-01\ntype: episode_daily\nfile_type: episode_daily\nschema_version: 1\n"
        "user_id: alice\ntrack: user\ndate: '2026-06-01'\nentry_count: 2\n"
        "last_appended_at: '2026-06-01T09:30:00+00:00'\n"
    )


@pytest.mark.parametrize(
    ("track", "owner", "key"),
    [("agent", "bot", "agent_id"), ("mission", "run-7", "run_id"), ("user", "u", "user_id")],
)
def test_each_track_names_its_owner_by_its_own_key(track: Track, owner: str, key: str):
    """E46 C3: user_id, agent_id or run_id, and the track beside it."""
    head = KINDS["memory"].fresh_frontmatter(scope(track, owner), "2026-06-01")

    assert (head[key], head["track"]) == (owner, track)
    assert [k for k in head if k.endswith("_id")] == [key]


def test_the_project_scope_has_a_track_and_no_owner():
    """C3: project notes name no owner."""
    head = KINDS["memory"].fresh_frontmatter(scope("project", ""), "2026-06-01")

    assert head["track"] == "project"
    assert not {"user_id", "agent_id", "run_id"} & set(head)


def test_the_hash_ignores_what_is_merely_kept_about_an_entry():
    """E95 C2: status, tier and confidence are not content; category and importance are."""
    kind = KINDS["memory"]
    base = Entry("mem_20260601_00000001", {"category": "fact", "status": "candidate"}, {"Content": "x"})
    promoted = Entry(base.id, {"category": "fact", "status": "promoted", "tier": "1"}, {"Content": "x"})
    other = Entry(base.id, {"category": "gotcha", "status": "candidate"}, {"Content": "x"})

    assert kind.content_hash(base) == kind.content_hash(promoted)
    assert kind.content_hash(base) != kind.content_hash(other)


@pytest.mark.parametrize(
    ("kind", "inline", "counts"),
    [
        ("atomic_fact", "timestamp", False),
        ("atomic_fact", "parent_id", False),
        ("agent_case", "quality_score", True),
        ("agent_case", "session_id", False),
        ("memory", "file_scope_pattern", True),
        ("memory", "updated_at", False),
    ],
)
def test_which_inline_fields_are_content(kind: str, inline: str, counts: bool):
    """E95 C2: the declared content fields alone decide the hash."""
    before = Entry("x", {inline: "1"}, {KINDS[kind].main_section: "t"})
    after = Entry("x", {inline: "2"}, {KINDS[kind].main_section: "t"})

    assert (KINDS[kind].content_hash(before) != KINDS[kind].content_hash(after)) is counts


def test_a_skill_is_hashed_by_its_fields_and_body():
    """E95 E121: name, description, confidence, maturity and body count; timestamps do not."""
    kind = KINDS["agent_skill"]
    bot = scope("agent", "bot")
    fields = {
        "name": "fix",
        "description": "Fixes.",
        "confidence": 0.7,
        "maturity_score": 1.0,
        "updated_at": None,
    }

    def hashed(body: str = "## Steps\n1. Look", **changes: object) -> str:
        return kind.content_hash(kind.parse(kind.document(bot, {**fields, **changes}, body, name="fix")))

    assert hashed() == hashed(updated_at="2026-06-01T00:00:00+00:00")
    assert len({hashed(), hashed("other"), hashed(confidence=0.8), hashed(description="Mends.")}) == 4


def test_search_text_says_a_summary_once():
    """A summary that the content begins with adds no words twice."""
    kind = KINDS["episode"]
    entry = Entry("x", {}, {"Subject": "Tea", "Summary": "We drank", "Content": "We drank tea."})

    assert kind.search_text(entry) == "Tea\nWe drank tea."


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Solve the backup", "Solve_the_backup"),
        ("a/b\\c:d*e", "abcde"),
        ("..", "unnamed"),
        ("", "unnamed"),
        ("x" * 80, "x" * 50),
        ("Ärger e\u0301", "Ärger_é"),
        ("日本語 メモ", "日本語_メモ"),
    ],
)
def test_free_text_becomes_a_safe_name(text: str, name: str):
    """E101: NFC, spaces to underscores, word characters only, at most 50, a fallback; and stable."""
    assert safe_name(text) == name
    assert safe_name(name) == name
    assert checked_name(name) == name


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", "x" * 121, "a\n", "日" * 90, "\ud800"])
def test_a_skill_name_that_is_no_folder_name_is_refused(name: str):
    """E16 E102: a hostile skill name is a named error."""
    with pytest.raises(Invalid):
        KINDS["agent_skill"].locator(scope("agent"), name)


@pytest.mark.parametrize("root", roots())
def test_a_root_another_program_wrote_reads_without_a_complaint(root: Path):
    """E1 E3 E44-E54 E94: every note is understood, and checks find nothing."""
    files = sorted(root.rglob("*.md"))
    assert len(files) >= 6
    for file in files:
        locator = Locator(file.relative_to(root).as_posix())
        place = place_of(locator)
        assert place is not None
        note = place.kind.parse(file.read_bytes().decode())
        assert (note.problems, tuple(check(note, place))) == ((), ())
        assert len(note.entries) == note.frontmatter.get("entry_count", 0)


@pytest.mark.parametrize("root", roots())
def test_a_root_another_program_wrote_renders_to_the_same_bytes(root: Path):
    """E44-E50 E94: heads, entries and documents come out byte for byte as they went in."""
    for file in sorted(root.rglob("*.md")):
        place = place_of(Locator(file.relative_to(root).as_posix()))
        assert place is not None
        text = file.read_bytes().decode()
        note = place.kind.parse(text)
        if place.kind.storage == "daily":
            head = dump({**place.kind.fresh_frontmatter(place.scope, place.day), **note.frontmatter})
            blocks = "".join(render_entry(e.id, render_body(e.inline, e.sections)) for e in note.entries)
            assert f"---\n{head}---\n{blocks}" == text
        else:
            assert place.kind.document(place.scope, note.frontmatter, note.body, name=place.name) == text


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("type: atomic_fact_daily", "type-mismatch"),
        ("user_id: bob", "user_id-mismatch"),
        ("track: agent", "track-mismatch"),
        ("date: '2026-06-02'", "date-mismatch"),
        ("entry_count: 0", "entry-count"),
        ("entry_count: many", "entry-count"),
        ("schema_version: 9", "newer-schema"),
    ],
)
def test_a_head_at_odds_with_its_place_is_a_problem_with_a_line(line: str, code: str):
    """E14 C15: frontmatter must agree with the path; a mismatch is reported, and the entries stay readable."""
    kind = KINDS["episode"]
    head = dump({**kind.fresh_frontmatter(scope(), "2026-06-01"), "entry_count": 1})
    key = line.partition(":")[0]
    head = "".join(f"{line}\n" if row.startswith(f"{key}:") else f"{row}\n" for row in head.splitlines())
    note = parse_note(f"---\n{head}---\n" + render_entry("ep_20260601_00000001", "### Content\nx\n"))
    place = place_of(kind.locator(scope(), "2026-06-01"))
    assert place is not None

    found = tuple(check(note, place))
    assert [p.code for p in found] == [code]
    assert note.text.splitlines()[found[0].line - 1] == line
    assert note.entries[0].sections == {"Content": "x"}


def test_an_unquoted_date_agrees_with_its_place():
    """A date written without quotes by hand is the same date."""
    kind = KINDS["episode"]
    head = dump({**kind.fresh_frontmatter(scope(), "2026-06-01")}).replace("'2026-06-01'", "2026-06-01")
    place = place_of(kind.locator(scope(), "2026-06-01"))
    assert place is not None

    assert tuple(check(parse_note(f"---\n{head}---\n"), place)) == ()


def test_entries_of_another_day_or_kind_are_reported():
    """C15: ids in a note carry its prefix and its day."""
    kind = KINDS["memory"]
    head = dump({**kind.fresh_frontmatter(scope(), "2026-06-01"), "entry_count": 5})
    ids = ["mem_20260601_00000001", "mem_20260602_00000002", "ep_20260601_00000003", "whatever"]
    body = "".join(
        render_entry(i, "**status**: dead\n\n### Content\nx\n" if "1" in i[-1:] else "") for i in ids
    )
    place = place_of(kind.locator(scope(), "2026-06-01"))
    assert place is not None

    assert [p.code for p in check(parse_note(f"---\n{head}---\n{body}"), place)] == [
        "memory-status",
        "entry-id",
        "entry-id",
        "entry-id",
    ]


def test_scope_folders_are_siblings():
    """C3: users, agents, shared and missions stand side by side below the space."""
    names = [
        scope_locator(scope(t, "" if t == "project" else "x")).parts[2]
        for t in ("user", "agent", "project", "mission")
    ]  # type: ignore[arg-type]
    assert names == ["users", "agents", "shared", "missions"]
