"""The list of strategies, in the order in which they run."""

from __future__ import annotations

from cairn.strategies import Strategy
from cairn.strategies.cases import ExtractAgentCase
from cairn.strategies.corrections import FollowCorrections
from cairn.strategies.facts import ExtractAtomicFacts
from cairn.strategies.foresight import ExtractForesight
from cairn.strategies.profile import ExtractUserProfile
from cairn.strategies.proposals import ProposeMemories
from cairn.strategies.reflection import ReflectEpisodes
from cairn.strategies.skills import ExtractAgentSkill


def all_strategies() -> list[Strategy]:
    """One of each."""
    return [
        ExtractAtomicFacts(),
        ExtractForesight(),
        ExtractUserProfile(),
        # After those whose notes it mends: what they have not written yet cannot be put right.
        FollowCorrections(),
        ExtractAgentCase(),
        ExtractAgentSkill(),
        ProposeMemories(),
        ReflectEpisodes(),
    ]
