"""One picture per part, from the figures alone: `docs/benchmarks/<part>.png` and `.svg`.

Parts with a story of their own (growth, clients, recall against cost) have their own picture; the rest show how
much of each target is used up. Without matplotlib (extra `bench`) there are tables only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks._targets import number, summary

OURS, FLOOR, PEER, MISSED, INK = "#1f6f8b", "#a9b4bc", "#d9824b", "#c0392b", "#333333"
# Tokens of ten results, recall, and where the name stands beside the point.
LOCOMO_PEERS = {
    "mem0 (infer off), MiniLM": (293, 0.469, (8, -3)),
    "BM25 (FTS5)": (359, 0.616, (8, -11)),
    "memsearch, a heading per turn": (345, 0.627, (10, -2)),
    "LanceDB hybrid (RRF)": (318, 0.637, (-2, 9)),
    "memsearch, session files": (3198, 0.839, (-8, -3)),
    "best recipe known before": (485, 0.819, (8, -3)),
}
# What a picture of targets says in one line; the names are those of the lines it rests on.
FINDINGS = {
    "walk": "One message passes {together: functions} in {together: modules} on {together: threads}",
    "notes": "Parsing is {parse 5,000 entries, faster than markdown-it-py} faster than a library; an append costs {append to a note of 5,000 entries} a bare rewrite",
    "indexing": "A write is found within {write to searchable, p95}, an edit within {edit to searchable, p95} (p95)",
    "strategies": "{queued events drained} events drained; an episode's facts are there {flush to facts and profile, p95} after the flush",
    "keeping": "A memory is judged in {verdict, 2,000 memories}, and {verdict at 20,000, beside 2,000} that with ten times as many",
    "agents": "A prompt waits {a prompt's hook, 10,000 memories, half a second apart, p50} (p50); {false injections over 100 unrelated prompts} of 100 unrelated prompts are told something",
    "extraction": "{facts wanted that came} of the facts wanted come, {facts that are junk} of all are junk; {sentences with a wrong date} dates are wrong",
    "page": "Over 10,000 entries home is painted in {home, 10,000 entries: first paint, p50}, a search in {search, 10,000 entries: first paint, p50}",
    "project": "10,000 files are taken in in {init, 10,000 files}; a question over 10,000 events takes {query, 10,000 events and 1,000 checkpoints}",
}


def draw(part: str, figures: Mapping[str, Any], folder: Path, conditions: str) -> str:
    """Write the picture of a part; says what was done, or why not."""
    try:
        import matplotlib as mpl
    except ImportError:
        return "no plot: matplotlib is not installed (extra `bench`)"
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "font.size": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.edgecolor": "#888888",
            "axes.titlesize": 10.5,
            "axes.titleweight": "normal",
            "text.color": INK,
            "axes.labelcolor": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "legend.frameon": False,
            "svg.hashsalt": "cairn",
            "svg.fonttype": "none",
            "figure.facecolor": "white",
        }
    )
    figure = PICTURES.get(part, _budget)(part, figures)
    figure.text(
        0.995, 0.008, conditions.replace("`", ""), ha="right", va="bottom", fontsize=7, color="#888888"
    )
    figure.savefig(folder / f"{part}.png", dpi=110, metadata={"Software": None})
    figure.savefig(folder / f"{part}.svg", metadata={"Date": None})
    plt.close(figure)
    return f"plot: {part}.png and {part}.svg"


def _canvas(title: str, columns: int = 1, height: float = 4.2) -> tuple[Any, list[Any]]:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, columns, figsize=(9.6, height), layout="constrained", squeeze=False)
    layout: Any = figure.get_layout_engine()
    layout.set(rect=(0, 0.035, 1, 0.965))
    figure.suptitle(title, x=0.012, ha="left", fontsize=12.5, fontweight="bold")
    return figure, list(axes[0])


def _budget(part: str, figures: Mapping[str, Any]) -> Any:
    """How much of each target is used: a bar that ends before the line has room to spare."""
    lines = [line for line in summary(part, figures) if line["target"]]
    met = sum(bool(line["met"]) for line in lines)
    height = 1.8 + 0.5 * len(lines)
    figure, (axis,) = _canvas(_finding(part, figures), height=height)
    axis.set_title(f"{met} of {len(lines)} targets met", loc="left")
    shares = [
        line["target"] / line["ours"] if line["at_least"] else line["ours"] / line["target"] for line in lines
    ]
    limit = max(1.15, min(max([0.0, *shares]) * 1.05, 4))
    for place, (line, share) in enumerate(zip(lines, shares, strict=True)):
        axis.barh(place, min(share, limit), 0.55, color=OURS if line["met"] else MISSED)
        sign = "≥" if line["at_least"] else "≤"
        said = f"{number(line['ours'], line['unit'])}  (target {sign} {number(line['target'], line['unit'])})"
        axis.text(limit * 1.02, place, said, va="center", fontsize=9, color=INK if line["met"] else MISSED)
    axis.axvline(1, color=INK, linewidth=1, linestyle="--")
    axis.set_yticks(range(len(lines)), [line["what"] for line in lines])
    axis.invert_yaxis()
    axis.set_xlim(0, limit)
    axis.set_xticks([0, 0.5, 1], ["0", "50 %", "the target"])
    axis.set_xlabel("share of the allowed cost (shorter is better)")
    return figure


def _finding(part: str, figures: Mapping[str, Any]) -> str:
    said = FINDINGS.get(part, part)
    for line in summary(part, figures):
        said = said.replace("{" + line["what"] + "}", number(line["ours"], line["unit"]))
    return said


def _http(part: str, figures: Mapping[str, Any]) -> Any:
    lines = [line for line in summary(part, figures) if line["peer"] and line["unit"] == "ms"]
    lines = [line for line in lines if "p95" not in line["what"] or "edit" in line["what"]]
    peers = [line["beside"] or line["peer"] for line in lines]
    times = sorted(peer / line["ours"] for line, peer in zip(lines, peers, strict=True))
    figure, (left, right) = _canvas(
        f"Over HTTP: {times[0]:.0f} to {times[-1]:.0f} times quicker than the best peer",
        2,
        4.8,
    )
    for place, (line, peer) in enumerate(zip(lines, peers, strict=True)):
        left.plot([line["ours"], peer], [place, place], color="#dddddd", linewidth=2, zorder=1)
        left.text(
            line["ours"] * 0.8, place, number(line["ours"], "ms")[:-3], ha="right", va="center", fontsize=8
        )
        left.text(peer * 1.25, place, number(peer, "ms")[:-3], ha="left", va="center", fontsize=8)
    left.scatter(
        [line["ours"] for line in lines], range(len(lines)), s=55, color=OURS, label="Cairn", zorder=2
    )
    for told, same_run, fill in (
        ("EverOS 1.5.1, same run", True, PEER),
        ("EverOS 1.5.1, elsewhere", False, "white"),
    ):
        places = [place for place, line in enumerate(lines) if bool(line["beside"]) is same_run]
        if places:
            left.scatter(
                [peers[place] for place in places], places, s=55, color=fill, edgecolors=PEER, label=told, zorder=2,
            )  # fmt: skip
    _logarithmic(left.xaxis, left.set_xscale)
    left.set_xlim(0.2, 6000)
    left.set_yticks(range(len(lines)), [line["what"] for line in lines])
    left.invert_yaxis()
    left.set_xlabel("milliseconds (log scale, less is better)")
    left.legend(
        loc="upper center",
        bbox_to_anchor=(0.3, 1.12),
        ncols=3,
        fontsize=8,
        columnspacing=0.8,
        handletextpad=0.2,
    )
    size = max(
        (int(name.split()[3]) for name in figures if name.startswith("hybrid queries/s of")), default=0
    )
    _clients(
        right,
        {
            "adds": (figures.get("adds/s by clients", {}), OURS),
            f"hybrid searches, {size:,} entries": (
                figures.get(f"hybrid queries/s of {size} by clients", {}),
                PEER,
            ),
            "bare Starlette route (floor)": (figures.get("floor: bare Starlette, calls/s", {}), FLOOR),
        },
    )
    return figure


def _clients(axis: Any, series: Mapping[str, tuple[Mapping[str, float], str]]) -> None:
    counts: list[int] = []
    top = 0.0
    for name, (values, color) in series.items():
        if not values:
            continue
        counts, rates = [int(count) for count in values], list(values.values())
        top = max(top, *rates)
        axis.plot(counts, rates, marker="o", markersize=4, color=color)
        shade = "#7a868f" if color == FLOOR else color
        axis.text(counts[-1], max(rates[len(rates) // 2 :]) * 1.15, name, color=shade, fontsize=9, ha="right")
    axis.set_xscale("log", base=2)
    _logarithmic(axis.yaxis, axis.set_yscale)
    axis.set_ylim(top=top * 2)
    axis.set_xticks(counts, [str(count) for count in counts])
    axis.minorticks_off()
    axis.set_xlabel("clients at once")
    axis.set_title("calls per second (log scale)", loc="left")


def _logarithmic(axis: Any, set_scale: Callable[[str], object]) -> None:
    """A log scale that says 0.1, 1, 10, 1,000 instead of powers."""
    from matplotlib.ticker import FuncFormatter

    set_scale("log")
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))


def _search(_part: str, figures: Mapping[str, Any]) -> Any:
    sizes = [int(size) for size in figures]
    held = max(size for size in sizes if "hybrid (ms)" in figures[str(size)])
    said = f"{number(figures[str(held)]['hybrid (ms)'], 'ms')} over {held:,} rows from memory"
    tables = figures[str(max(sizes))].get("lancedb: hybrid (ms)")
    if tables is not None:
        said += f", {number(tables, 'ms')} over {max(sizes):,} from LanceDB"
    figure, (left, right) = _canvas(f"Hybrid search: {said}", 2)
    shown = {
        "hybrid": ("hybrid (ms)", OURS, "-"),
        "vector": ("vector (ms)", "#5aa9a3", "-"),
        "keyword": ("keyword (ms)", PEER, "-"),
        "LanceDB: hybrid": ("lancedb: hybrid (ms)", "#7b4fa3", "-"),
        "LanceDB: hybrid, filter": ("lancedb: hybrid with a filter (ms)", "#b48ad6", "-"),
        "LanceDB: keyword": ("lancedb: keyword (ms)", "#8a5a44", "-"),
        "embedding the question": ("embedding the question alone (ms)", FLOOR, "--"),
        "bare FTS5": ("floor: bare FTS5, top 10 (ms)", FLOOR, ":"),
        "numpy scan": ("floor: matrix product, top 10 (ms)", FLOOR, "-."),
    }
    for name, (key, color, style) in shown.items():
        there = [size for size in sizes if key in figures[str(size)]]
        values = [figures[str(size)][key] for size in there]
        left.plot(there, values, color=color, linestyle=style, marker="o", markersize=4, label=name)
    left.set_xscale("log")
    _logarithmic(left.yaxis, left.set_yscale)
    left.set_xticks(sizes, [f"{size:,}" for size in sizes])
    left.minorticks_off()
    left.set_xlabel("rows of one owner")
    left.set_title("milliseconds, median (log scale); dashed and dotted: floors", loc="left")
    left.legend(fontsize=8.5, ncols=2)
    colors = [OURS, "#5aa9a3", PEER]
    series = {
        f"{size:,} rows": (figures[str(size)].get("hybrid queries/s by clients", {}), colors[place % 3])
        for place, size in enumerate(sizes)
        if "hybrid queries/s by clients" in figures[str(size)]
    }
    _clients(right, series)
    right.set_title("hybrid queries per second (log scale)", loc="left")
    return figure


def _capture(_part: str, figures: Mapping[str, Any]) -> Any:
    counts = [10, 50, 100, 200, 300, 400]
    adds, floor = figures["add ms"], figures["append + fdatasync alone ms"]["p50 after"]
    last = adds["default with 400 open"]
    figure, (axis,) = _canvas(
        f"An add costs about the same whatever is open: {number(last, 'ms')} at 400 messages", height=3.8
    )
    for name, color, told in (("default", OURS, "add"), ("defer", "#5aa9a3", "add, extraction deferred")):
        axis.plot(
            counts, [adds[f"{name} with {n} open"] for n in counts], marker="o", color=color, label=told
        )
    axis.plot(
        counts,
        [adds[f"default with {n} open, cpu"] for n in counts],
        marker="o", markersize=4, linestyle="--", color=OURS, label="add, CPU only",
    )  # fmt: skip
    axis.axhline(floor, color=FLOOR, linewidth=2, label="append + fdatasync alone (floor)")
    axis.axhline(3, color=INK, linewidth=1, linestyle="--")
    axis.text(400, 3, "target 3 ms", ha="right", va="bottom", fontsize=9)
    axis.set_ylim(0, max(3.6, 1.1 * max(value for value in adds.values())))
    axis.set_xlabel("messages open in the session")
    axis.set_ylabel("milliseconds, median")
    axis.legend(loc="upper left", fontsize=8.5, ncols=2)
    return figure


def _locomo(_part: str, figures: Mapping[str, Any]) -> Any:
    ours = figures["table"]["all"]
    figure, (axis,) = _canvas(
        f"LoCoMo: {ours['R@10']:.0%} of the evidence among ten messages, for {ours['tok@10']:.0f} tokens",
        height=4.4,
    )
    for name, (tokens, recall, beside) in LOCOMO_PEERS.items():
        axis.scatter(tokens, recall, s=50, color=FLOOR)
        right = tokens > 2000
        axis.annotate(
            name, (tokens, recall), xytext=beside, textcoords="offset points",
            ha="right" if right else "left", fontsize=9,
        )  # fmt: skip
    axis.scatter(ours["tok@10"], ours["R@10"], s=90, color=OURS, zorder=3)
    axis.annotate(
        "Cairn", (ours["tok@10"], ours["R@10"]), xytext=(-10, 6), textcoords="offset points", ha="right",
        fontsize=11, fontweight="bold", color=OURS,
    )  # fmt: skip
    axis.set_xscale("log")
    axis.set_xlim(220, 4200)
    axis.set_xticks([250, 500, 1000, 2000, 4000], ["250", "500", "1,000", "2,000", "4,000"])
    axis.minorticks_off()
    axis.set_ylim(0.4, 0.92)
    axis.set_xlabel("tokens of the first ten results (log scale, fewer is better)")
    axis.set_ylabel("evidence recall at 10")
    return figure


def _variety(_part: str, figures: Mapping[str, Any]) -> Any:
    worst = min(one["MRR"] - max(one["bm25 MRR"], one["cosine MRR"]) for one in figures.values())
    claim = "never behind" if worst >= 0 else f"at most {-worst:.2f} behind"
    figure, (axis,) = _canvas(
        f"Five sorts of memory: {claim} the better of words and vectors alone", height=3.8
    )
    bars = (("MRR", OURS, "Cairn"), ("cosine MRR", PEER, "cosine alone"), ("bm25 MRR", FLOOR, "BM25 alone"))
    for place, (key, color, told) in enumerate(bars):
        at = [number + (place - 1) * 0.26 for number in range(len(figures))]
        axis.bar(at, [one[key] for one in figures.values()], 0.24, color=color, label=told)
    axis.set_xticks(
        range(len(figures)), [f"{name}\n{one['questions']} questions" for name, one in figures.items()]
    )
    axis.set_ylim(0, 1.18)
    axis.set_ylabel("mean reciprocal rank")
    axis.legend(loc="upper left", ncols=3, fontsize=8.5)
    return figure


PICTURES: Mapping[str, Callable[[str, Mapping[str, Any]], Any]] = {
    "http": _http,
    "search": _search,
    "capture": _capture,
    "locomo": _locomo,
    "variety": _variety,
}
