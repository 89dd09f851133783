"""A receipt is complete exactly when no byte of the words is left below the root; otherwise it names every carrier."""

from __future__ import annotations

import asyncio
import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tools import make_root

import cairn
from cairn import Memory
from cairn.engines.large import LargeIndex
from cairn.governed.wanted import Wanted
from cairn.notes.format import with_blocks
from cairn.types import Scope, Space
from tests.held import holding
from tests.waiting import calls_of, folded

CANARY = "zebra" + "crossing77"
START = 1780315200000


ENGINES = ["memory", pytest.param("lancedb", marks=pytest.mark.xdist_group("lance"))]


@pytest.fixture(params=ENGINES)
def memory(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Memory]:
    given = {"embedding__provider": "hashing", "index__engine": request.param}
    with cairn.open_blocking(tmp_path / "root", **given) as opened:
        opened.parts.answering._large._whole_rows = 0  # the tables are asked, however few rows there are
        yield opened


def say(memory: Memory, session: str, *texts: str, **more: object) -> None:
    messages = [
        {"sender_id": "dana", "role": "user", "timestamp": START + n * 60_000, "content": text}
        for n, text in enumerate(texts)
    ]
    memory.add(session, messages, **more)


def folded_in(memory: Memory) -> None:
    """Fill the vectors and the tables of LanceDB, too."""
    memory.search("vault", user_id="dana", consistency="strong")
    folded(memory)
    from_tables = isinstance(memory.parts.answering(Scope(Space(), "user", "dana")), LargeIndex)
    assert from_tables == (memory.settings.index.engine == "lancedb")


def found(memory: Memory, words: str) -> str:
    """What an answer says to these words, all of it."""
    shown = memory.search(words, user_id="dana", evidence=10, consistency="strong")
    return json.dumps(shown.as_data(), ensure_ascii=False)


def test_every_carrier_that_can_be_cleaned_is(memory):
    """Messages, tool calls, keys, labels, reasons, ledger keys, notes, history, rows, vectors: not a byte stays."""
    root = memory.settings.root
    say(
        memory,
        "s1",
        f"I open the vault with {CANARY} daily.",
        "And then I have tea.",
        idempotency_key=f"k {CANARY}",
    )
    call = {"id": f"call {CANARY}", "type": "function",
            "function": {"name": "look", "arguments": json.dumps({"q": json.dumps({"deep": CANARY})})}}  # fmt: skip
    memory.add("s1", [
        {"sender_id": "bot", "role": "assistant", "timestamp": START + 200_000, "content": "", "tool_calls": [call]},
        {"sender_id": "bot", "role": "tool", "timestamp": START + 201_000, "tool_call_id": f"call {CANARY}",
         "content": [{"type": "text", "text": "found", "extras": {"where": {"deep": [CANARY]}}}]},
    ])  # fmt: skip
    memory.flush("s1")
    made = memory.remember(f"Dana opens the vault with {CANARY}.", scope="user", owner="dana")
    kept = memory.remember("The plants are watered on Mondays.", scope="user", owner="dana").memory["id"]
    memory.memories.edit(kept, content="The plants are watered on Tuesdays.", reason=f"as {CANARY} says")
    memory.memories.supersede(kept, "Plants are watered by the neighbour.", reason=f"because of {CANARY}")
    memory.checkpoint(f"before {CANARY}")
    folded_in(memory)
    assert len(holding(root, CANARY)) >= 6
    assert any("lance" in name for name in holding(root, CANARY)), "the tables hold it before"
    assert CANARY in found(memory, CANARY)
    receipt = memory.memories.forget(made.memory["id"], words=[CANARY])
    assert receipt.complete, receipt.left
    assert holding(root, CANARY) == []
    for _ in range(2):  # while tables are gone, and from those that are made anew
        assert CANARY not in found(memory, "vault tea")
        assert "I have tea" in found(memory, "vault tea")
        folded_in(memory)
        assert holding(root, CANARY) == []
    say(
        memory,
        "s1",
        f"I open the vault with {CANARY} daily.",
        "And then I have tea.",
        idempotency_key=f"k {CANARY}",
    )
    assert holding(root, CANARY) == [], "the key is known again without its words"


def test_forget_makes_anew_only_the_tables_that_are_affected(memory):
    """The tables of kinds that said nothing of it stay as they are: at a million rows they are most of the work."""
    say(memory, "s1", "We had tea in the garden.", "And then the lantern was lit.")
    memory.flush("s1")
    made = memory.remember(f"Dana opens the vault with {CANARY}.", scope="user", owner="dana")
    memory.quiesce()
    folded_in(memory)

    def births() -> dict[str, int]:
        return {kind: mark["birth"] for kind, mark in memory.parts.lance.state()["kinds"].items()}

    before = births()
    assert {"memory", "episode", "message"} <= before.keys()
    assert memory.memories.forget(made.memory["id"], words=[CANARY]).complete
    assert holding(memory.settings.root, CANARY) == []
    after = births()
    assert after.pop("memory", 0) != before.pop("memory")
    assert after == before


def test_what_cannot_be_cleaned_is_named_file_by_file(memory):
    """A session's id and an owner's name stand in paths, notes, index and scratch: each of them is named."""
    root = memory.settings.root
    say(memory, f"talk-{CANARY}", f"I open the vault with {CANARY} daily.", "And then I have tea.")
    memory.flush(f"talk-{CANARY}")
    folded_in(memory)
    receipt = memory.memories.forget(words=[CANARY])
    assert not receipt.complete
    named = {where for where, _ in receipt.left}
    held = set(holding(root, CANARY))
    assert {one for one in held if not one.startswith((".index/", ".tmp/cells/"))} | {
        ".index",
        ".tmp/cells",
    } == named
    assert any(one.startswith("default_app/default_project/sessions/") for one in held)
    assert any(one.startswith(".index/") for one in held)
    assert any(one.startswith(".tmp/cells/") for one in held)
    assert all("an id or a name holds the words" in why for _, why in receipt.left)
    assert (
        "tea" in (root / "default_app/default_project/users/dana/episodes/episode-2026-06-01.md").read_text()
    )


def test_files_that_others_left_are_looked_at(memory):
    """An editor's copy, a sync program's copy, a file that is no text: cleaned, or named."""
    root = memory.settings.root
    made = memory.remember(f"Dana opens the vault with {CANARY}.", scope="user", owner="dana")
    folder = root / "default_app/default_project/users/dana/memories"
    note = next(folder.glob("memory-*.md"))
    (folder / f".{note.name}.swp").write_bytes(b"b0VIM\x00\xff\xfe" + note.read_bytes())
    (folder / f"{note.stem} (copy).md").write_bytes(note.read_bytes())
    swap = folder / f".{note.name}.swp"
    receipt = memory.memories.forget(made.memory["id"], words=[CANARY])
    left = {where for where, _ in receipt.left}
    assert set(holding(root, CANARY)) == left
    record = {where for where in left if where.startswith(".tmp/forgetting/")}
    assert left - record == {f"{swap.relative_to(root)}"}
    assert len(record) == 1, "what to look for is kept for another try, and named"
    swap.unlink()
    assert memory.memories.forget(made.memory["id"], words=[CANARY]).complete
    assert holding(root, CANARY) == []


def test_a_receipt_is_true_for_many_kinds_of_words(tmp_path):
    """Words with blanks, other scripts, quotes, backslashes and case: none is left where a receipt is complete."""
    many = [
        "the vault opens at noon with seven brass keys",
        "Ключ лежит под третьим камнем у пруда",
        "金庫の鍵は三番目の石の下にあります",
        'He said "open sesame" and it \\ opened twice',
        "Die Tür öffnet sich nur für Bären und Füchse",
        "key=value; path C:\\vault\\door.txt is hers",
    ]

    async def run() -> None:
        async with cairn.open(tmp_path / "root", embedding__provider="none") as memory:
            for text in many:
                stamp = START
                message = {"sender_id": "dana", "role": "user", "timestamp": stamp, "content": f"{text}."}
                await memory.add("s1", [message])
                await memory.flush("s1")
                made = await memory.remember(text, scope="user", owner="dana")
                receipt = await memory.memories.forget(made.memory["id"])
                raw = json.dumps(text, ensure_ascii=True)[1:-1]
                held = {*holding(tmp_path / "root", text), *holding(tmp_path / "root", raw)}
                assert receipt.complete == (not held), (text, receipt.left, held)
                assert not held, text

    asyncio.run(run())


SAID = st.lists(
    st.sampled_from(["Elm", "elm", "STREET", "Street", "12", "Straße", "\u3060\u3088", "\n", " ", ". ", '"', "-", "\\", "x", "Zoë"]), max_size=8
).map("".join)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    SAID, st.sampled_from(["Elm Street 12", "elm-street", "Straße 12", "\u3060\u3088", "Zoë"]), st.booleans()
)
def test_words_are_found_in_bytes_as_in_the_text_that_they_are(text, words, is_phrase):
    """What is passed over at first sight says none of it: as text, and as a JSON string, with line ends as letters."""
    phrases, told = ((words,), ()) if is_phrase else ((), (words,))
    wanted = Wanted(Space(), phrases=phrases)
    wanted.want(told)
    for raw in (text, json.dumps(text), json.dumps(text, ensure_ascii=False)):
        plain = raw.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\")
        for letter in "ßë\u3060\u3088":
            plain = plain.replace(json.dumps(letter)[1:-1], letter)
        held = any(bool(wanted.masked(one) != one) for one in (raw, plain))
        assert wanted.found_in_bytes(raw.encode()) == held


def test_forgetting_reads_no_entry_that_has_nothing_to_do_with_it(tmp_path):
    """The cost is that of what goes: of a note's entries those alone are taken apart that may be touched or alike."""
    assert make_root.main([str(tmp_path / "root"), "--rows", "3000"]) == 0
    with cairn.open_blocking(tmp_path / "root", embedding__provider="none") as memory:
        memory.sync()
        receipts = []
        calls = calls_of(
            lambda: receipts.append(
                memory.memories.forget(words=[make_root.said(321)], scope="user", owner="person0")
            )
        )
        assert receipts[0].complete
    held = [at for at in (tmp_path / "root").rglob("*.md") if make_root.said(321) in at.read_text()]
    assert held == []
    assert calls["_parse_block"] < 3000


def test_what_is_alike_is_looked_for_until_enough_is_found(tmp_path, monkeypatch):
    """A list that is full is not looked for to the end of a large root; what is in it stands first in the whole one, too."""
    assert make_root.main([str(tmp_path / "root"), "--rows", "3000"]) == 0
    with cairn.open_blocking(tmp_path / "root", embedding__provider="none") as memory:
        told, calls = [], []
        for most in (200, 4):
            monkeypatch.setattr("cairn.governed.forget._ALIKE_SHOWN", most)
            ask = {"words": [make_root.said(321)], "scope": "user", "owner": "person0", "dry_run": True}
            calls.append(calls_of(lambda ask=ask: told.append(memory.memories.forget(**ask).alike)))
    assert len(told[0]) > 8 and list(told[1]) == list(told[0])[:4]
    assert calls[1]["may_be_in"] < calls[0]["may_be_in"] / 2


def test_a_damaged_note_is_looked_at_whole():
    """Entries that are not chosen are left out of a note; where its markers do not fit, nothing is."""
    one, two = (f"<!-- entry:{n} -->\n## {n}\n\n### Content\nsays {n}\n<!-- /entry:{n} -->\n" for n in "ab")
    assert with_blocks(f"head\n{one}{two}", lambda block: "says b" in block) == f"head\n{two}"
    broken = f"head\n{one.replace('<!-- /entry:a -->', '')}{two}"
    assert with_blocks(broken, lambda block: "says b" in block) == broken


TWICE_WRITTEN = [
    pytest.param("Lüdenscheidt", id="latin"),
    pytest.param("Trần Quế Ngải", id="two marks"),
    pytest.param("Ελλάδα Σίσυφος", id="greek"),
    pytest.param("Андрей Зайцев", id="cyrillic"),
    pytest.param("한국어문장", id="hangul"),
    pytest.param("がぎぐげご", id="kana"),
]


@pytest.mark.parametrize("asked", ["NFC", "NFD"])
@pytest.mark.parametrize("words", TWICE_WRITTEN)
def test_a_letter_and_its_marks_are_one_letter_however_they_are_written(memory, words, asked):
    """A name pasted from elsewhere is made of other signs and looks the same: it goes with the rest, to the last byte."""
    root = memory.settings.root
    forms = {unicodedata.normalize(form, words) for form in ("NFC", "NFD")}
    forms.add(words.replace("ầ", "a\u0302\u0300").replace("ế", "\u00ea\u0301"))  # half of the marks apart
    assert len(forms) > 1
    say(memory, "s1", *(f"We met near {form} on day {n}. The tea was good." for n, form in enumerate(forms)))
    memory.flush("s1")
    for n, form in enumerate(forms):
        memory.remember(f"Dana walked {n} times around {form} with her aunt.", scope="user", owner="dana")
    memory.checkpoint("before")
    folded_in(memory)
    receipt = memory.memories.forget(words=[unicodedata.normalize(asked, words)], scope="user", owner="dana")
    assert receipt.complete, receipt.left
    for form in forms:
        assert holding(root, form) == []
    assert "tea was good" in found(memory, "tea")


def test_a_letter_with_a_mark_is_not_the_letter_without():
    """`cafe` is another word than `café`, and `resume` than `résumé`, also where the mark is a sign of its own."""
    wanted = Wanted(Space(), phrases=("the cafe", "resume"))
    for form in ("NFC", "NFD"):
        text = unicodedata.normalize(form, "We sat in the café and wrote a résumé.")
        assert not wanted.found_in(text)
        assert not wanted.found_in_bytes(text.encode())
    assert wanted.without("We sat in the cafe.") == "[forgotten]"


@pytest.mark.parametrize("words", ["C:\\vault\\key", 'the "open" gate', "tab\there", "two\nlines of it"])
def test_words_that_json_writes_otherwise_go_from_fields_and_their_history(memory, words):
    """What came with a message stands as JSON in a field of its episode, and as JSON of that in the history."""
    root = memory.settings.root
    say(memory, "s1", "I have tea at noon.", metadata={"where": words})
    memory.flush("s1")
    kept = memory.remember("The lamp is lit at dusk.", scope="user", owner="dana").memory["id"]
    memory.memories.edit(kept, content="The lamp is lit at dawn.", reason=f"see {words}")
    memory.checkpoint("before")
    memory.log(limit=5)
    folded_in(memory)
    spoken = json.dumps(words)[1:-1]
    layers = [spoken, json.dumps(spoken)[1:-1], json.dumps(json.dumps(spoken)[1:-1])[1:-1]]
    assert any(holding(root, one) for one in layers[1:]), "it is there in deeper layers"
    receipt = memory.memories.forget(words=[words], scope="user", owner="dana")
    assert receipt.complete, receipt.left
    assert {one: held for one in layers if (held := holding(root, one))} == {}
    assert "tea at noon" in found(memory, "tea")
