"""What each part promises: one line per figure, with its floor, its target and the best peer's figure.

A line names where its value lies in the figures of a part, so that the table on the terminal, the table in
docs/benchmarks.md and the plot all say the same thing. Peer figures are EverOS 1.5.1's, measured elsewhere on the
same kind of work and machine (two shared cores, model and embeddings answering at once).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Path = Sequence[str] | Callable[[Mapping[str, Any]], float]


@dataclass(frozen=True)
class Line:
    """One figure: where it is, what bounds it, what it stands beside."""

    what: str
    at: Path
    unit: str = "ms"
    target: float | None = None
    at_least: bool = False
    floor: Path | None = None
    floor_is: str = ""
    peer: float | None = None

    def told(self, figures: Mapping[str, Any]) -> dict[str, Any] | None:
        """The line with its values; None where the run did not measure it."""
        ours = _value(figures, self.at)
        if ours is None:
            return None
        floor = None if self.floor is None else _value(figures, self.floor)
        met = None
        if self.target is not None:
            met = ours >= self.target if self.at_least else ours <= self.target
        return {
            "what": self.what,
            "ours": ours,
            "unit": self.unit,
            "cpu": None if callable(self.at) else _value(figures, _processor(self.at)),
            "floor": floor,
            "floor_is": self.floor_is,
            "target": self.target,
            "at_least": self.at_least,
            "met": met,
            "peer": self.peer,
            "beside": _value(figures.get("beside", {}), self.at) or None,
        }


def _value(figures: Mapping[str, Any], at: Path) -> float | None:
    try:
        if callable(at):
            return round(float(at(figures)), 4)
        found: Any = figures
        for name in at:
            found = found[name]
        return float(found)
    except (KeyError, TypeError):
        return None


def _processor(at: Sequence[str]) -> Sequence[str]:
    """Where the processor time of a figure lies: beside it, under a name that says so."""
    *above, name = at
    return [*above, name.replace("(ms)", "(CPU ms)") if name.endswith("(ms)") else ""]


def _ratio(over: Sequence[str], under: Sequence[str]) -> Callable[[Mapping[str, Any]], float]:
    def divided(figures: Mapping[str, Any]) -> float:
        above, below = figures, figures
        for name in over:
            above = above[name]
        for name in under:
            below = below[name]
        return float(above) / float(below)  # type: ignore[arg-type]

    return divided


def _size(method: str, size: int) -> list[str]:
    return [f"search of {size}", f"{method} p50 ms"]


ECHO = ["floor: bare Starlette route ms"]

TARGETS: dict[str, list[Line]] = {
    "notes": [
        Line("append to a note of 5,000 entries", ["append", "ratio"], "x", 1.5, floor_is="read + atomic rewrite of the same bytes = 1"),
        Line("eight writers, cheaper per entry", ["group_commit", "ratio"], "x", 6, at_least=True, floor_is="one rewrite for each entry = 1"),
        Line("parse 5,000 entries, faster than markdown-it-py", ["parse", "ratio"], "x", 50, at_least=True, floor_is="the library = 1"),
        Line("scan 20,000 notes", ["scan", "ratio"], "x", 2, floor_is="scandir + stat = 1"),
    ],
    "capture": [
        Line("add 1 message", ["add ms", "default with 10 open"], "ms", 3, floor=["append + fdatasync alone ms", "p50 after"], floor_is="append + fdatasync"),
        Line("add with 400 open", ["add ms", "default with 400 open"], "ms", 3, floor=["append + fdatasync alone ms", "p50 after"], floor_is="append + fdatasync"),
        Line("adds/s, 8 threads on 8 sessions", ["8 threads", "adds/s"], "/s", 500, at_least=True),
        Line("flush of 4 messages", ["flush of 4 ms", "p50"], "ms", 15, floor=["append + fdatasync alone ms", "p50 after"], floor_is="append + fdatasync"),
    ],
    "indexing": [
        Line("rows indexed", ["rows_per_second"], "/s"),
        Line("rebuild, embedder at no cost", ["rebuild_entries_per_second"], "/s", 1000, at_least=True, peer=137),
        Line("write to searchable, p95", ["write_to_searchable_ms_p95"], "ms", 250, peer=1286),
        Line("edit to searchable, p95", ["edit_to_searchable_ms_p95"], "ms", 250),
        Line("index bytes per Markdown byte", ["index_bytes_per_markdown_byte"], "x"),
    ],
    "search": [
        Line("keyword, 10,000 rows", ["10000", "keyword (ms)"], "ms", 6, floor=["10000", "floor: bare FTS5, top 10 (ms)"], floor_is="bare FTS5", peer=74),
        Line("vector, 10,000 rows", ["10000", "vector (ms)"], "ms", 15, floor=["10000", "embedding the question alone (ms)"], floor_is="embedding the question", peer=127),
        Line("hybrid, 10,000 rows", ["10000", "hybrid (ms)"], "ms", 10, floor=["10000", "embedding the question alone (ms)"], floor_is="embedding the question", peer=214),
        Line("hybrid, 100,000 rows", ["100000", "hybrid (ms)"], "ms", 25, floor=["100000", "floor: matrix product, top 10 (ms)"], floor_is="numpy scan"),
        Line("hybrid queries/s, 8 clients, 10,000 rows", ["10000", "hybrid queries/s, 8 clients"], "/s", 150, at_least=True, peer=8),
        Line("4,000-word question, 10,000 rows", ["10000", "4,000-word question (ms)"], "ms", 500),
        Line("peak memory, 10,000 rows", ["10000", "peak memory of the process (MB)"], "MB", 450),
        Line("hybrid with a filter, 10,000 rows", ["10000", "hybrid with a filter (ms)"], "ms"),
        Line("hybrid with a filter, 100,000 rows", ["100000", "hybrid with a filter (ms)"], "ms"),
        Line("LanceDB, keyword, 100,000 rows", ["100000", "lancedb: keyword (ms)"], "ms", floor=["100000", "floor: bare FTS5, top 10 (ms)"], floor_is="bare FTS5"),
        Line("LanceDB, hybrid, 100,000 rows", ["100000", "lancedb: hybrid (ms)"], "ms", floor=["100000", "floor: matrix product, top 10 (ms)"], floor_is="numpy scan"),
        Line("LanceDB, hybrid with a filter, 10,000 rows", ["10000", "lancedb: hybrid with a filter (ms)"], "ms", 30, floor=["10000", "floor: matrix product, top 10 (ms)"], floor_is="numpy scan"),
        Line("LanceDB, hybrid with a filter, 100,000 rows", ["100000", "lancedb: hybrid with a filter (ms)"], "ms", 40, floor=["100000", "floor: matrix product, top 10 (ms)"], floor_is="numpy scan"),
        Line("LanceDB, hybrid with a filter, 1,000,000 rows", ["1000000", "lancedb: hybrid with a filter (ms)"], "ms", 60, floor=["1000000", "floor: matrix product, top 10 (ms)"], floor_is="numpy scan"),
        Line("LanceDB, keyword, 1,000,000 rows", ["1000000", "lancedb: keyword (ms)"], "ms", 25, floor=["1000000", "floor: bare FTS5, top 10 (ms)"], floor_is="bare FTS5"),
        Line("LanceDB, recall@10 of exact, 100,000 rows", ["100000", "lancedb: recall@10 of exact"], "x", 0.98, at_least=True),
        Line("LanceDB, recall@10 of exact, 1,000,000 rows", ["1000000", "lancedb: recall@10 of exact"], "x", 0.98, at_least=True),
        Line("LanceDB, a row written is found, 100,000 rows", ["100000", "lancedb: a row written is found (ms)"], "ms", 60),
        Line("rows indexed with vectors given, 100,000 rows", ["100000", "rows indexed, vectors given (rows/s)"], "/s", 10_000, at_least=True),
        Line("LanceDB, rows folded in with indexes, 100,000 rows", ["100000", "lancedb: rows folded in, indexes made (rows/s)"], "/s", 10_000, at_least=True),
        Line("LanceDB, peak memory, 1,000,000 rows", ["1000000", "lancedb: peak memory of the process (MB)"], "MB", 1500),
        Line("index bytes per byte of text and vectors, 100,000 rows", ["100000", "index bytes per byte of text and vectors"], "x", 3),
        Line("index bytes per byte of text and vectors, 1,000,000 rows", ["1000000", "index bytes per byte of text and vectors"], "x", 3),
    ],
    "http": [
        Line("cold start to first answer", ["cold start", "seconds"], "s", 1, peer=6.7),
        Line("idle memory", ["cold start", "idle RSS MB"], "MB", 150, peer=280),
        Line("add 1 message", ["add", "1 p50 ms"], "ms", 3, floor=ECHO, floor_is="bare Starlette route", peer=34),
        Line("add 10 messages", ["add", "10 p50 ms"], "ms", 12.8, floor=ECHO, floor_is="bare Starlette route", peer=128),
        Line("add with 400 open", ["add ms by open messages", "400"], "ms", 3, floor=ECHO, floor_is="bare Starlette route", peer=150),
        Line("server CPU per add", ["add", "1 cpu ms"], "ms", 2.7, peer=27),
        Line("adds/s, 8 clients", ["adds/s by clients", "8"], "/s", 500, at_least=True, floor=["floor: bare Starlette, calls/s", "8"], floor_is="bare Starlette route", peer=32),
        Line("flush of 4 messages", ["flush of 4", "p50 ms"], "ms", 15, floor=["flush of 4", "floor: atomic rewrite ms"], floor_is="atomic rewrite of the note", peer=149),
        Line("flush to searchable, p50", ["flush of 4", "searchable p50 ms"], "ms", 105, peer=1051),
        Line("flush to searchable, p95", ["flush of 4", "searchable p95 ms"], "ms", 250, peer=1286),
        Line("edit to searchable, p95", ["edit to searchable ms", "p95"], "ms", 250, peer=1118),
        Line("sessions/s, 8 clients, one user", ["add + flush, 8 clients", "one user, sessions/s"], "/s"),
        Line("sessions/s, 8 clients, eight users", ["add + flush, 8 clients", "eight users, sessions/s"], "/s"),
        Line("keyword, 10,000 entries", _size("keyword", 10000), "ms", 6, floor=ECHO, floor_is="bare Starlette route", peer=74),
        Line("vector, 10,000 entries", _size("vector", 10000), "ms", 15, floor=ECHO, floor_is="bare Starlette route", peer=127),
        Line("hybrid, 10,000 entries", _size("hybrid", 10000), "ms", 20, floor=ECHO, floor_is="bare Starlette route", peer=214),
        Line("hybrid queries/s, 8 clients", ["hybrid queries/s of 10000 by clients", "8"], "/s", 150, at_least=True, floor=["floor: bare Starlette, calls/s", "8"], floor_is="bare Starlette route", peer=8),
        Line("right after a bulk of 10,000, beside settled", _ratio(["bulk of 10000", "hybrid right after p50 ms"], ["bulk of 10000", "hybrid settled p50 ms"]), "x", 3, peer=20),
        Line("bulk of 10,000 found by words", ["bulk of 10000", "indexed, entries/s"], "/s", peer=127),
        Line("bulk of 10,000 embedded: longer than the embedder alone", _ratio(["floor: embedder alone, entries/s"], ["bulk of 10000", "embedded, entries/s"]), "x", 1.3),
        Line("4,000-word query", ["4,000-word query of 10000", "p50 ms"], "ms", 500),
        Line("memory with model and 10,000 entries", ["RSS MB with model and 10000"], "MB", 450, peer=1100),
        Line("cold command to first keyword hit", ["cold CLI keyword of 10000 s"], "s", 1.5),
        Line("flush of a 1 MB message", ["1 MB message ms", "flush"], "ms"),
    ],
    "strategies": [
        Line("queued events drained", ["drain events/s"], "/s", 200, at_least=True, floor=["drain events/s of CPU"], floor_is="per second of CPU"),
        Line("flush to facts and profile, p95", ["flush to derived, p95 ms"], "ms", 1000),
        Line("a look at an empty queue, CPU", ["idle look, CPU ms"], "ms"),
        Line("add beside the engine at work", ["add at work, share of asleep"], "x", 1.1, floor=["add asleep, p50 ms"], floor_is="with the engine asleep"),
        Line("search beside the engine at work", ["search at work, share of asleep"], "x", 1.1, floor=["search asleep, p50 ms"], floor_is="with the engine asleep"),
    ],
    "keeping": [
        Line("verdict, 2,000 memories", ["gate_2000", "fresh_p50_ms"], "ms", 5, floor=["flush_ms"], floor_is="append + fdatasync"),
        Line("verdict at 20,000, beside 2,000", _ratio(["gate_20000", "fresh_p50_ms"], ["gate_2000", "fresh_p50_ms"]), "x", 2),
        Line("sweep of 10,000", ["sweep_10000", "seconds"], "s", 3),
        Line("a write delayed by the sweep, at most", lambda f: f["sweep_10000"]["write_beside_max_ms"] - f["sweep_10000"]["write_beside_p50_ms"], "ms", 50),
        Line("MEMORY.md of 2,000 memories made anew", ["page_2000_ms"], "ms", 200),
    ],
    "project": [
        Line("init, 10,000 files", ["init_10000_files_s"], "s", 5),
        Line("status, 10,000 events and 1,000 checkpoints", ["status_ms"], "ms", 300),
        Line("query, 10,000 events and 1,000 checkpoints", ["query_ms"], "ms", 300),
        Line("append an event, beyond one flush", lambda f: f["record_long_ms"] - f["fsync_ms"], "ms", 2, floor=["fsync_ms"], floor_is="append + fdatasync"),
        Line("import 1,000 sessions (200 MB), peak memory", ["import_peak_mb"], "MB", 300),
        Line("import 1,000 sessions (200 MB)", ["import_s"], "s"),
        Line("import 1,000 sessions (200 MB), processor time", ["import_cpu_s"], "s", 17),
        Line("import again, nothing new", ["import_again_s"], "s"),
        Line("import again, nothing new, processor time", ["import_again_cpu_s"], "s", 1),
    ],
    "agents": [
        Line("a prompt's hook, 10,000 memories, half a second apart, p50", ["prompt_apart", "p50_ms"], "ms", floor=["python_alone", "p50_ms"], floor_is="a bare Python"),
        Line("a prompt's hook, 10,000 memories, half a second apart, p95", ["prompt_apart", "p95_ms"], "ms", 150, floor=["python_alone", "p95_ms"], floor_is="a bare Python"),
        Line("a prompt's hook, 10,000 memories, back to back, p50", ["prompt", "p50_ms"], "ms", floor=["python_alone", "p50_ms"], floor_is="a bare Python"),
        Line("a prompt's hook, 10,000 memories, back to back, p95", ["prompt", "p95_ms"], "ms", 150, floor=["python_alone", "p95_ms"], floor_is="a bare Python"),
        Line("what was asked for is told", ["found"], "", 0.95, at_least=True),
        Line("false injections over 100 unrelated prompts", ["false_injections"], "", 2),
        Line("tokens told at a prompt, p50", ["tokens_per_prompt", "p50"], ""),
        Line("tokens told at a prompt, at most", ["tokens_per_prompt", "max"], "", 600),
        Line("the warm process is up", ["warm_after_s"], "s"),
        Line("tokens told at the start of a session", ["tokens_at_start"], "", 1500),
        Line("the first prompt, while it reads the model and the index", ["first_prompt_ms"], "ms"),
        Line("the first recall of `cairn mcp` where nothing runs", ["mcp_first_recall", "wall_s"], "s", 1),
    ],
    "extraction": [
        *(
            Line(f"{name}{suffix}", [way, at], "", target, at_least=is_least)
            for way, suffix in (("rules", ""), ("model", ", with the model"))
            for name, at, target, is_least in (
                ("facts wanted that came", "found", 0.8, True),
                ("facts that are junk", "junk", 0.1, False),
                ("facts their source holds", "held by their source", 1, True),
                ("statements that reach the profile", "profile", 0.8, True),
                ("changes that end the earlier fact", "changes seen", 0.8, True),
                ("pairs that hold at once, wrongly ended", "wrongly ended", 0, False),
            )
        ),
        Line("sentences with a wrong date", ["dates", "wrong"], "", 0),
        Line("resolvable dates resolved", ["dates", "resolved"], "", 0.7, at_least=True),
    ],
    "page": [
        Line("home, 10,000 entries: first paint, p50", ["home", "first paint p50 ms"], "ms", 300, floor=["floor", "first paint p50 ms"], floor_is="the same document from a bare server"),
        Line("home, 10,000 entries: first paint, p95", ["home", "first paint p95 ms"], "ms", 300, floor=["floor", "first paint p95 ms"], floor_is="the same document from a bare server"),
        Line("search, 10,000 entries: first paint, p50", ["search", "first paint p50 ms"], "ms", 300, floor=["floor", "first paint p50 ms"], floor_is="home from a bare server"),
        Line("search, 10,000 entries: first paint, p95", ["search", "first paint p95 ms"], "ms", 300, floor=["floor", "first paint p95 ms"], floor_is="home from a bare server"),
        Line("home: first byte, p50", ["home", "answered p50 ms"], "ms", floor=["floor", "answered p50 ms"], floor_is="a bare server"),
        Line("search: first byte, p50", ["search", "answered p50 ms"], "ms", floor=["floor", "answered p50 ms"], floor_is="a bare server"),
        Line("home: server CPU of a load", ["home", "server CPU ms"], "ms"),
        Line("search: server CPU of a load", ["search", "server CPU ms"], "ms"),
        Line("home: weight of a first visit", ["weight", "home"], "kB", 150),
        Line("search: weight of a first visit", ["weight", "search"], "kB", 150),
        Line("a day of 1,000 entries: entries reached by scrolling", ["long day", "entries"], "entries", 1000, at_least=True),
        Line("a day of 1,000 entries: frame, p95", ["long day", "frame p95 ms"], "ms", 50),
    ],
    "variety": [],  # its table has columns of its own
    "walk": [
        *(
            Line(f"{words}: {of}", [leg, of], of)
            for leg, words in (
                ("add", "`POST /add`, one message"),
                ("flush", "`POST /flush`, until answered"),
                ("behind", "behind it, 3 s"),
                ("search", "`POST /search` that finds it"),
            )
            for of in ("functions", "modules", "threads")
        ),
        Line("together: functions", ["together", "functions"], "functions", 350),
        Line("together: modules", ["together", "modules"], "modules", 45),
        Line("together: threads", ["together", "threads"], "threads", 5),
    ],
    "beliefs": [
        *(
            Line(f"{kind}, {way}: {shown}", ["kinds", kind, way, what], "", target, at_least=True, floor=["kinds", kind, "cosine", what], floor_is="cosine above .3")
            for kind in ("a project", "a team", "a person")
            for way, shown, what, target in (
                ("search", "MRR", "MRR", None),
                ("for_injection", "precision", "precision", 0.75),
                ("for_injection", "recall", "recall", 0.75),
                ("for_injection", "exact sets", "exact", 0.6),
                ("for_injection", "silent where nothing answers", "silent", 0.8),
                ("recall", "exact sets", "exact", 0.6),
                ("hook", "exact sets", "exact", 0.6),
            )
        ),
        Line("what is so now before what was, where it is asked", ["mean", "search", "current_leads"], "", 1, at_least=True, floor=["mean", "cosine", "current_leads"], floor_is="cosine above .3"),
        Line("contradictions told by `remember`", ["contradictions_told"], "", 1, at_least=True),
    ],
    "transfer": [
        # Of data of one's own (`--data`), under the names of these files.
        *(
            Line(f"{kind}: {name}", ["kinds", kind, "cairn", name], "", target, at_least=True, floor=["kinds", kind, "best", name], floor_is="the best baseline")
            for kind, targets in (
                ("locomo", {"R@10": 0.86, "MRR": 0.70, "R@500t": 0.86}),
                ("assistant", {"R@10": 0.70, "MRR": 0.60, "R@500t": 0.45}),
                ("meetings", {"hit@10": None, "MRR": None}),
                ("notes_zh", {"R@10": None, "MRR": None}),
                ("31 identifiers", {"MRR": 1.0}),
                ("200 identifiers", {"MRR": None}),
            )
            for name, target in targets.items()
        ),
        *(
            Line(f"{kind}: {what}", ["kinds", kind, *at], "", target, at_least=at_least)
            for kind in ("locomo", "assistant", "meetings", "notes_zh")
            for what, at, target, at_least in (
                ("answerable let through", ["gate", "answerable"], 0.95, True),
                ("questions of another memory answered", ["gate", "foreign"], 0.25, False),
                ("prompts of 800 tokens that are empty", ["empty_prompts"], 0.02, False),
            )
        ),
        Line("assistant: processor time of a search", ["kinds", "assistant", "search_cpu_ms"], "ms", 15),
        Line("MRR above the best baseline, least of all kinds", ["worst", "MRR above the best baseline"], "", 0, at_least=True),
        Line("hit@10 above the best baseline, least of all kinds", ["worst", "hit@10 above the best baseline"], "", 0, at_least=True),
        Line("answerable questions let through, least of all kinds", ["worst", "answerable let through"], "", 0.95, at_least=True),
        Line("questions of another memory answered, most of all kinds", ["worst", "foreign answered"], "", 0.25),
        Line("unrelated prompts answered, most of six languages", ["worst", "unrelated answered"], "", 0.03),
        Line("prompts of 800 tokens that are empty, most of all kinds", ["worst", "empty prompts"], "", 0.02),
    ],
    "locomo": [
        *(
            Line(what, ["table", "all", name], "", target, at_least=True, floor=["best", name], floor_is="the best baseline")
            for what, name, target in (
                ("evidence recall at 10", "R@10", 0.86),
                ("mean reciprocal rank", "MRR", 0.70),
                ("recall within 500 tokens", "R@500t", 0.86),
            )
        ),
        Line("search p50", ["search_p50_ms"], "ms"),
    ],
}  # fmt: skip


def summary(part: str, figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The lines of a part that this run measured."""
    told = [line.told(figures) for line in TARGETS.get(part, ())]
    return [line for line in told if line is not None]


HEADLINE = (
    "add 1 message",
    "adds/s, 8 clients",
    "flush of 4 messages",
    "flush to searchable, p50",
    "edit to searchable, p95",
    "hybrid, 10,000 entries",
    "hybrid queries/s, 8 clients",
    "cold start to first answer",
    "memory with model and 10,000 entries",
)


def headline(lines: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The few figures of the HTTP part for the front page, each beside the peer's: a dagger marks one from elsewhere."""
    table = [["Over HTTP, p50 unless said", "Cairn", "EverOS 1.5.1", ""]]
    found = {line["what"]: line for line in lines}
    for what in HEADLINE:
        line = found.get(what)
        if line is None:
            continue
        peer, sign = (line["beside"], "") if line.get("beside") else (line["peer"], " †")
        times = line["ours"] / peer if line["at_least"] else peer / line["ours"]
        unit = line["unit"]
        better = f"{times:.0f}x" if times >= 10 else f"{times:.1f}x"
        table.append([what, f"**{number(line['ours'], unit)}**", number(peer, unit) + sign, better])
    return table


def number(value: float | None, unit: str = "") -> str:
    """A figure as a person would write it: three digits that matter, its unit behind."""
    if value is None:
        return ""
    if unit == "":
        shown = f"{value:.3f}".lstrip("0")
    elif abs(value) >= 100:
        shown = f"{value:,.0f}"
    else:
        shown = (
            f"{value:.1f}".removesuffix(".0") if abs(value) >= 10 else f"{value:.2f}".rstrip("0").rstrip(".")
        )
    return f"{shown}{unit}" if unit in {"x", "/s"} else f"{shown} {unit}".strip()


def rows(lines: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The table of a part, head first: what, ours, processor time, floor, target, met, peer; empty columns are left out."""
    head = [
        "What",
        "Cairn",
        "CPU",
        "Floor of the same run",
        "Target",
        "",
        "EverOS 1.5.1, same run",
        "EverOS 1.5.1, elsewhere",
    ]
    table = [head]
    for line in lines:
        unit = line["unit"]
        floor = line["floor_is"]
        if line["floor"] is not None:
            floor_unit = "ms" if unit == "x" else unit
            floor = f"{number(line['floor'], floor_unit)} ({floor})"
        sign = "at least " if line["at_least"] else "at most "
        target = "" if line["target"] is None else sign + number(line["target"], unit)
        met = {True: "met", False: "**missed**", None: ""}[line["met"]]
        peers = [number(line.get("beside"), unit), number(line["peer"], unit)]
        used = number(line.get("cpu"), unit)
        table.append([line["what"], number(line["ours"], unit), used, floor, target, met, *peers])
    kept = [place for place in range(len(head)) if place < 2 or any(row[place] for row in table[1:])]
    return [[row[place] for place in kept] for row in table]


# What the part `search` tells of every size, as a line of a table beside its figure.
_BY_SIZE = {
    "memory, keyword": "keyword (ms)",
    "memory, hybrid": "hybrid (ms)",
    "memory, hybrid with a filter": "hybrid with a filter (ms)",
    "LanceDB, keyword": "lancedb: keyword (ms)",
    "LanceDB, hybrid": "lancedb: hybrid (ms)",
    "LanceDB, hybrid with a filter": "lancedb: hybrid with a filter (ms)",
    "LanceDB, hybrid within a session": "lancedb: hybrid within a session (ms)",
    "LanceDB, a row is written and found": "lancedb: a row written is found (ms)",
    "floor: embedding the question": "embedding the question alone (ms)",
    "floor: bare FTS5, top 10": "floor: bare FTS5, top 10 (ms)",
    "floor: numpy scan": "floor: matrix product, top 10 (ms)",
    "rows indexed with vectors given, per second": "rows indexed, vectors given (rows/s)",
    "LanceDB, rows folded in, per second": "lancedb: rows folded in, indexes made (rows/s)",
    "memory of the process, MB": "peak memory of the process (MB)",
    "memory of the process with LanceDB, MB": "lancedb: peak memory of the process (MB)",
    "index bytes per byte of text and vectors": "index bytes per byte of text and vectors",
    "LanceDB, recall@10 of exact": "lancedb: recall@10 of exact",
}


def by_size(figures: Mapping[str, Any]) -> list[list[str]]:
    """The figures of the part `search` for every size that was measured, processor time in brackets."""
    sizes = sorted((size for size in figures if size.isdigit()), key=int)
    table = [["Rows of the owner", *(f"{int(size):,}" for size in sizes)]]
    for name, key in _BY_SIZE.items():
        cells = []
        for size in sizes:
            ours, used = _value(figures, [size, key]), _value(figures, _processor([size, key]))
            cells.append("" if ours is None else f"{ours:,.{0 if ours >= 200 else 2 if ours < 3 else 1}f}")
            cells[-1] += "" if used is None else f" ({used:.1f})"
        if any(cells):
            table.append([name, *cells])
    return table
