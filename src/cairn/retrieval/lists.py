"""Makes the lists of an answer for one scope: episodes with their facts, entries, verbatim messages.

Every list goes the same way: scores (`rank`), the rules that drop a row (filters, small talk, the bar of a prompt), the
best of them looked at word piece by word piece, and how well each fits, which is what is shown.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cairn.index import filters
from cairn.index.corpus import (
    AGENT_DOCUMENTS,
    ENDED,
    HIDDEN,
    NUMBERS,
    SKILL_FILE,
    Corpus,
    Row,
    SearchIndex,
)
from cairn.language import asking, words
from cairn.language.sentences import PASSAGE_BYTES, passages
from cairn.notes.format import list_items
from cairn.retrieval import rank
from cairn.retrieval.answers import SearchRequest
from cairn.retrieval.fitting import (
    beside,
    expired,
    falling,
    fits_of,
    fits_of_kept,
    moment_of,
    says_nothing,
    standing,
)
from cairn.seams.models import TokenVectors
from cairn.types import Evidence, Hit, Scope

if TYPE_CHECKING:
    import numpy as np


_FACTS_PER_EPISODE = 5
_ROWS_KEPT = 4096
_PIECES_KEPT = 2000
_MOST_ASKED = 64
# A name that is said three times stands in so many rows: the messages, their episodes and what was made of them.
_ROWS_OF_A_NAME = 9
_EXCERPT_CHARS, _EXCERPT_MESSAGES = 2 * PASSAGE_BYTES, 3
GAP = "[…]"
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_NONE: Mapping[int, Any] = MappingProxyType({})
# Which kinds of rows a list holds, where that is more than its own.
ROWS_SHOWN_AS = {"agent_document": AGENT_DOCUMENTS, "agent_skill": ("agent_skill", SKILL_FILE)}


@dataclass(frozen=True, slots=True)
class _Ranked:
    """A row in the order of its list: its place in the corpus and among the rows that were ranked, and how well it did.

    `share` compares it with the best of its list by the evidence that ranked them, `fit` says how well it answers, and
    `score` what is shown of that.
    """

    position: int
    place: int
    share: float
    fit: float
    score: float
    row: Row


@dataclass(frozen=True, slots=True)
class _Gate:
    """What verbatim messages have to pass on their way into a prompt: the best of them by rank, and by fit."""

    score: float
    fit: float

    def lets(self, score: float, fit: float, least: float) -> bool:
        """Whether a message passes; where the best does not, none does.

        An answer may share nothing with the question it follows; it passes on the strength of its rank.
        """
        share = score / self.score if self.score > 1e-6 else float(score >= self.score)
        return self.fit >= least and (fit >= 0.6 * least or self.fit * share >= least)


@dataclass(frozen=True, slots=True)
class ScopeQuestion:
    """A question ready for one scope, and the lists of its answer.

    Attributes:
        request: What was asked, checked.
        scope: Whose memory.
        method: By words, by meaning, or both.
        count: The most hits of a list.
        where: The caller's filter.
        index: What answers.
        corpus: The rows that are looked at.
        question: The query as it is read there.
        legs: How near each row is by words and by meaning.
        allowed: Which rows may be shown.
        speaks: Which rows say anything to the question: a shared word, or a meaning near enough.
        now: The time of asking.
        zone: The time zone of days.
        least: How well a row has to fit to go into a prompt.
        words_asked: How many words of the question say something.
        trust: How far nearness is believed.
        pieces: The word pieces of the question, in the voice of whom it is about; None where nothing is matched by them.
        part: For each row the place of the passage of it that speaks best to the question.
        worth: How well each row and each passage speaks to it, by meaning and words together.
        weights: What each word of the question counts for that says something.
        covered: Which share of the question's words each row holds.
        late: How well its word pieces match, where it was looked at.
        ease: How much sooner a row is believed for the size of the memory.
        anew: How much sooner what was said is believed, where somebody asks about themself.
        has_blanks: Whether the question's language writes blanks between words.
        doubt: How much later for words that the memory never heard.
        by_name: How far each row is near by a name alone; None where none is.
        idle: Small talk on its way into a prompt: there is nothing to look for.
    """

    request: SearchRequest
    scope: Scope
    method: str
    count: int
    where: filters.Group
    index: SearchIndex
    corpus: Corpus
    question: rank.Question
    legs: rank.Legs
    allowed: np.ndarray
    speaks: np.ndarray
    now: datetime
    zone: tzinfo
    least: float
    words_asked: int
    trust: float
    pieces: TokenVectors | None
    part: np.ndarray
    worth: np.ndarray
    weights: Mapping[str, float]
    covered: np.ndarray
    late: np.ndarray
    ease: float
    anew: float
    has_blanks: bool
    doubt: float
    by_name: np.ndarray | None
    idle: bool

    @property
    def by_cosine(self) -> np.ndarray | None:
        """What rows are ranked by where only meaning was asked for; None where more was."""
        return self.legs.cosine if self.method == "vector" else None

    def message_scores(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The ranking of the messages; where the question asks why, the best of them are read for it."""
        import numpy as np

        scores, parts = self._matched()
        if self.question.wants_reason and self.by_cosine is None:
            talk = rank.talk_of(self.corpus, self.zone)
            best = rank.top(scores, rank.READ_FOR_REASONS, self.allowed[talk.at])
            given = [asking.reason_given(text) for text in self._texts(talk.at[best])]
            reasons = np.zeros(len(scores), np.float32)
            reasons[best] = np.float32(rank.WEIGHTS["reason"]) * np.array(given, np.float32)
            scores, parts = scores + reasons, {**parts, "reason": reasons}
        return scores, parts

    def _matched(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The ranking of the messages; the best of them are looked at word piece by word piece."""
        import numpy as np

        scores, parts = rank.message_scores(self.corpus, self.legs, self.question, zone=self.zone)
        pieces = self.pieces
        if pieces is None or not len(scores) or self.method == "vector":
            return scores, parts
        talk = rank.talk_of(self.corpus, self.zone)
        candidates = max(rank.CANDIDATES, 2 * self.request.evidence)
        chosen = np.sort(rank.top(scores, candidates, self.allowed[talk.at]))
        places = rank.with_before(talk, chosen)
        matches = self._late(talk.at[places], pieces)
        if not matches.any():
            return scores, parts
        length = self.corpus.length[self.part[talk.at[places]]]
        late = rank.LateMatches(places, matches, pieces.weights / pieces.weights.sum(), length)
        return rank.reranked(scores, parts, talk, chosen, late)

    def _late(self, at: np.ndarray, pieces: TokenVectors) -> np.ndarray:
        """How the rows at `at` match each piece of the question, each by the best of its passages.

        Of a very long text only the passages that speak best to the question are matched, so that a book among
        the messages costs a search no more than a page. The best passage is noted in `self.part`, how well it matches in all in `self.late`.
        """
        import numpy as np

        corpus = self.corpus
        places, whole = corpus.parts
        inside = np.flatnonzero(np.isin(whole, at)) if len(places) else places
        inside = inside[rank.among_best(whole[inside], self.worth[places[inside]], rank.PASSAGES_MATCHED)]
        every = np.concatenate([at, places[inside]])
        of = np.concatenate([at, whole[inside]])
        rowids = corpus.rowid[every].tolist()
        # Rows without pieces are kept as such: they get some with a vector, and the corpus is another one then.
        kept: dict[int, np.ndarray | None] = corpus.derived.setdefault("pieces", {})
        missing = [rowid for rowid in rowids if rowid not in kept]
        if len(kept) + len(missing) > _PIECES_KEPT:
            kept = corpus.derived["pieces"] = {}
            missing = rowids
        if missing:
            found = self.index.token_vectors(self.scope, missing)
            kept.update((rowid, found.get(rowid)) for rowid in missing)
        matches = rank.late_matches(pieces, [kept[rowid] for rowid in rowids])
        scores = matches @ (pieces.weights / pieces.weights.sum())
        best = np.zeros(len(corpus), np.float32)
        np.maximum.at(best, of, scores)
        chosen = np.zeros(len(corpus), np.int64)
        for number, (place, row, score) in enumerate(
            zip(every.tolist(), of.tolist(), scores.tolist(), strict=True)
        ):
            if score >= best[row]:
                chosen[row] = number
                if score > 0:
                    self.part[row] = place
        self.late[at] = best[at]
        return np.asarray(matches[chosen[at]])

    def _look_closer(self, at: np.ndarray) -> None:
        """Match the entries at `at` with the question word piece by word piece, for how well they fit.

        By meaning alone nothing is ranked or shown by that, unless it is asked for.
        """
        if self.by_cosine is not None and not (self.request.for_injection or self.request.explain):
            return
        if self.pieces is not None and len(at):
            self._late(at, self.pieces)

    def episodes(self, messages: np.ndarray) -> tuple[Hit, ...]:
        import numpy as np

        talk = rank.talk_of(self.corpus, self.zone)
        scores, parts = rank.episode_scores(self.corpus, self.legs, self.question, messages, zone=self.zone)
        touched = self._touched_episodes(talk)
        alone = np.ones(len(talk.episodes), bool)
        alone[talk.episode[talk.episode >= 0]] = False

        def fits(places: np.ndarray) -> np.ndarray:
            # A long text fits by the best of what was said in it; what was written about it counts where nothing was.
            out = np.zeros(len(talk.episodes), np.float32)
            written = places[alone[places]]
            if len(written) < len(places):
                is_asked = np.zeros(len(talk.episodes) + 1, bool)
                is_asked[places] = True
                inside = np.flatnonzero(is_asked[talk.episode])
                np.maximum.at(out, talk.episode[inside], self._fits(talk.at[inside]))
            if len(written):
                self._look_closer(talk.episodes[written])
                out[written] = self._fits(talk.episodes[written])
            return np.asarray(out[places])

        ranked = self._ranked(talk.episodes, scores, self.count, touched=touched, fits=fits)
        hits = self._excerpts(talk, messages, self._hits(ranked[: self.count], parts))
        told = self._with_facts(hits)
        return tuple(told if self.question.wants_former else _current_first(told))

    def _excerpts(
        self, talk: rank.TalkOrder, messages: np.ndarray, hits: Sequence[tuple[int, Hit]]
    ) -> list[tuple[int, Hit]]:
        """Long episodes as their summary and the few things said in them that speak to the question best."""
        import numpy as np

        long = [
            position for position, hit in hits if len(str(hit.fields.get("Content", ""))) > _EXCERPT_CHARS
        ]
        said: dict[int, list[int]] = {}
        for position in long:
            mine = (talk.cell == self.corpus.cell[position]) & (talk.cell >= 0)
            inside = np.flatnonzero(mine & self.allowed[talk.at])
            best = inside[np.argsort(-messages[inside], kind="stable")[:_EXCERPT_MESSAGES]]
            said[position] = [int(talk.at[place]) for place in np.sort(best)]
        wanted = {at for places in said.values() for at in places}
        rowids = [int(self.corpus.rowid[at]) for at in wanted]
        rowids += [int(self.corpus.rowid[self.part[at]]) for at in wanted]
        rows = self._rows(rowids) if rowids else {}
        out = []
        for position, hit in hits:
            if position not in said:
                out.append((position, hit))
                continue
            told = []
            for at in said[position]:
                row = rows.get(int(self.corpus.rowid[at]))
                if row is not None:
                    text, _ = _passage(row, rows.get(int(self.corpus.rowid[self.part[at]]), row))
                    told.append(f"{row.sender_name or ''.join(row.sender_ids)}: {text}")
            whole = str(hit.fields["Content"])
            content = f"\n{GAP}\n".join(told) or whole[: passages(whole)[0].end] + GAP
            heads = [str(hit.fields.get(name, "")) for name in ("Subject", "Summary")]
            text = "\n".join([*(head for head in heads if head and head not in content), content])
            fields = {**hit.fields, "Content": content, "of": len(whole)}
            out.append((position, replace(hit, text=text, fields=fields)))
        return out

    def _touched_episodes(self, talk: rank.TalkOrder) -> np.ndarray:
        """Episodes of which a message or a fact, if not they themselves, speaks to the question."""
        import numpy as np

        out = np.zeros(len(talk.episodes) + 1, bool)  # the last is for what is of none, which is -1
        out[:-1] = self.speaks[talk.episodes]
        out[talk.episode[self.speaks[talk.at]]] = True
        out[talk.fact_episode[(self.speaks & self.allowed)[talk.facts]]] = True
        return out[:-1]

    def _with_facts(self, hits: Sequence[tuple[int, Hit]]) -> list[Hit]:
        """Each episode with the facts of its stretch of talk that speak to the question."""
        import numpy as np

        corpus = self.corpus
        facts = rank.talk_of(corpus, self.zone).facts
        if not len(facts) or not hits:
            return [hit for _, hit in hits]
        facts = facts[(self.speaks & self.allowed)[facts]]
        scores, parts = rank.entry_scores(corpus, self.legs, self.question, facts, zone=self.zone)
        cells = {int(corpus.cell[position]) for position, _ in hits} - {-1}
        near = np.isin(corpus.cell[facts], np.array(sorted(cells), np.int32))
        # The best facts of all these episodes, no more than a few of one: an answer is read, not filed.
        chosen: dict[int, list[int]] = {cell: [] for cell in cells}
        for place in rank.top(scores, 4 * self.count, near):
            of_cell = chosen[int(corpus.cell[facts[place]])]
            if len(of_cell) < _FACTS_PER_EPISODE and sum(map(len, chosen.values())) < 2 * self.count:
                of_cell.append(int(place))
        picked = np.array([place for of_cell in chosen.values() for place in of_cell], np.int64)
        shares = {name: part[picked] for name, part in parts.items()}
        # Each is judged by itself: what is told of an episode is the fact that answers, not the mean of several.
        ranked = sorted(self._ranked(facts[picked], scores[picked], len(picked)), key=lambda one: -one.score)
        found = self._hits(ranked, shares)
        mine: dict[int, list[Hit]] = {}
        for at, fact in found:
            mine.setdefault(int(corpus.cell[at]), []).append(fact)
        return [
            replace(hit, facts=tuple(told)) if (told := mine.get(int(corpus.cell[position]))) else hit
            for position, hit in hits
        ]

    def entries(self, kind: str) -> tuple[Hit, ...]:
        import numpy as np

        kinds = ROWS_SHOWN_AS.get(kind, (kind,))
        at = self.corpus.of_kinds(*kinds)
        if not len(at):
            return ()
        scores, parts = rank.entry_scores(self.corpus, self.legs, self.question, at, zone=self.zone)
        if kind != "memory":
            ranked = self._ranked(at, scores, self.count)
            return tuple(hit for _, hit in self._hits(ranked[: self.count], parts))
        pool = [
            replace(one, share=one.share * worth, score=one.score * worth)
            for one in self._governed(at, scores, max(50, 8 * self.count + 10))
            for worth in [standing(one.row, self.now)]
        ]
        pool.sort(key=lambda one: -one.share)
        if len(pool) > self.count and self.corpus.vectors is not None:
            vectors = self.corpus.vectors[[one.position for one in pool]]
            kept = rank.diverse(np.array([one.share for one in pool], np.float32), vectors, self.count)
            pool = [pool[place] for place in sorted(kept)]
        return tuple(hit for _, hit in self._hits(pool[: self.count], parts))

    def _ranked(
        self,
        at: np.ndarray,
        scores: np.ndarray,
        count: int,
        *,
        touched: np.ndarray | None = None,
        fits: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> list[_Ranked]:
        """The best `count` of the rows at `at`, best first, after every rule that can drop one; a few to spare.

        `fits` says how well those at some places of `at` answer, where that is not judged by the rows' own words and
        meaning.
        """
        if self.idle:
            return []
        usable = self.allowed[at] & (self.speaks[at] if touched is None else touched)
        if self.by_cosine is not None:
            scores = self.by_cosine[at]
        ranked = rank.top(scores, count, usable)
        if fits is None:
            self._look_closer(at[ranked])
        rows = self._rows(self.corpus.rowid[at[ranked]].tolist())
        fitting = fits(ranked) if fits is not None else self._fits(at[ranked])
        best = max(1e-6, float(scores[ranked[0]])) if len(ranked) else 1.0
        out = []
        for place, fit in zip(ranked.tolist(), fitting.tolist(), strict=True):
            row = rows.get(int(self.corpus.rowid[at[place]]))
            if row is None:
                continue
            if self.request.for_injection and (fit < self.least or says_nothing(row.text)):
                continue
            share = max(0.05, float(scores[place]) / best)
            score = fit if self.by_cosine is None else min(1.0, max(0.0, float(scores[place])))
            out.append(_Ranked(int(at[place]), place, share, fit, score, row))
        return out

    def _governed(self, at: np.ndarray, scores: np.ndarray, count: int) -> list[_Ranked]:
        """The best `count` of the governed memories at `at`, those that answer most surely first.

        Each says one thing, so none is told into a prompt but those that answer about as surely as the best one.
        """
        import numpy as np

        if self.idle:
            return []
        usable = self.allowed[at] & self.speaks[at]
        ranked = rank.top(scores if self.by_cosine is None else self.by_cosine[at], count, usable)
        rows = self._rows(self.corpus.rowid[at[ranked]].tolist())
        # They may expire between being indexed and being asked for.
        live = [
            place
            for place in ranked.tolist()
            if (row := rows.get(int(self.corpus.rowid[at[place]]))) is not None and not expired(row, self.now)
        ]
        chosen = np.array(live, np.int64)
        if not live:
            return []
        self._look_closer(at[chosen])
        stand_for = self.corpus.standing_at(at[self.allowed[at]])
        fits = self._fits_kept(
            at[chosen], int(self.allowed[at].sum() if stand_for is None else stand_for.sum())
        )
        best = float(fits.max())
        least = beside(best, self.least)
        out = []
        for place, fit in zip(live, fits.tolist(), strict=True):
            row = rows[int(self.corpus.rowid[at[place]])]
            if self.request.for_injection and (best < self.least or fit < least or says_nothing(row.text)):
                continue
            score = fit if self.by_cosine is None else min(1.0, max(0.0, float(self.by_cosine[at[place]])))
            share = score / max(1e-6, best) if self.by_cosine is None else score
            out.append(_Ranked(int(at[place]), place, max(0.05, share), fit, score, row))
        return out

    def _hits(self, ranked: Sequence[_Ranked], parts: Mapping[str, np.ndarray]) -> list[tuple[int, Hit]]:
        """Ranked rows as (position, hit), with scores that fall in their order."""
        out = []
        for one, shown in zip(ranked, falling([one.score for one in ranked]), strict=True):
            if self.request.min_score is not None and shown < self.request.min_score:
                continue
            explain = (
                self._explained(one.position, parts, one.place, one.fit) if self.request.explain else None
            )
            out.append((one.position, hit_of(one.row, shown, explain)))
        return out

    def _rows(self, rowids: Sequence[int]) -> dict[int, Row]:
        """Rows by rowid. They stay with the corpus, which is another one as soon as a row changes."""
        kept: dict[int, Row] = self.corpus.derived.setdefault("rows", {})
        missing = [rowid for rowid in rowids if rowid not in kept]
        if len(kept) + len(missing) > _ROWS_KEPT:
            kept = self.corpus.derived["rows"] = {}
            missing = list(rowids)
        if missing:
            kept.update((row.rowid, row) for row in self.index.rows(self.scope, missing))
        return {rowid: kept[rowid] for rowid in rowids if rowid in kept}

    def _texts(self, at: np.ndarray) -> list[str]:
        """What is shown of the rows at `at`: of a long one the passage that speaks best to the question."""
        whole, part = self.corpus.rowid[at].tolist(), self.corpus.rowid[self.part[at]].tolist()
        rows = self._rows(list(dict.fromkeys([*whole, *part])))
        return [
            _passage(rows[one], rows.get(other, rows[one]))[0] if one in rows else ""
            for one, other in zip(whole, part, strict=True)
        ]

    def _fits(self, at: np.ndarray) -> np.ndarray:
        """How well the rows at `at` answer, in absolute terms: words covered and nearness, 0..1."""
        near = None if self.legs.cosine is None else self.legs.cosine[at]
        how = self._how(at)
        return fits_of(
            near, self.covered[at], self.late[at], anew=self.anew, has_blanks=self.has_blanks, **how
        )

    def _how(self, at: np.ndarray) -> dict[str, Any]:
        """What else counts in how well the rows at `at` answer."""
        return {
            "length": self.corpus.length[self.part[at]],
            "words_asked": self.words_asked,
            "trust": self.trust,
            "is_named": self.question.is_named,
            "is_for_anyone": self.question.is_for_anyone,
            "ease": self.ease,
            "doubt": self.doubt,
            "by_name": None if self.by_name is None else self.by_name[at],
        }

    def _fits_kept(self, at: np.ndarray, kept: int) -> np.ndarray:
        """How well the governed memories at `at` answer, the best of `kept`: by words alone where only these are known."""
        import numpy as np

        by_words = fits_of(None, self.covered[at], **self._how(at))
        if self.legs.cosine is None:
            return by_words
        flags = self.corpus.flags[at]
        lacking = self.question.wants_number & (flags & NUMBERS == 0)
        read = asking.read(self.request.query)
        if read.wants_name:
            lacking = lacking | ~np.array(
                [asking.names_another(self.request.query, one) for one in self._texts(at)], bool
            )
        near = fits_of_kept(
            self.legs.cosine[at],
            self.covered[at],
            self.late[at],
            rows=kept,
            length=self.corpus.length[self.part[at]],
            lacking=lacking,
            is_for_anyone=self.question.is_for_anyone,
            of_person=self.scope.track == "user",
            by_name=None if self.by_name is None else self.by_name[at],
        )
        known = self.trust * self.corpus.has_vector[at]
        return np.asarray(known * near + (1.0 - known) * by_words, np.float32)

    def _explained(
        self, position: int, parts: Mapping[str, np.ndarray], place: int, fitting: float
    ) -> dict[str, float]:
        out = {f"part.{name}": round(float(values[place]), 4) for name, values in parts.items()}
        if self.legs.cosine is not None:
            out["cosine"] = round(float(self.legs.cosine[position]), 4)
        if self.legs.bm25 is not None:
            out["bm25"] = round(float(self.legs.bm25[position]), 4)
        out["fit"] = round(fitting, 4)
        return out

    def whole_documents(self, kinds: Sequence[str]) -> tuple[Hit, ...]:
        """The owner's profile, or an agent's documents, whatever the question: asked for, not searched."""
        if self.where:
            return ()
        at = self.corpus.of_kinds(*kinds)
        rows = self.index.rows(self.scope, self.corpus.rowid[at[self.allowed[at]]].tolist())
        return tuple(hit_of(row, 1.0, None) for row in rows)

    def verbatim(self, scores: np.ndarray, parts: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The best messages, as many as were asked for, and beside them the best of those that are in no episode yet."""
        import numpy as np

        count = self.request.evidence
        talk = rank.talk_of(self.corpus, self.zone)
        if not len(talk) or self.idle:
            return {"evidence": () if count else None}
        if self.by_cosine is not None:
            scores = self.by_cosine[talk.at]
        usable, speaks = self.allowed[talk.at], self.speaks[talk.at]
        loud = usable
        if self.legs.cosine is None:
            loud = usable & (speaks | (talk.before(speaks.astype(np.float32)) > 0))
        lists = self.question.wants_several and self.by_cosine is None and len(talk.starts) > 1
        best = rank.top(scores, max(rank.READ_FOR_ENDS, 3 * count if lists else count), loud)
        first = int(best[0]) if len(best) else -1
        chosen = rank.spread(best.tolist(), scores, talk, count) if lists else best[:count].tolist()
        if self.by_cosine is None:
            older = self.question.wants_former
            near = self._near(talk, chosen)
            chosen, scores = rank.newer_first(chosen, scores, talk, near, older=older)
            near = self._near(talk, chosen)
            chosen, scores = rank.changed_first(
                chosen,
                scores,
                talk,
                near,
                lambda place: asking.tells_change(self._texts(talk.at[[place]])[0]),
                older=older,
            )
            if chosen:
                others = [place for place in best[: rank.READ_FOR_ENDS].tolist() if place not in chosen]
                ranked = [*chosen, *others]
                ranked, scores = rank.renamed_first(
                    ranked, scores, talk, self._ends_among(talk, ranked), older=older
                )
                chosen = ranked[: len(chosen)]
            first = chosen[0] if chosen else first
        chosen, over = self._ended(talk, chosen)
        more = [
            place
            for place in rank.top(scores, self.count, usable & speaks & (talk.cell < 0)).tolist()
            if place not in chosen
        ]
        if first < 0:
            return {"evidence": () if count else None}
        gate, answers = None, dict[int, int]()
        if self.request.for_injection:
            lead = talk.at[[*(chosen or more)[:3], first]]
            gate = _Gate(float(scores[first]), float(self._fits(lead).max()))
            chosen, answers = rank.with_answers(chosen, talk, self.allowed[talk.at])
        return {
            "evidence": self._evidence(chosen, gate, scores, parts, over, answers) if count else None,
            "unflushed": self._evidence(more, gate, scores, parts),
        }

    def _near(self, talk: rank.TalkOrder, places: Sequence[int]) -> np.ndarray:
        """How near the messages at `places` lie to each other in meaning.

        Where there is none for them, 1 is for two of which one says that what the question names changed, and the other names
        it, too: one clause has to say both, and a single character is no word.
        """
        import numpy as np

        at = talk.at[list(places)]
        if self.legs.cosine is not None and self.corpus.vectors is not None:
            meant = self.corpus.vectors[at]
            return np.asarray(meant @ meant.T)
        asked = frozenset(term for term in self.weights if len(term) > 1)
        texts = self._texts(at)
        named = [asked.intersection(words.tokens(text)) for text in texts]
        changed = [
            held and held.intersection(words.tokens(asking.said_changed(text)))
            for held, text in zip(named, texts, strict=True)
        ]
        out = np.array([[bool(one & other) for other in named] for one in changed], np.float32)
        return np.maximum(out, out.T) if len(places) else out

    def _ends_among(self, talk: rank.TalkOrder, places: Sequence[int]) -> Callable[[int, int], bool]:
        """Says of two of the `places` whether the first says to be over what the second names.

        It calls it by a name that hardly anything else holds and the question lacks, and answers well enough for a prompt by itself.
        """
        at = talk.at[list(places)]
        texts = dict(zip(places, self._texts(at), strict=True))
        fits = dict(zip(places, self._fits(at).tolist(), strict=True))
        asked = frozenset(words.query_terms(self.request.query, limit=_MOST_ASKED)) | words.stop_words()
        asked |= {token for one in self.corpus.senders for token in words.tokens(one.name or one.id)}

        @functools.cache
        def over(place: int) -> str:
            return asking.said_over(texts[place]) if fits[place] >= self.least else ""

        def ends(later: int, earlier: int) -> bool:
            said, before = over(later), texts[earlier]
            if not said:
                return False
            shared = frozenset(words.tokens(said)) & frozenset(words.tokens(before))
            held = self.index.frequencies(self.scope, tuple(shared - asked)) if shared - asked else {}
            rare = [term for term, rows in held.items() if rows <= _ROWS_OF_A_NAME]
            return bool(rare and asking.names_as_written("", rare, (said, before)))

        return ends

    def open_talk(self, count: int) -> tuple[Evidence, ...]:
        """What was said last and is in no episode yet, in the order it was said."""
        import numpy as np

        talk = rank.talk_of(self.corpus, self.zone)
        is_open = np.flatnonzero((talk.cell < 0) & self.allowed[talk.at])
        times = self.corpus.timestamp_ms[talk.at[is_open]]
        last = is_open[np.sort(np.argsort(times, kind="stable")[-count:])]
        return self._evidence(last.tolist(), None, np.zeros(len(talk), np.float32), {})

    def _ended(self, talk: rank.TalkOrder, places: Sequence[int]) -> tuple[list[int], dict[int, Row]]:
        """`places` with what is over behind what ended it, and for each such place the fact of it that is over."""
        import numpy as np

        corpus, order = self.corpus, list(places)
        cells = talk.cell[order][talk.cell[order] >= 0]
        facts, flags = talk.facts, corpus.flags[talk.facts]
        is_over = flags & (ENDED | HIDDEN) == ENDED
        if not np.isin(corpus.cell[facts[is_over]], cells).any():
            return order, {}
        facts = facts[np.isin(corpus.cell[facts], cells) & (flags & HIDDEN == 0)]
        rows = self._rows(corpus.rowid[[*facts, *talk.at[order]]].tolist())
        said = {
            row.entry_id: place
            for place in order
            if (row := rows.get(int(corpus.rowid[talk.at[place]]))) is not None
        }
        stated: dict[str, int] = {}
        over: dict[int, Row] = {}
        for rowid in corpus.rowid[facts].tolist():
            fact = rows.get(rowid)
            for name in list_items(str(fact.fields.get("message_ids", ""))) if fact is not None else ():
                if name in said and fact is not None:
                    stated[fact.entry_id] = said[name]
                    if fact.fields.get("superseded_by"):
                        over[said[name]] = fact
        for place, fact in over.items():
            newer = stated.get(str(fact.fields["superseded_by"]), place)
            if order.index(newer) > order.index(place) and not self.question.wants_former:
                order.remove(place)
                order.insert(order.index(newer) + 1, place)
        return order, over

    def _evidence(
        self,
        places: Sequence[int],
        gate: _Gate | None,
        scores: np.ndarray,
        parts: Mapping[str, np.ndarray],
        over: Mapping[int, Row] = _NONE,
        answers: Mapping[int, int] = _NONE,
    ) -> tuple[Evidence, ...]:
        """The messages at `places` of the talk, best first, that pass every rule.

        Each of `answers` passes and is scored as the question is that it answers.
        """
        import numpy as np

        if not places:
            return ()
        corpus, talk = self.corpus, rank.talk_of(self.corpus, self.zone)
        at = talk.at[np.array(places, np.int64)]
        about = {
            place: int(corpus.rowid[talk.episodes[talk.episode[place]]])
            for place in places
            if talk.episode[place] >= 0
        }
        wanted = corpus.rowid[at].tolist()
        inside = corpus.rowid[self.part[at]].tolist()
        rows = self._rows([*wanted, *inside, *sorted(set(about.values()))])
        asks = [answers.get(place, place) for place in places]
        own = self._fits(at)
        fits = np.maximum(own, own[[places.index(place) for place in asks]]).tolist()
        scores = np.maximum(scores[list(places)], scores[asks])
        shown = falling(fits if self.by_cosine is None else np.clip(self.by_cosine[at], 0.0, 1.0).tolist())
        out = []
        for place, rowid, part, fit, rated, score in zip(
            places, wanted, inside, fits, scores.tolist(), shown, strict=True
        ):
            row = rows.get(rowid)
            if row is None or (self.request.min_score is not None and score < self.request.min_score):
                continue
            if gate is not None and (not gate.lets(rated, fit, self.least) or says_nothing(row.text)):
                continue
            text, passage = _passage(row, rows.get(part, row))
            linked = rows.get(about.get(place, -1))
            explain = (
                self._explained(int(talk.at[place]), parts, place, fit) if self.request.explain else None
            )
            out.append(
                Evidence(
                    session_id=row.session_id or "",
                    message_id=row.entry_id,
                    timestamp=datetime.fromtimestamp(row.timestamp_ms / 1000, UTC),
                    sender_id=row.sender_ids[0] if row.sender_ids else "",
                    sender_name=row.sender_name,
                    text=text,
                    score=round(score, 6),
                    passage=passage,
                    entry_ids=(linked.entry_id,) if linked is not None else (),
                    tags=row.fields.get("tags") or (),
                    metadata=row.fields.get("metadata"),
                    explain=explain,
                    unflushed=row.cell_id is None,
                    earlier=hit_of(over[place], score, None) if place in over else None,
                )
            )
        return tuple(out)


def _current_first(hits: Sequence[Hit]) -> list[Hit]:
    """Episodes with one that is there for a fact that is over behind the one that ended it, scores in their new order."""
    ended = [(hit, by) for hit in hits if hit.facts and (by := hit.facts[0].fields.get("superseded_by"))]
    if not ended:
        return list(hits)
    order = list(hits)
    for hit, by in ended:
        newer = next((one for one in order if any(by == fact.entry_id for fact in one.facts)), hit)
        if order.index(newer) > order.index(hit):
            order.remove(hit)
            order.insert(order.index(newer) + 1, hit)
    return [replace(hit, score=shown.score) for hit, shown in zip(order, hits, strict=True)]


def current_memories(
    hits: Sequence[Hit], opposed: Callable[[Scope, str], Sequence[tuple[str, datetime | None]]]
) -> tuple[Hit, ...]:
    """Governed memories with what is no longer so marked, and behind what is so now where both are there.

    `opposed` tells the live memories that say otherwise than one, and since when each is there: of two that nobody has
    settled, the later one is what is so. Scores stay where they were, so they fall in the new order.
    """
    marked = list(hits)
    newer: dict[str, str] = {}
    for place, hit in enumerate(hits):
        if by := str(hit.fields.get("superseded_by") or ""):
            newer[hit.entry_id] = by
        elif hit.fields.get("write_gate_reason") == "contradicts":
            since = moment_of(hit.fields.get("created_at")) or hit.timestamp
            mine = (since or _LONG_AGO, hit.entry_id)
            later = max(
                (
                    one
                    for name, at in opposed(hit.scope, hit.entry_id)
                    if (one := (at or _LONG_AGO, name)) > mine
                ),
                default=None,
            )
            if later is not None:
                newer[hit.entry_id] = later[1]
                told = {"contradicted_by": later[1], "contradicted_at": later[0].isoformat()}
                marked[place] = replace(hit, fields={**hit.fields, **told})
    order = list(marked)
    for hit in marked:
        after = next((one for one in order if newer.get(hit.entry_id) in {one.entry_id, one.id}), hit)
        if order.index(after) > order.index(hit):
            order.remove(hit)
            order.insert(order.index(after) + 1, hit)
    return tuple(replace(hit, score=shown.score) for hit, shown in zip(order, hits, strict=True))


def _passage(row: Row, part: Row) -> tuple[str, tuple[int, int, int] | None]:
    """What is shown of a row: the passage `part` of it, with its place in the whole; all of a text that was not cut."""
    place = part.fields.get("passage")
    if not place:
        return row.text, None
    start, end, of = (int(number) for number in place)
    return row.text[start:end].strip(), (start, end, of)


def hit_of(row: Row, score: float, explain: Mapping[str, float] | None) -> Hit:
    """A row as a hit."""
    return Hit(
        kind=row.kind,
        scope=row.scope,
        entry_id=row.entry_id,
        path=row.path,
        score=round(score, 6),
        timestamp=datetime.fromtimestamp(row.timestamp_ms / 1000, UTC) if row.timestamp_ms else None,
        session_id=row.session_id,
        text=row.text,
        fields={**row.fields, "sender_ids": list(row.sender_ids)},
        explain=explain,
    )
