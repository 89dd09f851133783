"""An engine that does not answer is waited for once."""

from __future__ import annotations

import pytest

from cairn.engines.outages import Outage
from cairn.errors import NotFound, StorageFailed, Unavailable


def test_those_who_come_after_are_told_at_once_and_one_asks_again():
    """The engine is asked once for each moment that it is away; a refusal is an answer, and ends it."""
    now, asked, trouble = [0.0], [], [Unavailable("The store is away.")]
    outage = Outage(1.0, clock=lambda: now[0])

    def ask() -> str:
        try:
            with outage.watched():
                asked.append(now[0])
                if trouble:
                    raise trouble[0]
        except (Unavailable, NotFound) as error:
            return str(error)
        return "answered"

    assert [ask() for _ in range(5)] == ["The store is away."] * 5 and asked == [0.0]
    now[0] = 1.5
    assert ask() == outage.words == "The store is away." and asked == [0.0, 1.5]
    trouble[0] = StorageFailed("The key is wrong.")
    now[0] = 3.0
    assert ask() == ask() == "The key is wrong." and not outage.words and len(asked) == 4
    trouble[0] = NotFound("Nothing is there.")
    assert ask() == ask() == "Nothing is there." and len(asked) == 6
    trouble.clear()
    assert ask() == "answered" and outage.words == ""


def test_only_one_waits_while_it_is_away():
    """Somebody who asks while another waits for the answer is refused, in the words known so far."""
    now = [0.0]
    outage = Outage(1.0, clock=lambda: now[0])
    with pytest.raises(Unavailable), outage.watched():
        raise Unavailable("away")
    now[0] = 2.0
    with outage.watched():
        with pytest.raises(Unavailable, match="away"), outage.watched():
            raise AssertionError("it was asked twice")
    with outage.watched():
        pass
    assert outage.words == ""
