"""What search, get, recall and show answer: the items of each kind, with their scores and evidence."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from cairn.operations.answers.shared import FreshnessBlock, MemoryHit, UnprocessedMessage
from cairn.operations.table import says


class AtomicFactItem:
    """A fact that belongs to an episode."""

    id: Annotated[str, says("its id", "alice_af_20260601_00000001")]
    content: Annotated[str, says("what it says", "Alice lives in Lisbon.")]
    score: Annotated[float, says("how well it answers", 0.71)]
    superseded_by: Annotated[
        str | None,
        says("the later fact on the same matter, where there is one", "alice_af_20260801_00000002"),
    ] = None
    until: Annotated[str | None, says("the day of that later fact", "2026-08-01")] = None


class EpisodeItem:
    """A stretch of talk, told."""

    id: Annotated[str, says("its id", "alice_ep_20260601_00000001")]
    user_id: Annotated[str | None, says("whose it is", "alice")]
    app_id: Annotated[str, says("the app", "default")] = "default"
    project_id: Annotated[str, says("the project", "default")] = "default"
    session_id: Annotated[str | None, says("the session it was said in", "s1")] = None
    timestamp: Annotated[str, says("when it was said", "2026-06-01T09:30:00+00:00")]
    sender_ids: Annotated[list[str], says("who spoke", ["alice"])]
    summary: Annotated[str, says("in a sentence or two", "Alice moved to Lisbon.")]
    subject: Annotated[str, says("in a few words", "A move to Lisbon")]
    episode: Annotated[
        str, says("the whole of it", "On 1 June 2026 Alice said that she moved to Lisbon in May.")
    ]
    type: Annotated[Literal["Conversation"], says("what it is", "Conversation")] = "Conversation"
    tags: Annotated[list[str] | None, says("the tags of its messages", ["deploy"])] = None
    metadata: Annotated[
        dict[str, Any] | None,
        says("the metadata of its messages, several values of a key as a list", {"ticket": 42}),
    ] = None


class SearchEpisodeItem(EpisodeItem):
    """An episode that answers."""

    score: Annotated[float, says("how well it answers, 0 to 1", 0.83)]
    path: Annotated[
        str,
        says(
            "its file in the root", "default_app/default_project/users/alice/episodes/episode-2026-06-01.md"
        ),
    ] = ""
    message_ids: Annotated[
        list[str] | None,
        says("the messages it was made from, where they are known", ["m_0123456789abcdef_000000"]),
    ] = None
    explain: Annotated[
        dict[str, float] | None, says("what each leg contributed, where asked for", {"words": 0.4})
    ] = None
    episode_length: Annotated[
        int | None, says("how many characters the whole has, where `episode` is an excerpt of it", 48213)
    ] = None
    atomic_facts: Annotated[list[AtomicFactItem], says("its facts that answer", [])]


class ProfileItem:
    """What is known about somebody as a whole."""

    id: Annotated[str, says("its id", "alice_profile")]
    user_id: Annotated[str | None, says("whose it is", "alice")]
    app_id: Annotated[str, says("the app", "default")] = "default"
    project_id: Annotated[str, says("the project", "default")] = "default"
    profile_data: Annotated[
        dict[str, Any],
        says("its fields, and its text as content", {"summary": "Lives in Lisbon.", "content": "## Home"}),
    ]


class SearchProfileItem(ProfileItem):
    """A profile beside an answer."""

    score: Annotated[float | None, says("how well it answers", 0.5)] = None
    path: Annotated[str, says("its file in the root", "default_app/default_project/users/alice/user.md")] = ""


class AgentCaseItem:
    """How an agent solved a task."""

    id: Annotated[str, says("its id", "coder_ac_20260601_00000001")]
    agent_id: Annotated[str, says("whose it is", "coder")]
    app_id: Annotated[str, says("the app", "default")] = "default"
    project_id: Annotated[str, says("the project", "default")] = "default"
    session_id: Annotated[str, says("the session it happened in", "s1")]
    task_intent: Annotated[str, says("what was wanted", "Find why the service crashes at night")]
    approach: Annotated[str, says("what was done", "1. Read the log. 2. Close the socket.")]
    outcome: Annotated[str | None, says("how it ended: success, partial, failure or unknown", "success")] = (
        None
    )
    quality_score: Annotated[float, says("how well it went, 0 to 1", 0.8)]
    key_insight: Annotated[
        str | None, says("what to remember of it", "The pool never closed its sockets.")
    ] = None
    timestamp: Annotated[str, says("when", "2026-06-02T14:05:00+00:00")]
    tags: Annotated[list[str] | None, says("the tags of its messages", ["deploy"])] = None
    metadata: Annotated[
        dict[str, Any] | None,
        says("the metadata of its messages, several values of a key as a list", {"ticket": 42}),
    ] = None


class SearchAgentCaseItem(AgentCaseItem):
    """A case that answers."""

    score: Annotated[float, says("how well it answers", 0.66)]
    path: Annotated[
        str,
        says(
            "its file in the root", "default_app/default_project/agents/coder/cases/agent_case-2026-06-02.md"
        ),
    ] = ""


class AgentSkillItem:
    """What an agent learned to do."""

    id: Annotated[str, says("its id", "coder_close-sockets")]
    agent_id: Annotated[str, says("whose it is", "coder")]
    app_id: Annotated[str, says("the app", "default")] = "default"
    project_id: Annotated[str, says("the project", "default")] = "default"
    name: Annotated[str, says("its name", "close-sockets")]
    description: Annotated[str, says("when to use it", "When files run out at night")]
    content: Annotated[str, says("how it goes", "## Steps")]
    confidence: Annotated[float, says("how sure it is", 0.7)]
    maturity_score: Annotated[float, says("how well tried it is", 0.4)]
    source_case_ids: Annotated[list[str], says("the cases it comes from", ["ac_20260602_00000001"])]


class SearchAgentSkillItem(AgentSkillItem):
    """A skill that answers."""

    score: Annotated[float, says("how well it answers", 0.6)]
    path: Annotated[
        str,
        says(
            "its file in the root", "default_app/default_project/agents/coder/skills/close-sockets/SKILL.md"
        ),
    ] = ""


class PassagePlace:
    """Which characters of a long message are shown."""

    start: Annotated[int, says("the first", 900)]
    end: Annotated[int, says("the first that is not shown any more", 1780)]
    of: Annotated[int, says("how many the whole message has", 61774)]


class EndedFact:
    """What a message states and a later one has ended."""

    fact: Annotated[str, says("what was so", "Alice: I live in Lisbon.")]
    until: Annotated[str, says("the day since which it is not", "2026-06-01")]
    superseded_by: Annotated[str, says("the fact that ended it", "alice_af_20260601_00000002")]


class EvidenceItem:
    """A verbatim message that supports an answer, or the passage of a long one that does."""

    session_id: Annotated[str, says("where it was said", "s1")]
    message_id: Annotated[str, says("its id", "m_0123456789abcdef_000000")]
    timestamp: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]
    sender_id: Annotated[str, says("who said it", "alice")]
    sender_name: Annotated[str | None, says("the sender's name", "Alice")] = None
    text: Annotated[str, says("what was said", "I moved to Lisbon in May.")]
    score: Annotated[float, says("how well it answers", 0.9)]
    entry_ids: Annotated[list[str], says("the entries made from it", ["ep_20260601_00000001"])]
    tags: Annotated[list[str] | None, says("the tags it was added with", ["deploy"])] = None
    metadata: Annotated[dict[str, Any] | None, says("the metadata it was added with", {"ticket": 42})] = None
    passage: Annotated[
        PassagePlace | None, says("which part of the message `text` is, where it is not all of it", None)
    ] = None
    unflushed: Annotated[
        bool, says("whether it is in no episode yet: its session has not been flushed", False)
    ] = False
    earlier: Annotated[EndedFact | None, says("what it states that is over, where something is", None)] = None


class SearchData:
    """What was found, list by list, best first."""

    episodes: Annotated[list[SearchEpisodeItem], says("stretches of talk", [])]
    profiles: Annotated[list[SearchProfileItem], says("the owner's profile, where asked for", [])]
    agent_cases: Annotated[list[SearchAgentCaseItem], says("cases of an agent", [])]
    agent_skills: Annotated[list[SearchAgentSkillItem], says("skills of an agent", [])]
    unprocessed_messages: Annotated[
        list[UnprocessedMessage], says("what is not extracted yet, with a plain session_id filter", [])
    ]
    memories: Annotated[list[MemoryHit], says("governed memories of the owner", [])]
    unflushed: Annotated[
        list[EvidenceItem],
        says("messages that answer and are in no episode yet, where not in `evidence`", []),
    ]
    knowledge: Annotated[list[KnowledgeItem], says("passages of the space's documents", [])]
    evidence: Annotated[list[EvidenceItem] | None, says("verbatim messages, where asked for", [])] = None
    prompt: Annotated[
        str | None,
        says(
            "text for an agent's context, with for_injection", "Recalled: 2026-06-01: Alice lives in Lisbon."
        ),
    ] = None
    freshness: Annotated[
        FreshnessBlock,
        says("how far the index was behind", {"lsn": 12, "pending": 0, "state": "fresh", "notes": []}),
    ]


class GetData:
    """One page; the array of the asked type is filled."""

    episodes: Annotated[list[EpisodeItem], says("stretches of talk", [])]
    profiles: Annotated[list[ProfileItem], says("profiles", [])]
    agent_cases: Annotated[list[AgentCaseItem], says("cases", [])]
    agent_skills: Annotated[list[AgentSkillItem], says("skills", [])]
    total_count: Annotated[int, says("how many there are in all", 42)] = 0
    count: Annotated[int, says("how many are on this page", 20)] = 0
    freshness: Annotated[
        FreshnessBlock,
        says("how far the index was behind", {"lsn": 12, "pending": 0, "state": "fresh", "notes": []}),
    ]


class RecalledItemData:
    """One recalled text."""

    text: Annotated[str, says("what it says", "Alice lives in Lisbon.")]
    kind: Annotated[str, says("what it is", "episode")]
    score: Annotated[float, says("how well it fits", 0.8)]
    source: Annotated[str, says("where it comes from", "alice")]
    id: Annotated[str, says("its id", "alice_ep_20260601_00000001")]
    at: Annotated[str | None, says("when it was said", "2026-06-01T09:30:00+00:00")]


class RecalledData:
    """What was recalled, best first."""

    items: Annotated[list[RecalledItemData], says("each text once", [])]
    prompt: Annotated[
        str, says("the same as text for a prompt, framed as data; empty for nothing", "Recalled: ...")
    ]
    tokens: Annotated[int, says("how many tokens the prompt takes", 120)]
    notes: Annotated[list[str], says("what could not be asked, and why", [])]
    freshness: Annotated[
        FreshnessBlock,
        says("how far the index was behind", {"lsn": 12, "pending": 0, "state": "fresh", "notes": []}),
    ]


class ShownMessage:
    """A message behind an entry."""

    id: Annotated[str, says("its id", "m_0123456789abcdef_000000")]
    timestamp: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]
    sender_id: Annotated[str, says("who said it", "alice")]
    sender_name: Annotated[str | None, says("the sender's name", "Alice")]
    role: Annotated[str, says("whose turn it was", "user")]
    text: Annotated[str, says("what was said", "I moved to Lisbon in May.")]


class ShownData:
    """One thing by its id."""

    id: Annotated[str, says("its id", "alice_ep_20260601_00000001")]
    kind: Annotated[str, says("what it is", "episode")]
    scope: Annotated[str, says("whose kind of memory it is in", "user")]
    owner: Annotated[str, says("whose it is", "alice")]
    path: Annotated[
        str,
        says(
            "its file in the root", "default_app/default_project/users/alice/episodes/episode-2026-06-01.md"
        ),
    ]
    line: Annotated[int, says("where it begins; 0 for a whole file", 12)]
    source: Annotated[
        str | None, says("its Markdown, where it can be edited", "### Content\nShe moved to Lisbon.")
    ] = None
    version: Annotated[str | None, says("what `revise` expects", "9f86d081884c7d65")] = None
    inline: Annotated[dict[str, Any], says("its fields", {"session_id": "s1"})]
    sections: Annotated[dict[str, str], says("its texts by title", {"Subject": "A move to Lisbon"})]
    messages: Annotated[list[ShownMessage], says("the talk behind it", [])]


class KnowledgeItem:
    """A passage of a document that answers."""

    id: Annotated[str, says("its id", "d_0123456789abcdef_2")]
    app_id: Annotated[str, says("the app", "default")]
    project_id: Annotated[str, says("the project", "default")]
    doc_id: Annotated[str, says("its document", "d_0123456789abcdef")]
    topic_id: Annotated[str, says("its topic", "d_0123456789abcdef_2")]
    title: Annotated[str, says("the title of the document", "Tides")]
    category_id: Annotated[str, says("its category", "manuals")]
    heading: Annotated[str, says("the headings it stands under", "Tides > Springs")]
    line: Annotated[int, says("the line it begins on", 17)]
    content: Annotated[str, says("its words", "High at noon.")]
    path: Annotated[str, says("its file", "default_app/default_project/knowledge/manuals/Tides_d_01.md")]
    score: Annotated[float, says("how well it answers, 0 to 1", 0.83)]
