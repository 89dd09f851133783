"""Passages: long texts are cut, found, shown and paid for by the stretch that matters."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cairn
from cairn.engines.embedders import HashingEmbedder
from cairn.index.corpus import KIND_CODES
from cairn.language.sentences import PASSAGE_BYTES, passages
from cairn.operations.recalling import prompt
from cairn.retrieval.answers import SearchResult, shortened, tokens_of, within_budget
from cairn.retrieval.rank import late_matches
from cairn.retrieval.search import SearchRequest
from cairn.seams.models import TokenVectors
from tests.world import ALICE, SearchWorld

FILLER = "The meeting went on about the budget of the second quarter and nothing was decided there. "
NEEDLE = "The spare key of the boathouse hangs behind the green oar."
LONG = FILLER * 40 + "\n\n" + NEEDLE + "\n\n" + FILLER * 40


@given(st.text(max_size=4000), st.integers(8, 900))
def test_passages_are_the_whole_text_in_order(text, size):
    """Nothing is lost or said twice, none is empty, and a cut never depends on anything but the text."""
    found = passages(text, size)
    assert "".join(text[start:end] for start, end in found) == text
    assert all(end > start for start, end in found) or text == ""
    assert found == passages(text, size)


def test_passages_end_where_the_text_pauses():
    """Paragraphs stay whole where they can; no passage is much longer than was asked for."""
    text = "\n\n".join("Sentence one is here. " * 12 for _ in range(12))
    found = passages(text)
    assert len(found) > 2
    assert all(end - start <= PASSAGE_BYTES * 4 // 3 for start, end in found)
    assert all(text[end - 1].isspace() for _, end in found[:-1])
    assert passages("short") == [(0, 5)]


@pytest.fixture
def world(tmp_path):
    made = SearchWorld(tmp_path)
    yield made
    made.close()


def test_a_long_message_is_found_and_shown_by_the_passage_that_answers(world):
    """Evidence is the passage with its place in the whole, and the message's id for the rest."""
    world.say("s1", [("alice", LONG), ("alice", "We had soup for lunch."), ("alice", "The oar is green.")])
    found = world.ask("where is the spare key of the boathouse", evidence=3).evidence
    assert found[0].message_id == "m_s1_0"
    assert NEEDLE in found[0].text
    assert len(found[0].text) < 2 * PASSAGE_BYTES
    start, end, of = found[0].passage
    assert LONG[start:end].strip() == found[0].text
    assert of == len(LONG)
    assert [item.message_id for item in found].count("m_s1_0") == 1


def test_a_long_entry_is_found_by_a_passage_of_it(world):
    """A document's later words are found although only its beginning fits into one vector."""
    world.entry("memory", "We had soup for lunch on Monday")
    world.entry("memory", LONG)
    assert NEEDLE in world.ask("spare key of the boathouse").memories[0].text
    corpus = world.index.corpus(ALICE)
    assert (corpus.kind == KIND_CODES["passage"]).any()
    assert corpus.has_vector.all()


def test_an_answer_is_kilobytes_however_long_the_talk_was(world):
    """Long episodes come as summary and the best of what was said; their length says what is left out."""
    world.say("s1", [("alice", LONG + f" part {n}") for n in range(40)])
    result = world.ask("where is the spare key of the boathouse")
    assert len(json.dumps(result.as_data())) < 16_000
    [episode] = result.as_data()["episodes"]
    assert NEEDLE in episode["episode"]
    assert episode["episode_length"] > 200_000


def test_a_budget_passes_over_what_does_not_fit_and_is_never_empty_where_something_fits(world):
    """Evidence that is too long is skipped for what fits; where none fits the best of it is shortened."""
    world.say("s1", [("alice", LONG), ("alice", "The boathouse key is spare.")])
    result = world.ask("where is the spare key of the boathouse", evidence=2)
    texts = [item.text for item in within_budget(result, 20).evidence]
    assert texts == ["The boathouse key is spare."]
    long = max(result.evidence, key=lambda item: len(item.text))
    only = within_budget(SearchResult(evidence=(long,)), 12).evidence
    assert only[0].text.endswith("…")
    assert tokens_of(only[0].text) <= 12
    assert within_budget(SearchResult(evidence=(long,)), 2).evidence == ()
    for budget in (60, 120, 400):
        text = prompt(result, budget=budget)
        assert text
        assert tokens_of(text) <= budget


@given(st.text(max_size=400), st.integers(0, 60))
def test_a_shortened_text_fits(text, budget):
    """Never over the budget, and the whole text where that fits."""
    found = shortened(text, budget)
    assert tokens_of(found) <= max(budget, 0)
    assert found == text or tokens_of(text) > budget


def test_late_interaction_finds_the_word_in_its_place():
    """Each piece of the question takes its best match; a row without pieces has none."""
    pieces = np.eye(4, 64, dtype=np.int8) * 127
    asked = TokenVectors(pieces[:2], np.array([3.0, 1.0], np.float32))
    rows = [pieces[:1], pieces[:2], None, pieces[2:], np.zeros((0, 64), np.int8)]
    scores = late_matches(asked, rows) @ (asked.weights / asked.weights.sum())
    assert scores.tolist() == pytest.approx([0.75, 1.0, 0.0, 0.0, 0.0])


def test_late_interaction_is_exact_however_much_is_matched():
    """Rows are matched some at a time, whole numbers all along: the answer is that of one product over all of them."""
    numbers = np.random.default_rng(7)
    asked = TokenVectors(numbers.integers(-127, 128, (40, 64), np.int8), np.ones(40, np.float32))
    rows = [numbers.integers(-127, 128, (count, 64), np.int8) for count in (1, 700, 90, 3, 512)]
    whole = [(row.astype(np.int64) @ asked.vectors.astype(np.int64).T).max(axis=0) for row in rows]
    assert (late_matches(asked, rows) == np.array(whole, np.float32) / np.float32(127 * 127)).all()


class Spelling(HashingEmbedder):
    """Vectors of words and, as word pieces, of single letters' counts: the protocol of the local model."""

    token_dimensions = 64

    def embed_tokens(self, texts):
        pieces = []
        for text in texts:
            vectors = np.zeros((len(text.split()), 64), np.int8)
            for row, word in enumerate(text.split()):
                vectors[row, sum(map(ord, word.casefold().strip(".?"))) % 64] = 127
            pieces.append(TokenVectors(vectors, np.ones(len(vectors), np.float32)))
        return self.embed(texts), pieces

    def grasps(self, text):
        return float(text.isascii())


def test_word_pieces_are_kept_by_row_and_go_with_it(tmp_path):
    """The index gives them by row and scope, and nothing of them stays when their row went."""
    world = SearchWorld(tmp_path, Spelling(256))
    world.say("s1", [("alice", "The key hangs behind the oar"), ("alice", LONG)])
    waiting = world.index.pending(100)
    assert not waiting
    corpus = world.index.corpus(ALICE)
    rows = world.index.find(ALICE, ["m_s1_0"])
    [(rowid, pieces)] = world.index.token_vectors(ALICE, [rows[0].rowid]).items()
    assert rowid == rows[0].rowid
    assert pieces.shape == (6, 64)
    assert world.index.token_vectors(cairn.types.Scope(ALICE.space, "user", "other"), [rowid]) == {}
    result = world.searcher().search(SearchRequest("behind the oar", ALICE, evidence=1, explain=True))
    assert result.evidence[0].explain["part.late"] != 0
    world.index.apply([], removed=corpus.rowid.tolist())
    world.index.scrub()
    left = world.index.database.read(lambda db: db.execute("SELECT count(*) FROM v.tokens").fetchone()[0])
    assert left == 0
    world.close()


def test_a_book_among_the_messages_costs_a_search_no_more_than_a_page(tmp_path):
    """Of a text of hundreds of passages only those that speak best to the question are matched piece by piece."""

    class Counted:
        def __init__(self, index):
            self.index, self.looked_at = index, 0

        def __getattr__(self, name):
            return getattr(self.index, name)

        def token_vectors(self, scope, rowids):
            self.looked_at += len(rowids)
            return self.index.token_vectors(scope, rowids)

    world = SearchWorld(tmp_path, Spelling(256))
    world.say("s1", [("alice", FILLER * 1500 + NEEDLE + FILLER * 1500), ("alice", "Soup for lunch.")])
    assert len(world.index.corpus(ALICE)) > 300
    world.asked = counted = Counted(world.index)
    found = world.ask("where is the spare key of the boathouse", evidence=1).evidence
    assert NEEDLE in found[0].text
    assert 0 < counted.looked_at < 80
    world.close()


def test_a_script_without_meaning_is_answered_by_its_words(tmp_path):
    """Where the model has no words for the question, what is near by it counts for nothing."""
    world = SearchWorld(tmp_path, Spelling(256))
    world.say("s1", [("alice", "ключ висит за веслом"), ("alice", "мы ели суп")])
    result = world.ask("где ключ", evidence=2, explain=True)
    assert result.evidence[0].text == "ключ висит за веслом"
    assert "cosine" not in result.evidence[0].explain
    assert world.ask("where is the key", evidence=2, explain=True).evidence[0].explain["cosine"] is not None
    world.close()


def test_passages_through_a_real_root(tmp_path):
    """add, flush, search, show: the passage answers, and its id gives the whole message."""
    with cairn.open_blocking(tmp_path, embedding__provider="hashing") as memory:
        memory.add(
            "s1", [{"sender_id": "ann", "role": "user", "timestamp": 1_760_000_000_000, "content": LONG}]
        )
        memory.flush("s1")
        result = memory.search("spare key of the boathouse", user_id="ann", evidence=1, consistency="strong")
        assert NEEDLE in result.evidence[0].text
        shown = memory.show(result.evidence[0].message_id)
        assert LONG.strip() in json.dumps(shown, ensure_ascii=False, default=str).replace("\\n", "\n")
        small = memory.search(
            "spare key of the boathouse", user_id="ann", evidence=3, token_budget=30, for_injection=True
        )
        assert small.evidence
