"""Search: rules of the request, what is found, whose it is, and what is left unsaid."""

import threading
from datetime import UTC, datetime
from typing import get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cairn
from cairn import config
from cairn.engines import minilm
from cairn.engines.embedders import MiniLM
from cairn.errors import Invalid, Unavailable
from cairn.operations.recall import Method
from cairn.retrieval.answers import SearchRequest, tokens_of
from cairn.retrieval.fitting import falling, fit_by_words, fits_of
from cairn.retrieval.lexical import ScannedScope
from cairn.seams import Completion, Embedder
from cairn.types import Freshness, Message, Scope, Space
from tests.world import ALICE, SearchWorld

BOB = Scope(Space(), "user", "bob")
GARDEN = [
    ("alice", "I planted tomatoes behind the house last week."),
    ("carol", "How are the tomatoes doing?"),
    ("alice", "They grow fast, the soil is very good there."),
    ("carol", "I bought a piano in Leipzig for my daughter."),
]
OFFICE = [
    ("alice", "The nightly backup of db0 fails with exit code 2."),
    ("carol", "It used port 5432, PostgreSQL listens on 5433 now; I changed backup.env."),
    ("alice", "Great, please alert me on Slack next time."),
]


@pytest.fixture
def world(tmp_path):
    made = SearchWorld(tmp_path)
    made.say("garden", GARDEN)
    made.say("office", OFFICE, day="2026-05-20")
    yield made
    made.close()


@pytest.mark.parametrize("method", get_args(Method))
def test_every_method_finds_the_right_talk(world, method):
    """E114: keyword, vector, hybrid, agentic and its other name answer with the same lists."""
    result = world.ask("tomatoes soil", method=method, evidence=2)
    assert result.episodes[0].session_id == "garden"
    assert (result.evidence and "soil" in result.evidence[0].text) or "tomatoes" in result.evidence[0].text
    data = result.as_data()
    five = {"episodes", "profiles", "agent_cases", "agent_skills", "unprocessed_messages"}
    assert five <= set(data) and data["profiles"] == [] and data["freshness"]["state"] == "fresh"


def test_evidence_is_verbatim_and_says_where_it_is_from(world):
    """Evidence carries the message as it was said, its session, sender and time, and the entries made of it."""
    [best] = world.ask("which port does PostgreSQL use", evidence=1).evidence
    assert best.text == OFFICE[1][1]
    assert (best.session_id, best.message_id, best.sender_id) == ("office", "m_office_1", "carol")
    assert best.timestamp == datetime(2026, 5, 20, 10, 0, 1, tzinfo=UTC)
    assert best.entry_ids == ("ep_office",)
    assert 0 < best.score <= 1


def test_a_hit_that_nothing_supports_is_not_returned(world):
    """Nothing fits, so nothing is returned: lists are never padded."""
    result = world.ask("zebra crossing in Ulaanbaatar", evidence=5, method="keyword")
    assert result.episodes == () and result.evidence == ()


@pytest.fixture(scope="module")
def memory(tmp_path_factory):
    """An empty memory, as a program opens it."""
    root = tmp_path_factory.mktemp("asked")
    with cairn.open_blocking(root, background=False, embedding__provider="none") as opened:
        yield opened


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"query": "   "}, "query"),
        ({"query": "x" * 70_000}, "query"),
        ({"user_id": None}, "exactly one"),
        ({"agent_id": "bot"}, "exactly one"),
        ({"query": 5}, "query"),
        ({"kinds": ["song"]}, "song"),
        ({"method": "magic"}, "magic"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": 101}, "top_k"),
        ({"top_k": True}, "top_k"),
        ({"top_k": "5"}, 'top_k: must be a whole number, not "5"'),
        ({"min_lsn": "12"}, "min_lsn: must be a whole number"),
        ({"evidence": -1}, "evidence"),
        ({"radius": 1.5}, "radius"),
        ({"min_score": -0.1}, "min_score"),
        ({"min_score": float("nan")}, "min_score"),
        ({"token_budget": -5}, "token_budget"),
        ({"consistency": "someday"}, "consistency"),
        ({"app_id": "../x"}, "app_id"),
        ({"user_id": "a/b"}, "user_id"),
        ({"filters": {"user_id": "bob"}}, "user_id"),
    ],
)
def test_bad_requests_are_named(memory, changes, names):
    """E114: each broken rule is an error that names the field."""
    with pytest.raises(Invalid, match=names):
        memory.search(**{"query": "x", "user_id": "alice", **changes})


@pytest.mark.parametrize(
    "query",
    ['"', "AND OR NOT", "NEAR(a b)", "a* ^b {c}:d", "x\0tomatoes", "'; DROP TABLE rows;--", "-", "()", "🙂"],
)
def test_query_syntax_is_just_text(world, query):
    """Characters that mean something to the engine mean nothing in a question."""
    for method in ("keyword", "hybrid"):
        assert world.ask(query, method=method).freshness.state == "fresh"
    assert world.ask("x\0tomatoes", method="keyword").episodes


def test_an_unknown_owner_has_empty_lists(world):
    """An owner nobody wrote about is no error."""
    result = world.ask("tomatoes", user_id="nobody", include_profile=True, evidence=3)
    assert result.hits == () and result.evidence == ()


def test_no_answer_leaves_its_scope(tmp_path):
    """P7: neither owner, track, app nor project is ever crossed, by any method, list or filter."""
    world = SearchWorld(tmp_path)
    scopes = [
        Scope(Space(app, project), track, owner)
        for app in ("default", "other")
        for project in ("default", "secret")
        for track in ("user", "agent")
        for owner in ("alice", "bob")
    ]
    for number, scope in enumerate(scopes):
        world.say(
            f"s{number}", [(scope.owner, f"The launch code of scope{number} is purple tomatoes")], scope
        )
        for kind in ("memory", "agent_case", "agent_skill", "atomic_fact", "profile", "foresight"):
            world.entry(kind, f"launch code scope{number} purple tomatoes", scope)
    for number, scope in enumerate(scopes):
        for method in ("keyword", "vector", "hybrid"):
            for where in (None, {"OR": [{"session_id": f"s{n}"} for n in range(len(scopes))]}):
                result = world.searcher().search(
                    SearchRequest(
                        "launch code purple tomatoes", scope, method=method, filters=where, evidence=100, top_k=100, include_profile=True,
                        include_hidden=True,
                    )
                )  # fmt: skip
                assert all(hit.scope == scope for hit in result.hits)
                assert {item.session_id for item in result.evidence} <= {f"s{number}"}
                assert all(f"scope{number} " in item.text for item in result.evidence)
                if where is None:
                    assert result.memories and result.agent_cases and result.agent_skills and result.episodes
    world.close()


def test_filters_narrow_hits_and_evidence(world):
    """E116: a filter holds for every list of the answer."""
    result = world.ask("backup tomatoes", filters={"session_id": "office"}, evidence=10)
    assert {hit.session_id for hit in result.episodes} == {"office"}
    assert {item.session_id for item in result.evidence} == {"office"}
    said = world.ask("tomatoes", filters={"sender_id": "carol"}, evidence=10).evidence
    assert {item.sender_id for item in said} == {"carol"}
    late = world.ask(
        "tomatoes backup", filters={"timestamp": {"gte": "2026-05-10T00:00:00+00:00"}}, evidence=10
    )
    assert {item.session_id for item in late.evidence} == {"office"}


def test_facts_stand_under_their_episode(world):
    """Facts that match come nested under the episode they belong to, and nowhere else."""
    world.entry(
        "atomic_fact", "PostgreSQL listens on port 5433.", parent_type="episode", parent_id="ep_office"
    )
    world.entry("atomic_fact", "Carol bought a piano.", parent_type="episode", parent_id="ep_garden")
    result = world.ask("PostgreSQL port")
    office = next(hit for hit in result.episodes if hit.session_id == "office")
    assert [fact.text for fact in office.facts] == ["PostgreSQL listens on port 5433."]
    assert all(not hit.facts for hit in result.episodes if hit.session_id != "office")
    item = result.as_data()["episodes"][0]
    assert item["atomic_facts"][0]["content"] == "PostgreSQL listens on port 5433."
    assert item["type"] == "Conversation" and item["id"] == "alice_ep_office"


@pytest.mark.parametrize("method", ["keyword", "vector", "hybrid"])
def test_a_fact_lifts_its_episode(world, method):
    """An episode whose own words do not match is found by its fact."""
    world.entry("atomic_fact", "Vegetables need watering.", parent_type="episode", parent_id="ep_garden")
    best = world.ask("vegetables watering", method=method).episodes[0]
    assert best.session_id == "garden"
    assert [fact.text for fact in best.facts] == ["Vegetables need watering."]


def test_deprecated_and_expired_entries_are_hidden(world):
    """What is deprecated, archived or past its time shows up only when asked for."""
    world.entry("memory", "The wifi password hint is blue whale", status="deprecated")
    world.entry(
        "memory",
        "The wifi password hint is red fox",
        fields={"Content": "x", "expires_at": "2026-05-02T00:00:00+00:00"},
    )
    kept = world.entry("memory", "The wifi password hint is green owl")
    assert [hit.entry_id for hit in world.ask("wifi password hint").memories] == [kept]
    assert len(world.ask("wifi password hint", include_hidden=True).memories) == 2


def test_as_of_forgets_what_came_later(world):
    """A question as of a day sees nothing said after it."""
    result = world.ask("backup tomatoes", as_of=datetime(2026, 5, 10, tzinfo=UTC), evidence=10)
    assert {item.session_id for item in result.evidence} == {"garden"}


def test_scores_are_ordered_and_bounded(world):
    """Every list is best first, every score lies in 0..1, and min_score cuts by what is shown."""
    for method in ("keyword", "vector", "hybrid"):
        result = world.ask("tomatoes in good soil", method=method, evidence=10)
        for scores in ([hit.score for hit in result.episodes], [item.score for item in result.evidence]):
            assert scores == sorted(scores, reverse=True)
            assert all(0 <= score <= 1 for score in scores)
        cut = world.ask("tomatoes in good soil", method=method, evidence=10, min_score=0.5)
        assert all(item.score >= 0.5 for item in cut.evidence) and all(
            hit.score >= 0.5 for hit in cut.episodes
        )
    assert world.ask("tomatoes", method="vector", radius=1.0).episodes == ()


def test_answers_do_not_change_between_calls(world):
    """The same question over the same rows gives the same answer."""
    first, second = (world.ask("tomatoes piano port", evidence=7, explain=True) for _ in range(2))
    assert first == second


def test_explain_shows_the_legs(world):
    """On request a hit says what each leg and prior gave; without it nothing is added."""
    result = world.ask("tomatoes soil", explain=True, evidence=1)
    assert {"cosine", "bm25", "fit"} <= set(result.episodes[0].explain)
    assert "part.cosine" in result.evidence[0].explain
    assert "explain" in result.as_data()["evidence"][0]
    assert world.ask("tomatoes soil").episodes[0].explain is None


def test_a_token_budget_bounds_the_answer(world):
    """Whole items only, evidence first, never more than the budget."""
    for budget in (0, 10, 25, 60, 1000):
        result = world.ask("tomatoes port", evidence=10, token_budget=budget)
        spent = sum(tokens_of(f"{e.sender_name}: {e.text}") for e in result.evidence)
        spent += sum(tokens_of(hit.text) for hit in result.hits)
        assert spent <= budget
    assert result.evidence and result.episodes


def test_top_k_bounds_each_list_and_evidence_stands_beside_it(world):
    """E114: top_k counts hits of one list; evidence has its own number; neither pads."""
    for number in range(15):
        world.entry("episode", f"Tomatoes again, day {number}.")
    assert len(world.ask("tomatoes", top_k=3).episodes) == 3
    assert len(world.ask("tomatoes").episodes) == 10
    both = world.ask("tomatoes", top_k=1, evidence=4)
    assert len(both.episodes) == 1 and len(both.evidence) == 4
    assert world.ask("zeppelin", method="keyword", top_k=5, evidence=5).episodes == ()


def test_radius_bounds_meaning_but_not_words(world):
    """A row that shares a word is a hit whatever the radius; under vector the radius alone decides."""
    assert world.ask("tomatoes", radius=1.0).episodes
    assert world.ask("tomatoes", radius=1.0, method="vector").episodes == ()
    near = world.ask("tomatoes", radius=0.0, method="vector").episodes
    cut = world.ask("tomatoes", radius=near[0].score - 1e-4, method="vector").episodes
    assert [hit.id for hit in cut] == [near[0].id]


def test_profile_comes_when_asked(world):
    """include_profile adds the owner's profile, whatever the question."""
    world.entry("profile", "Alice gardens.", fields={"summary": "Alice gardens.", "body": "Alice gardens."})
    assert world.ask("quantum chromodynamics").profiles == ()
    [profile] = world.ask("quantum chromodynamics", include_profile=True).as_data()["profiles"]
    assert profile["profile_data"]["summary"] == "Alice gardens."


def test_open_messages_only_for_a_plain_session_of_the_owner(world):
    """E114: un-extracted messages come only with a plain top-level session_id, and only to who takes part."""
    waiting = [Message("alice", "user", 1, "not extracted yet", id="m1")]
    asked: list[str] = []

    def unprocessed(space, session, limited_to):
        asked.append(session)
        return waiting

    searcher = world.searcher(unprocessed=unprocessed)

    def ask(user, where):
        return searcher.search(
            SearchRequest("hello", Scope(Space(), "user", user), filters=where)
        ).unprocessed_messages

    assert ask("alice", {"session_id": "s9"}) == tuple(waiting)
    assert ask("mallory", {"session_id": "s9"}) == ()
    assert ask("alice", {"AND": [{"session_id": "s9"}]}) == () and ask("alice", None) == ()
    assert asked == ["s9", "s9"]
    data = searcher.search(SearchRequest("hello", ALICE, filters={"session_id": "s9"})).as_data()
    [item] = data["unprocessed_messages"]
    assert item["session_id"] == "s9" and item["timestamp"].startswith("1970-01-01T00:00:00.001")


def test_strong_reads_wait_and_say_when_they_cannot(world):
    """E86: strong consistency and min_lsn wait for the index; a wait that ends in vain is an error."""
    waited: list[tuple] = []

    def wait(lsn, seconds, scope, embed):
        waited.append((lsn, seconds, scope.owner, embed))
        return lsn != 99

    searcher = world.searcher(wait=wait)
    searcher.search(SearchRequest("tomatoes", ALICE, consistency="strong"))
    searcher.search(SearchRequest("tomatoes", ALICE, min_lsn=7, wait_seconds=2))
    searcher.search(SearchRequest("tomatoes", ALICE))
    assert waited == [(None, 10.0, "alice", True), (7, 2, "alice", True)]
    with pytest.raises(Unavailable, match="change 99"):
        searcher.search(SearchRequest("tomatoes", ALICE, min_lsn=99))


def test_a_rebuilding_index_is_answered_from_a_scan(world):
    """E85, C10: while the index is rebuilt, a scan of the notes answers and the answer says so."""
    empty = SearchWorld(world.folder / "elsewhere")

    def scanned(scope):
        page = world.index.page(scope, ["episode", "message"], limit=100)
        return ScannedScope(scope, world.index.rows(scope, page.rowids), troubles=["one cannot be read"])

    searcher = empty.searcher(freshness=lambda _: Freshness(3, 5, "rebuilding"), fallback=scanned)
    result = searcher.search(SearchRequest("tomatoes", ALICE, method="keyword"))
    assert result.episodes[0].session_id == "garden"
    assert result.freshness.state == "rebuilding" and "scan" in result.freshness.notes[0]
    assert (result.freshness.lsn, result.freshness.pending) == (3, 5), "how far it is behind"
    assert "one cannot be read" in result.freshness.notes
    empty.close()


def test_without_a_model_search_is_lexical_and_says_so(world):
    """A26, C10: no embedder means words alone, for every method, with a note."""
    searcher = world.searcher(embedder=lambda: None)
    for method in ("vector", "hybrid"):
        result = searcher.search(SearchRequest("tomatoes", ALICE, method=method, evidence=3))
        assert result.episodes[0].session_id == "garden" and result.evidence
        assert "words alone" in result.freshness.notes[0]
    assert searcher.search(SearchRequest("tomatoes", ALICE, method="keyword")).freshness.notes == ()


def test_vectors_of_another_model_are_not_compared(world):
    """A83: rows embedded by another model count as not embedded; a failing embedder leaves the words."""

    class Other(Embedder):
        id, dimensions = "other/3", 3

        def embed(self, texts):
            raise AssertionError("must not be asked")

    class Failing(Embedder):
        id, dimensions = world.model.id, 256

        def embed(self, texts):
            raise Unavailable("the service is down")

    for embedder, note in ((Other(), "current model"), (Failing(), "service is down")):
        result = world.searcher(embedder=lambda e=embedder: e).search(SearchRequest("tomatoes", ALICE))
        assert result.episodes and note in result.freshness.notes[0]


def test_query_vectors_are_remembered(world):
    """The same question is embedded once."""
    calls: list[int] = []

    class Counting(Embedder):
        id, dimensions = world.model.id, 256

        def embed(self, texts):
            calls.append(len(texts))
            return world.model.embed(texts)

    counting = Counting()
    searcher = world.searcher(embedder=lambda: counting)
    for _ in range(3):
        searcher.search(SearchRequest("tomatoes", ALICE))
    assert calls == [1]


class ScriptedWriter:
    id = "scripted"

    def __init__(self, *answers):
        self.answers = list(answers)
        self.prompts: list[str] = []

    def complete(self, system, prompt, schema, *, purpose):
        self.prompts.append(prompt)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Completion(answer)


def test_agentic_asks_again_until_it_suffices(world):
    """The model sees what was found, asks for what is missing, and stops when nothing is."""
    writer = ScriptedWriter(
        {"sufficient": False, "queries": ["PostgreSQL port backup.env"]}, {"sufficient": True, "queries": []}
    )
    searcher = world.searcher(writer=writer)
    result = searcher.search(SearchRequest("tomatoes", ALICE, method="agentic", evidence=5))
    assert {hit.session_id for hit in result.episodes} == {"garden", "office"}
    assert any("5433" in item.text for item in result.evidence)
    assert len(writer.prompts) == 2 and "planted tomatoes" in writer.prompts[0]
    assert result.method == "agentic"


def test_agentic_is_bounded_and_survives_its_model(world):
    """Rounds are bounded; without a model, or with one in trouble, the hybrid answer stands and says so."""
    endless = ScriptedWriter(*({"sufficient": False, "queries": [f"thing {n}"]} for n in range(50)))
    world.searcher(writer=endless).search(SearchRequest("tomatoes", ALICE, method="agentic"))
    assert len(endless.prompts) == 2
    broken = world.searcher(writer=ScriptedWriter(Unavailable("no budget left")))
    result = broken.search(SearchRequest("tomatoes", ALICE, method="llm_multiround"))
    assert result.episodes and "no budget left" in result.freshness.notes[0]
    assert "no model" in world.ask("tomatoes", method="agentic").freshness.notes[0]


def test_rerank_uses_the_model_or_says_it_did_not(world):
    """enable_llm_rerank orders episodes by the model; scores stay in order."""
    plain = world.ask("tomatoes port backup")
    writer = ScriptedWriter({"order": [2]})
    request = SearchRequest("tomatoes port backup", ALICE, enable_llm_rerank=True)
    turned = world.searcher(writer=writer).search(request)
    assert [h.entry_id for h in turned.episodes] == [h.entry_id for h in plain.episodes][::-1]
    assert [h.score for h in turned.episodes] == [h.score for h in plain.episodes]
    assert "not reranked" in world.ask("tomatoes", enable_llm_rerank=True).freshness.notes[0]


def test_governed_hits_are_reported_for_access_counting(world):
    """A80: every returned memory is reported once, and only those returned."""
    kept = world.entry("memory", "Prefers Slack over e-mail")
    world.entry("memory", "Has a cat named Tom")
    told: list = []
    searcher = world.searcher(on_hits=lambda scope, hits: told.append((scope, [h.entry_id for h in hits])))
    searcher.search(SearchRequest("Slack e-mail", ALICE, method="keyword"))
    assert told == [(ALICE, [kept])]


def test_memories_of_equal_fit_rank_by_their_standing(world):
    """A81, A82: of two memories that fit alike, the important, trusted, pinned one comes first."""
    plain = world.entry(
        "memory",
        "Deploys happen on Friday evening",
        fields={"Content": "x", "importance": "low", "confidence": "0.2"},
    )
    kept = world.entry(
        "memory", "Deploys happen on Friday evening",
        fields={"Content": "x", "importance": "high", "confidence": "0.9", "pinned": "true"},
    )  # fmt: skip
    assert [hit.entry_id for hit in world.ask("when do deploys happen").memories] == [kept, plain]


def test_memories_that_repeat_each_other_make_room(world):
    """A82: among more memories than asked for, a different one is preferred to the fifth copy."""
    for n in range(6):
        world.entry("memory", f"The staging server is called heron {n}")
    other = world.entry("memory", "The staging server runs Debian with nightly snapshots")
    found = [hit.entry_id for hit in world.ask("staging server", top_k=3).memories]
    assert other in found and len(found) == 3


def test_a_very_long_question_costs_little(world):
    """A 4,000-word question is cut to its rarest terms and still answered."""
    result = world.ask(
        " ".join(f"filler{n}" for n in range(4000)) + " tomatoes soil", evidence=3, method="keyword"
    )
    assert result.evidence and "tomatoes" in " ".join(item.text for item in result.evidence)


def test_many_threads_share_a_searcher(world):
    """Eight threads ask one searcher at once and all get the answer one gets alone."""
    searcher = world.searcher()
    expected = searcher.search(SearchRequest("tomatoes soil", ALICE, evidence=5))
    found: list = []
    threads = [
        threading.Thread(
            target=lambda: found.append(searcher.search(SearchRequest("tomatoes soil", ALICE, evidence=5)))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("寿司", "昨日は寿司を食べました"),
        ("北京", "我下个月搬到北京"),
        ("Москва", "Мы едем в Москва летом"),
        ("cafe", "We met at the Café Central"),
        ("getUserName", "the bug is in getUserName()"),
        ("user_name", "rename user_name to login"),
        ("src/app/main.py", "see src/app/main.py line 4"),
        ("main.py", "see src/app/main.py line 5"),
        ("userName", "rename user_name to login id"),
        ("3.11.7", "we are on Python 3.11.7 now"),
        ("jo.smith@example.org", "write to jo.smith@example.org"),
        ("Tomas", "ask Tomás about it"),
        ("Tomás", "ask Tomas about that"),
        ("strasse", "in der Langen Straße 4"),
        ("МОСКВА", "погода: москва, дождь"),
        ("🦊", "our logo is a 🦊 now"),
        ("C++", "the parser is written in C++"),
        ("1140 euros", "the rent is 1,140 euros"),
        ('"exit code" AND (2 OR db0)', "The nightly backup of db0 fails with exit code 2."),
    ],
)
def test_every_script_is_found_unconfigured(world, asked, found):
    """Two-character words, other scripts, accents and code names are found by plain keyword search."""
    world.say("extra", [("alice", "Nothing to see here"), ("alice", found)])
    assert found in [item.text for item in world.ask(asked, method="keyword", evidence=3).evidence]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(min_size=1, max_size=80))
def test_no_text_breaks_search(world, text):
    """Whatever is asked, there is an answer or a named refusal."""
    try:
        result = world.ask(text, evidence=3)
    except Invalid:
        assert not text.strip()
    else:
        assert all(0 <= hit.score <= 1 for hit in result.hits)


def test_injection_says_nothing_rather_than_junk(tmp_path):
    """for_injection keeps what is surely about the question and nothing else."""
    folder = minilm.installed(config.models_dir())
    if folder is None:
        pytest.skip("the local model is not installed: run `make setup`")
    world = SearchWorld(tmp_path, MiniLM(folder, threads=1))
    world.say("garden", GARDEN)
    world.say("office", OFFICE)
    for query in (
        "Which port does PostgreSQL listen on?",
        "Who purchased a musical instrument?",
        "tomato plants",
    ):
        result = world.ask(query, for_injection=True, evidence=3)
        assert result.evidence and result.episodes
    junk = (
        "Write a haiku about submarines",
        "What is the capital of Mongolia?",
        "Explain the Krebs cycle",
        "ok",
        "thanks!",
    )
    for query in junk:
        result = world.ask(query, for_injection=True, evidence=5)
        assert result.hits == () and result.evidence == ()
    world.close()


def test_fit_is_absolute():
    """Either leg can carry alone, both together carry further, and neither means nothing."""

    def fit(cosine, covered, late=0.0):
        near = None if cosine is None else np.array([cosine], np.float32)
        return float(fits_of(near, np.array([covered], np.float32), np.array([late], np.float32))[0])

    assert fit(0.0, 0.0) < 0.01 and fit(None, 1.0) == 1
    assert fit(0.7, 0.0) > 0.6 and fit(0.1, 1.0) > 0.6
    assert fit(0.7, 1.0) == pytest.approx(1, abs=0.01)
    assert fit(0.4, 0.3, 0.7) > fit(0.4, 0.3, 0.2), (
        "what the word pieces say counts where they were looked at"
    )
    near, covered = np.array([0.35, 0.35], np.float32), np.array([0.3, 0.3], np.float32)
    short, long = fits_of(near, covered, length=np.array([12, 300])).tolist()
    assert short > long, "a long text holds more of anything by chance"
    assert fits_of(near, covered, is_named=True)[0] > short, "who is named here is rather meant here"
    values = [fit(float(c), 0.3) for c in np.linspace(-1, 1, 50)]
    assert values == sorted(values)
    rare, common = (fit_by_words("owl cat", text, {"cat": 2000}) for text in ("an owl at night", "a cat"))
    assert rare > 0.85 and common < 0.1 and fit_by_words("owl", "an owl", {}) == 1
    assert falling([0.25, 0.75, 0.25, 0.0]) == [0.5, 0.5, 0.25, 0.0] and falling([]) == []


def test_a_vector_that_arrives_does_not_reload_the_words(world):
    """Right after a bulk write vectors come in for seconds; the words held in memory stay as they are."""
    world.ask("tomatoes")
    held = world.index._held(ALICE).words
    new = world.index.apply([])
    world.index.put_vectors([*_all_pending(world, "garden")], {})
    assert world.index.version() > new
    assert world.index._held(ALICE).words is held
    world.entry("episode", "A walnut tree was cut down.")
    assert world.index._held(ALICE).words is not held
    assert world.ask("walnut", method="keyword").episodes


def _all_pending(world, session):
    """The rows of a session as if their vectors were still to come."""
    from cairn.index.corpus import Pending

    rows = world.index._db.read(
        lambda db: db.execute(
            "SELECT id, embed_key, text FROM rows WHERE session_id = ?", (session,)
        ).fetchall()
    )
    return [Pending(*row) for row in rows]
