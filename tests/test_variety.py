"""Search on sorts of memory it was not fitted on: never worse than the better plain leg, and silent on small talk."""

import pytest
from benchmarks._variety_sets import UNRELATED, Set, assistant, coding, group, notes, tongues
from benchmarks.variety import baselines, judged

from cairn import config
from cairn.engines import minilm
from cairn.engines.embedders import MiniLM
from cairn.retrieval.fitting import asks_nothing, says_nothing
from cairn.types import Scope, Space
from tests.world import SearchWorld


@pytest.fixture(scope="module")
def model():
    folder = minilm.installed(config.models_dir())
    if folder is None:
        pytest.skip("the local model is not installed: run `make setup`")
    return MiniLM(folder, threads=2)


def filled(folder, model, chosen: Set) -> SearchWorld:
    """The set in an index: talk as messages with their episode, notes as entries."""
    world = SearchWorld(folder, model)
    scope = Scope(Space(), "user", chosen.owner)
    for number, session in enumerate(chosen.sessions):
        if chosen.notes:
            world.entry("episode", session[0].text, scope)
        else:
            world.say(f"s{number}", [(said.sender.lower(), said.text) for said in session], scope)
    return world


def answers(world: SearchWorld, chosen: Set, question: str, **options) -> list[str]:
    result = world.ask(question, user_id=chosen.owner, evidence=10, top_k=10, **options)
    if chosen.notes:
        return [hit.text for hit in result.episodes]
    return [item.text for item in result.evidence or ()]


KINDS = (coding, assistant, group, tongues, notes)


@pytest.mark.parametrize("make", KINDS)
def test_ranking_is_never_worse_than_the_better_plain_leg(tmp_path, model, make):
    """Coding sessions, an assistant, a group, other languages, plain notes: priors fitted on pair talk must not hurt."""
    chosen = make()
    world = filled(tmp_path, model, chosen)
    wanted = [text for _, text in chosen.questions]
    ours = judged([answers(world, chosen, question) for question, _ in chosen.questions], wanted)
    plain = [judged(found, wanted) for found in baselines(chosen, model).values()]
    assert ours[0] >= max(recall for recall, _ in plain)
    assert ours[1] >= max(rank for _, rank in plain)
    passed = [bool(answers(world, chosen, question, for_injection=True)) for question, _ in chosen.questions]
    leaked = [text for text in UNRELATED if answers(world, chosen, text, for_injection=True)]
    assert sum(passed) >= 0.9 * len(passed)
    assert len(leaked) <= 1
    elsewhere = [question for other in KINDS if other is not make for question, _ in other().questions[::3]]
    let_in = [question for question in elsewhere if answers(world, chosen, question, for_injection=True)]
    assert len(let_in) <= 0.25 * len(elsewhere), "what other memories are asked stays mostly unanswered here"
    world.close()


REMARKS = [
    "I'm back", "can we start over please", "Wow, that was quick", "never mind, I figured it out", "are you still there?",
    "could you say that again?", "okay, ich probiere das mal", "kannst du das noch mal sagen?", "me revoilà",
    "hum, ce n'est pas tout à fait ça", "ладно, сейчас попробую", "ты ещё здесь?", "好的，我试试", "你还在吗？", "うーん、ちょっと違います", "まだいますか？",
]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["ok", "Thanks a lot!", "good morning", "danke", "好的", "Continue.", *REMARKS]
)
def test_small_talk_asks_nothing_of_a_memory(tmp_path, text):
    """Before a prompt, small talk is answered with nothing, even where the same small talk was said before."""
    world = SearchWorld(tmp_path)
    world.say("s", [("alice", text), ("carol", "The boiler was repaired on Monday.")])
    assert asks_nothing(text)
    result = world.ask(text, for_injection=True, evidence=5)
    assert result.hits == () and result.evidence == ()
    assert world.ask(text, evidence=5, method="keyword").evidence
    asked = world.ask("Was the boiler repaired?", for_injection=True, evidence=5)
    assert asked.evidence and not any(says_nothing(item.text) for item in asked.evidence)
    world.close()


@pytest.mark.parametrize(
    "text",
    [
        "I'm back in Rome", "can we start the heating on Monday?", "where do I work?", "when do we start?", "what did you figure out?",
        "are you still in Lisbon?", "that was the quick brown fox", "bist du noch in Bremen?", "wann sind wir wieder da?",
        "tu es toujours à Nantes ?", "ты ещё в Москве?", "你还在上海吗？", "我试用了新手机", "まだ東京にいますか？",
    ],
)  # fmt: skip
def test_what_names_or_asks_something_is_no_remark(text):
    """A remark with a place, a thing or a question in it is asked of the memory."""
    assert not asks_nothing(text)


def test_a_remark_is_read_in_time():
    """What repeats the beginnings of remarks is read once, not in every way they could be put together."""
    for text in (
        "let's go on " * 13,
        "not quite " * 16,
        "好的" * 80,
        "ok, " * 40 + "Rome",
        "that's so so so so so " * 7,
    ):
        asks_nothing(text)
    assert not asks_nothing("ok, " * 30 + "Rome")
