"""Any mixture of adds, flushes, retries, restarts and second processes keeps every message once, in order."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.world import World, said

_step = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 4), st.booleans(), st.integers(0, 1)),
    st.tuples(st.just("gap"), st.integers(1, 2), st.booleans(), st.integers(0, 1)),
    st.tuples(st.just("flush"), st.just(0), st.booleans(), st.integers(0, 1)),
    st.tuples(st.just("retry"), st.just(0), st.booleans(), st.integers(0, 1)),
    st.tuples(st.just("restart"), st.just(0), st.booleans(), st.integers(0, 1)),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_step, max_size=14))
def test_any_steps_keep_every_message_once_and_in_order(steps):
    """P1: the log holds what was sent, cells tile it without gap or overlap, and each cell has one episode."""
    with tempfile.TemporaryDirectory() as place:
        kits = [World(Path(place), capture__max_messages=3, capture__topic_window=2) for _ in range(2)]
        sent: list[str] = []
        last: tuple = ()
        clock = 0
        for verb, count, defer, which in steps:
            kit = kits[which]
            if verb in {"add", "gap"}:
                clock += 7200 if verb == "gap" else 1
                last = tuple(said(f"<{len(sent) + k}>", clock) for k in range(count))
                kit.add("s1", *last, defer=defer)
                sent += [message.text for message in last]
            elif verb == "retry" and last:
                kit.add("s1", *last, defer=defer)
            elif verb == "flush":
                kit.flush()
            elif verb == "restart":
                kits[which] = World(Path(place), capture__max_messages=3, capture__topic_window=2)
                kits[which].capture.recover()
        kits[0].flush()

        state = kits[1].log()
        assert [message.text for message in state.messages] == sent
        assert [n for cell in state.cells for n in range(cell.first, cell.upto)] == list(range(len(sent)))
        assert all(cell.done and cell.upto - cell.first <= 3 for cell in state.cells)
        entries = [entry for _, entry in kits[0].episodes()]
        assert sorted(e.inline["parent_id"] for e in entries) == sorted(cell.cell_id for cell in state.cells)
