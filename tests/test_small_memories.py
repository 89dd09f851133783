"""What comes first in a memory of a handful of texts: what is about the question, not what shares a name with it."""

import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import cairn
from cairn import config
from cairn.engines import minilm
from cairn.language import asking

BEGAN = datetime(2025, 11, 3, 9, tzinfo=UTC)
MEMORIES = tomllib.loads((Path(__file__).parent / "small_memories.toml").read_text(encoding="utf-8"))[
    "memory"
]


def write_notes(folder: Path, owner: str, texts: list[str]) -> None:
    """Episodes as a person would leave them in a file."""
    day = BEGAN.date()
    folder.mkdir(parents=True)
    entries = [
        f"<!-- entry:ep_{day:%Y%m%d}_{n:08d} -->\n## ep_{day:%Y%m%d}_{n:08d}\n\n**owner_id**: {owner}\n"
        f"**timestamp**: {day}T10:{n:02d}:00+00:00\n\n### Content\n{text}\n<!-- /entry:ep_{day:%Y%m%d}_{n:08d} -->\n"
        for n, text in enumerate(texts, 1)
    ]
    head = (
        f"---\nid: episode_log_{owner}_{day}\ntype: episode_daily\nschema_version: 1\nuser_id: {owner}\n"
        f"track: user\ndate: '{day}'\nentry_count: {len(texts)}\n---\n"
    )
    (folder / f"episode-{day}.md").write_text(head + "".join(entries), encoding="utf-8")


def fill(memory, root: Path, project: str, one: dict) -> None:
    if "notes" in one:
        write_notes(
            root / "default_app" / project / "users" / one["owner"] / "episodes", one["owner"], one["notes"]
        )
    for text in one.get("remembered", ()):
        memory.remember(text, project_id=project)
    said = one.get("said", [])
    for number, talk in enumerate([[each] for each in said] if one.get("by_day") else [said] if said else []):
        began = int((BEGAN + timedelta(days=30 * number)).timestamp() * 1000)
        messages = [
            {
                "sender_id": who,
                "sender_name": who.title(),
                "role": "assistant" if who == "assistant" else "user",
                "timestamp": began + 30_000 * place,
                "content": text,
            }
            for place, (who, text) in enumerate(talk)
        ]
        memory.add(f"{project}-{number}", messages, project_id=project)
        if not one.get("is_open"):
            memory.flush(f"{project}-{number}", project_id=project)


@pytest.fixture(scope="module")
def memory(tmp_path_factory):
    """All of them in one root, each in a project of its own, with facts and vectors."""
    if minilm.installed(config.models_dir()) is None:
        pytest.skip("the local model is not installed: run `make setup`")
    root = tmp_path_factory.mktemp("small") / "root"
    with cairn.open_blocking(root, background=False) as opened:
        for number, one in enumerate(MEMORIES):
            fill(opened, root, f"p{number}", one)
        opened.trigger("extract_atomic_facts")
        opened.sync()  # all vectors are there: a question waits for them for some seconds only
        yield opened


@pytest.mark.parametrize("number", range(len(MEMORIES)), ids=[one["name"] for one in MEMORIES])
def test_what_is_about_the_question_comes_first(memory, number):
    """Where something is remembered or written by hand, first of all that is recalled; else of what was said."""
    one, project = MEMORIES[number], f"p{number}"
    wrong = []
    for question, wanted in one["asked"]:
        asked = {"user_id": one["owner"], "project_id": project}
        if {"notes", "remembered", "is_recalled"} & one.keys():
            lists = [[item.text for item in memory.recall(question, **asked).items]]
        else:
            found = memory.search(question, **asked, evidence=5, top_k=5, consistency="strong")
            lists = [[item.text for item in found.evidence or ()]]
            if one.get("by_day"):
                lists.append([str(hit.fields["Content"]) for hit in found.episodes])
        wrong += [
            (question, texts[:2])
            for texts in lists
            if not texts or wanted.casefold() not in texts[0].casefold()
        ]
    assert not wrong


@pytest.mark.parametrize("size", [1, 3])
def test_a_name_alone_is_no_answer(tmp_path, size):
    """Whom a question is about does not say what is asked of them: a note that shares the name only is not told."""
    if minilm.installed(config.models_dir()) is None:
        pytest.skip("the local model is not installed: run `make setup`")
    notes = [
        "Alice drinks her coffee black.",
        "Bob is allergic to nuts.",
        "The printer is on the second floor.",
    ]
    with cairn.open_blocking(tmp_path, background=False) as memory:
        for note in notes[:size]:
            memory.remember(note)
        memory.sync()

        def score(query):
            items = memory.recall(query, min_score=0.0).items
            return max((item.score for item in items if "Alice" in item.text), default=0.0)

        others = (
            "where does Alice live",
            "Who is Alice's dentist?",
            "What car does Alice drive?",
        )
        assert max(score(query) for query in others) <= 0.5
        assert score("what does Alice drink") > 0.8 > score("How old is Alice?")
        assert score("how does Alice take her coffee") > 0.8
        in_small = ("what is alice's phone number", *(query.lower() for query in others))
        assert max(score(query) for query in in_small) <= 0.5, (
            "typed without a capital it is a name all the same"
        )
        assert score("what does alice drink") > 0.8 < score("how does alice take her coffee")


def test_how_a_memory_writes_a_word_tells_whether_it_is_a_name(tmp_path):
    """A question without capitals: a thing that begins a note is no name behind an article, nor what is written small."""
    if minilm.installed(config.models_dir()) is None:
        pytest.skip("the local model is not installed: run `make setup`")
    notes = ["Dentist on Friday at three.", "Lunch is at noon in the canteen.", "We met Bob at the harbour."]
    with cairn.open_blocking(tmp_path, background=False) as memory:
        for note in notes:
            memory.remember(note)
        memory.sync()

        def first(query):
            items = memory.recall(query, min_score=0.5).items
            return items[0].text if items else ""

        assert first("when is my dentist appointment") == notes[0]
        assert first("where is lunch") == notes[1]
        assert first("where did we meet bob") == notes[2]
        assert first("what is bob's shoe size") == ""
        assert not asking.read("wo ist die katze").may_name_in_small, (
            "a language of capitals tells nothing by them"
        )
