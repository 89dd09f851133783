"""What operations answer, over HTTP and with `--json`: one class per shape, each field with words and an example.

These classes describe; nothing is made of them at run time. An answer may carry more fields than are named here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from cairn.operations.table import says


class ToolFunction:
    """The function a tool call names."""

    name: Annotated[str, says("its name", "get_weather")]
    arguments: Annotated[str, says("its arguments, as JSON text", '{"city": "Lisbon"}')]


class ToolCall:
    """A tool call of an assistant."""

    id: Annotated[str, says("its id", "call_1")]
    type: Annotated[str, says("its type", "function")] = "function"
    function: Annotated[ToolFunction, says("what is called", {"name": "get_weather", "arguments": "{}"})]


class ContentItem:
    """One piece of a message that is more than text."""

    type: Annotated[
        Literal["text", "image", "audio", "doc", "pdf", "html", "email"], says("what it is", "text")
    ]
    text: Annotated[str | None, says("its text", "I moved to Lisbon.")] = None
    uri: Annotated[str | None, says("where it is", "https://example.org/a.png")] = None
    base64: Annotated[str | None, says("its bytes", "aGVsbG8=")] = None
    ext: Annotated[str | None, says("the ending of its file name", "png")] = None
    name: Annotated[str | None, says("its file name", "boat.png")] = None
    extras: Annotated[dict[str, Any] | None, says("whatever else belongs to it", {"width": 640})] = None


class MessageItem:
    """One message in Cairn's own form; messages of OpenAI, Anthropic and LangChain are taken as they are, too."""

    sender_id: Annotated[
        str | None, says('who said it; user_id of the call for a user, "assistant" otherwise', "alice")
    ] = None
    sender_name: Annotated[str | None, says("the sender's name as it should read", "Alice")] = None
    role: Annotated[Literal["user", "assistant", "tool"], says("whose turn it was", "user")]
    timestamp: Annotated[
        int | None, says("when, in epoch milliseconds; now where it is left out", 1780300000000)
    ] = None
    content: Annotated[str | list[ContentItem], says("what was said", "I moved to Lisbon in May.")]
    tool_calls: Annotated[list[ToolCall] | None, says("tools the assistant called", [])] = None
    tool_call_id: Annotated[str | None, says("which call a tool answers", "call_1")] = None
    tags: Annotated[list[str] | None, says("words of the caller's to filter on", ["deploy"])] = None
    metadata: Annotated[
        dict[str, Any] | None,
        says("values of the caller's; those of its keys can be filtered on", {"ticket": 42}),
    ] = None


class FreshnessBlock:
    """How far the index was behind when it answered."""

    lsn: Annotated[int, says("every change up to this one was seen", 12)]
    pending: Annotated[int, says("changes, and rows without their vector, that wait", 0)]
    state: Annotated[Literal["fresh", "behind", "rebuilding"], says("whether the answer is whole", "fresh")]
    notes: Annotated[list[str], says("what else there is to know", ["search by words alone: no model"])]


class AddData:
    """What became of the messages."""

    message_count: Annotated[int, says("how many messages were kept", 2)]
    status: Annotated[
        Literal["accumulated", "extracted", "queued"],
        says('"extracted" if an episode was written, "queued" if one follows', "accumulated"),
    ]
    lsn: Annotated[int | None, says("the change to wait for with min_lsn", 12)] = None
    pending: Annotated[
        int | None, says('messages of the session that wait to be extracted, where the status is "queued"', 2)
    ] = None
    waiting: Annotated[list[str] | None, says("episodes that could not be written yet, and why", [])] = None
    skipped: Annotated[list[str] | None, says("messages that are no talk and were left out, and why", [])] = (
        None
    )
    recalled: Annotated[
        int | None, says("framed recalls that were taken out: what was recalled is not kept again", 1)
    ] = None


class FlushData:
    """What became of the open stretch."""

    status: Annotated[
        Literal["extracted", "no_extraction"], says('"no_extraction" if nothing was open', "extracted")
    ]
    lsn: Annotated[int | None, says("the change to wait for with min_lsn", 13)] = None
    waiting: Annotated[list[str], says("episodes that could not be written yet, and why", [])]


class UnprocessedData:
    """What is said and in no episode yet."""

    messages: Annotated[list[UnprocessedMessage], says("the messages, oldest first", [])]


class OwnersData:
    """Who spoke."""

    owners: Annotated[list[str], says("the ids of the senders, in order of appearance", ["alice", "helper"])]


class RewrittenData:
    """What was written anew."""

    rewritten: Annotated[int, says("how many episodes changed", 3)]


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
    message_ids: Annotated[list[str], says("the messages it was made from", ["m_0123456789abcdef_000000"])]
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


class UnprocessedMessage:
    """A message that is in no episode yet."""

    id: Annotated[str, says("its id", "m_0123456789abcdef_000000")]
    app_id: Annotated[str, says("the app", "default")] = "default"
    project_id: Annotated[str, says("the project", "default")] = "default"
    session_id: Annotated[str, says("the session", "s1")]
    sender_id: Annotated[str, says("who said it", "alice")]
    sender_name: Annotated[str | None, says("the sender's name", "Alice")] = None
    role: Annotated[Literal["user", "assistant", "tool"], says("whose turn it was", "user")]
    content: Annotated[str | list[dict[str, Any]], says("what was said", "I moved to Lisbon in May.")]
    timestamp: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]
    tool_calls: Annotated[list[dict[str, Any]] | None, says("tools that were called", [])] = None
    tool_call_id: Annotated[str | None, says("which call a tool answers", "call_1")] = None
    tags: Annotated[list[str] | None, says("the tags it was added with", ["deploy"])] = None
    metadata: Annotated[dict[str, Any] | None, says("the metadata it was added with", {"ticket": 42})] = None


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


class MemoryHit:
    """A governed memory that answers; its fields follow these."""

    id: Annotated[str, says("its id", "alice_mem_20260601_00000001")]
    app_id: Annotated[str, says("the app", "default")]
    project_id: Annotated[str, says("the project", "default")]
    scope: Annotated[str, says("whose kind of memory it is", "user")]
    owner_id: Annotated[str | None, says("whose it is", "alice")]
    content: Annotated[str, says("what it says", "Prefers short answers.")]
    timestamp: Annotated[str, says("since when it is known", "2026-06-01T09:30:00+00:00")]
    score: Annotated[float, says("how well it answers", 0.8)]
    path: Annotated[
        str,
        says("its file in the root", "default_app/default_project/users/alice/memories/memory-2026-06-01.md"),
    ]


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


class MemoryRow:
    """A governed memory; more columns follow these."""

    id: Annotated[str, says("its id", "alice_mem_20260601_00000001")]
    scope: Annotated[str, says("whose kind of memory it is", "user")]
    scope_owner_id: Annotated[str, says("whose it is", "alice")]
    category: Annotated[str, says("what kind of statement it is", "preference")]
    content: Annotated[str, says("what it says", "Prefers short answers.")]
    importance: Annotated[str, says("how much it matters", "medium")]
    confidence: Annotated[float, says("how sure it is", 0.8)]
    status: Annotated[str, says("candidate, promoted or archived", "promoted")]
    tier: Annotated[int, says("how close to hand it is kept", 2)]
    pinned: Annotated[int, says("1 if it is kept at hand for good", 0)]
    origin: Annotated[str, says("where the words come from", "human")]
    path: Annotated[
        str,
        says("its file in the root", "default_app/default_project/users/alice/memories/memory-2026-06-01.md"),
    ]


class VerdictData:
    """What the gate decided."""

    accepted: Annotated[bool, says("whether it is kept", True)]
    memory: Annotated[MemoryRow | None, says("the memory as it stands", {"id": "mem_20260601_00000001"})] = (
        None
    )
    reason: Annotated[str | None, says("why it was refused or merged", "near_duplicate")] = None
    detail: Annotated[str | None, says("the same in words", "It repeats a memory.")] = None
    deduped: Annotated[bool | None, says("whether it was merged into another", True)] = None
    mergedIntoId: Annotated[str | None, says("into which", "mem_20260601_00000001")] = None  # noqa: N815 -- the contract's name
    lsn: Annotated[int | None, says("the change to wait for with min_lsn", 12)] = None
    contradicts: Annotated[
        list[str] | None, says("the memories that say otherwise; both are marked", ["mem_20260601_00000001"])
    ] = None


class MemoriesData:
    """One page of memories."""

    memories: Annotated[list[MemoryRow], says("the memories, newest change first", [])]
    total: Annotated[int, says("how many there are in all", 12)]


class MemorySearchData:
    """The memories that answer."""

    memories: Annotated[list[MemoryHit], says("best first", [])]
    prompt: Annotated[
        str | None, says("text for an agent's context, with for_injection", "Recalled: deploys wait.")
    ] = None
    freshness: Annotated[
        FreshnessBlock,
        says("how far the index was behind", {"lsn": 12, "pending": 0, "state": "fresh", "notes": []}),
    ]


class LeftItem:
    """Something that could not be removed."""

    where: Annotated[str, says("where it is", "strategies")]
    why: Annotated[str, says("why it is left", "one has been running for a minute")]


class FoundItem:
    """A thing that goes, or is merely alike."""

    what: Annotated[str, says("what it is", "memory")]
    id: Annotated[str, says("its id", "alice_mem_20260601_00000001")]
    path: Annotated[
        str, says("its file", "default_app/default_project/users/alice/memories/memory-2026-06-01.md")
    ]
    owner: Annotated[str, says("whose it is", "alice")]
    words: Annotated[str, says("its words", "Lives at Elm Street 12.")]
    why: Annotated[str, says("why it is named", "it was named")]


class ReceiptData:
    """What was forgotten."""

    id: Annotated[str, says("the receipt's id", "forget-20260601T093000Z")]
    at: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]
    complete: Annotated[bool, says("whether not a byte of the words is left below the root", True)]
    dry_run: Annotated[bool, says("whether nothing was removed, only told", False)]
    taken: Annotated[list[FoundItem], says("what went", [])]
    alike: Annotated[list[FoundItem], says("what is merely alike and stays", [])]
    removed: Annotated[dict[str, int], says("how many of each", {"entries": 2})]
    places: Annotated[list[str], says("where something was removed", ["notes"])]
    left: Annotated[list[LeftItem], says("what could not be removed", [])]


class HistoryItem:
    """One thing that happened to a memory; what is empty is left out."""

    at: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]
    what: Annotated[str, says("what happened", "edited")]
    by: Annotated[str, says("who did it", "human")] = ""
    reason: Annotated[str, says("why", "the pipeline is new")] = ""
    old: Annotated[dict[str, Any] | None, says("fields as they were", {"content": "We use spaces."})] = None
    new: Annotated[dict[str, Any] | None, says("fields as they are since", {"content": "We use tabs."})] = (
        None
    )


class HistoryData:
    """Everything on record about a memory."""

    history: Annotated[list[HistoryItem], says("oldest first", [])]


class WhyData:
    """Why a memory is kept as it is."""

    why: Annotated[list[str], says("in sentences", ["A person said it on 2026-06-01."])]


class Move:
    """A change of state."""

    id: Annotated[str, says("the memory", "mem_20260601_00000001")]
    move: Annotated[str, says("what happened", "demoted")]
    reason: Annotated[str, says("why", "not read for 30 days")]


class OutcomeItem:
    """How one use of a procedure went."""

    id: Annotated[str, says("its number", "2026-06-01T09:30:00+00:00#1")]
    outcome: Annotated[Literal["success", "failure"], says("how it went", "success")]
    confidence: Annotated[float, says("how sure the procedure was after it", 0.62)]
    reason: Annotated[str | None, says("why", "the deploy went through")]
    recorded_at: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]


class ProcedureSource:
    """What a procedure was learned from."""

    episode_memory_id: Annotated[str, says("the episode or case", "coder_ac_20260601_00000001")]
    created_at: Annotated[str, says("when it was noted", "2026-06-01T09:30:00+00:00")]


class ProcedureData:
    """A procedure as a whole."""

    id: Annotated[str, says("its id", "mem_20260601_00000001")]
    content: Annotated[str, says("what it is", "Roll back a failed deploy")]
    trigger: Annotated[str, says("when it applies", "a deploy fails")]
    procedure: Annotated[str, says("how it goes", "1. Roll back. 2. Tell.")]
    status: Annotated[str, says("candidate, promoted or archived", "promoted")]
    pinned: Annotated[bool, says("whether it is kept at hand", True)]
    confidence: Annotated[float, says("how sure it is", 0.81)]
    success_count: Annotated[int, says("how often it worked", 3)]
    failure_count: Annotated[int, says("how often it did not", 0)]
    last_used_at: Annotated[str | None, says("when it was used last", "2026-06-01T09:30:00+00:00")]
    exported_skill_path: Annotated[str | None, says("its skill file", None)]
    superseded_by_memory_id: Annotated[str | None, says("what replaced it", None)]
    history: Annotated[list[OutcomeItem], says("every outcome, oldest first", [])]
    sources: Annotated[list[ProcedureSource], says("what it was learned from", [])]


class CaptureData:
    """What became of what was fed in."""

    captured: Annotated[bool, says("whether it is kept now", True)]
    reason: Annotated[str | None, says('why not: "known" if its source was taken in before', None)]
    verdict: Annotated[VerdictData | None, says("what the gate said", None)]


class CaptureRow:
    """One source that was taken in."""

    id: Annotated[str, says("its id", "led_0123456789abcdef")]
    project_id: Annotated[str, says("the space", "default/default")]
    source_type: Annotated[str, says("what it is", "pr_feedback")]
    source_key: Annotated[str, says("what tells it from others", "pr-17/comment-3")]
    memory_id: Annotated[str | None, says("the memory it became", "mem_20260601_00000001")]
    episode_memory_id: Annotated[str | None, says("the episode it belongs to", None)]
    metadata: Annotated[dict[str, Any], says("what else is known", {})]
    created_at: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]
    updated_at: Annotated[str, says("when it changed last", "2026-06-01T09:30:00+00:00")]


class CapturesData:
    """The sources that were taken in."""

    captures: Annotated[list[CaptureRow], says("the newest first", [])]
    total: Annotated[int, says("how many there are", 3)]


class IdentityData:
    """Who an agent is."""

    id: Annotated[str, says("its id", "coder")]
    project_id: Annotated[str, says("the space", "default/default")]
    name: Annotated[str, says("what it is called", "The coder")]
    profile: Annotated[dict[str, Any], says("what it is", {"role": "reviewer"})]
    persona: Annotated[dict[str, Any], says("how it speaks", {"tone": "dry"})]
    tool_policy: Annotated[dict[str, Any], says("what it may use", {"shell": "ask"})]
    user_preferences: Annotated[dict[str, Any], says("what its people prefer", {"language": "en"})]
    heartbeat: Annotated[dict[str, Any] | None, says("when it wakes by itself", None)]
    model_preference: Annotated[str | None, says("the model it should run on", None)]
    created_at: Annotated[str, says("since when", "2026-06-01T09:30:00+00:00")]
    updated_at: Annotated[str, says("when it changed last", "2026-06-01T09:30:00+00:00")]


class AgentsData:
    """The agents of a space."""

    agents: Annotated[list[IdentityData], says("those with an identity", [])]


class AgentData:
    """One agent."""

    identity: Annotated[IdentityData | None, says("who it is, where that is on record", None)]
    documents: Annotated[dict[str, str], says("its documents by name", {"soul": "Speak plainly."})]


class AgentDocumentData:
    """A document that was written."""

    path: Annotated[str, says("its file in the root", "default_app/default_project/agents/coder/soul.md")]
    lsn: Annotated[int, says("the change to wait for with min_lsn; 0 if nothing changed", 12)]


class RunItem:
    """A piece of work that wrote many entries."""

    run_id: Annotated[str, says("its id, to undo it by", "con_0123456789ab")]
    kind: Annotated[
        str, says("consolidation, sweep, reflection, correction, import, mission or undo", "consolidation")
    ]
    at: Annotated[str, says("when it began to write", "2026-06-01T10:00:00+00:00")]
    entries: Annotated[int, says("how many changes of entries it made", 4)]
    undone_at: Annotated[str | None, says("when it was taken back, if it was", None)]


class KeepingRuns:
    """When memories were kept in order, and what else wrote many of them."""

    runs: Annotated[list[RunItem], says("every kind of run, newest first", [])]
    last_sweep: Annotated[dict[str, Any] | None, says("the last sweep with its counts", None)]
    last_consolidation: Annotated[dict[str, Any] | None, says("the last consolidation", None)]
    sweeps: Annotated[list[dict[str, Any]], says("the sweeps, newest first", [])]
    consolidations: Annotated[list[dict[str, Any]], says("the consolidations, newest first", [])]


class DailyData:
    """The daily log."""

    days: Annotated[dict[str, Any], says("the lines of each day", {"2026-06-01": ["- 09:30 Released 2.0."]})]


class SweepData:
    """What a sweep did."""

    sweep_id: Annotated[str, says("its id", "swp_0123456789ab")]
    trigger_reason: Annotated[str, says("why it ran", "manual")]
    dry_run: Annotated[bool, says("whether nothing was changed, only told", False)]
    entries_decayed: Annotated[int, says("how many lost score", 4)]
    entries_demoted: Annotated[int, says("how many went further away", 1)]
    entries_promoted: Annotated[int, says("how many were promoted", 0)]
    entries_archived: Annotated[int, says("how many were put away", 1)]
    entries_orphaned: Annotated[int, says("how many had lost what they were about", 0)]
    transitions: Annotated[list[Move], says("each change of state", [])]


class Merged:
    """A cluster that became one memory."""

    scope: Annotated[str, says("whose kind of memory", "project")]
    owner: Annotated[str, says("whose", "")]
    category: Annotated[str, says("what kind of statement", "fact")]
    new_id: Annotated[str | None, says("the new memory, where one was made", "mem_20260601_00000009")]
    originals: Annotated[list[str], says("what it was made from", ["mem_20260601_00000001"])]


class ConsolidateData:
    """What was merged."""

    run_id: Annotated[str, says("the run, to undo it by", "con_0123456789ab")]
    dry_run: Annotated[bool, says("whether nothing was changed, only told", False)]
    merged: Annotated[list[Merged], says("each cluster", [])]


class MissionEndData:
    """What became of a run's memories."""

    run_id: Annotated[str, says("the run", "run-42")]
    success: Annotated[bool, says("how it ended", True)]
    promoted: Annotated[list[str], says("what went to the project", ["mem_20260601_00000003"])]
    archived: Annotated[list[str], says("what was put away", [])]
    already: Annotated[bool, says("whether it had ended before", False)]


class CoreData:
    """The small document an agent always has before it."""

    projectSummary: Annotated[str, says("what the project is", "A parser for tide tables.")]  # noqa: N815 -- the contract's name
    criticalConventions: Annotated[list[str], says("what must be kept to", ["Tabs"])]  # noqa: N815 -- the contract's name
    userPreferences: Annotated[list[str], says("what its people prefer", ["Short answers"])]  # noqa: N815 -- the contract's name
    activeFocus: Annotated[list[str], says("what is worked on", ["the 2.0 release"])]  # noqa: N815 -- the contract's name
    notes: Annotated[list[str], says("what else to know", ["Mind the tide."])]
    version: Annotated[int, says("grows with each change; 0 where there is none yet", 3)]
    updatedAt: Annotated[str, says("when it changed last", "2026-06-01T09:30:00+00:00")]  # noqa: N815 -- the contract's name


class SkillItem:
    """A skill file that is known; more columns follow these."""

    path: Annotated[str, says("the file", "skills/deploy/SKILL.md")]
    kind: Annotated[str, says("a skill or a command", "skill")]
    memory_id: Annotated[str | None, says("the memory that stands for it", "mem_20260601_00000004")]
    archived_at: Annotated[str | None, says("since when it is gone", "2026-06-02T00:00:00+00:00")]


class SkillsData:
    """The skill files that are known."""

    skills: Annotated[list[SkillItem], says("tombstones included", [])]


class RefusedFile:
    """A file that was not taken."""

    path: Annotated[str, says("the file", "skills/x/SKILL.md")]
    reason: Annotated[str, says("why", "it has no name")]


class ScanData:
    """What a look at skill files found."""

    added: Annotated[list[str], says("new ones", ["skills/deploy/SKILL.md"])]
    changed: Annotated[list[str], says("changed ones", [])]
    removed: Annotated[list[str], says("those that are gone", [])]
    unchanged: Annotated[list[str], says("the rest", [])]
    superseded: Annotated[list[str], says("memories that newer files replaced", [])]
    refused: Annotated[list[RefusedFile], says("files that were not taken", [])]


class SkillPath:
    """Where a skill was written."""

    path: Annotated[str, says("the file in the root", "default_app/default_project/skills/deploy/SKILL.md")]


class RefusedItem:
    """An item that was not taken."""

    key: Annotated[str, says("which", "item 3")]
    reason: Annotated[str, says("why", "empty")]


class ImportData:
    """What was taken in."""

    kept: Annotated[list[str], says("new memories", ["mem_20260601_00000005"])]
    merged: Annotated[list[str], says("memories that said the same", [])]
    known: Annotated[list[str], says("items that were taken in before", [])]
    refused: Annotated[list[RefusedItem], says("items that were not taken", [])]


class PageEdit:
    """A page that somebody had edited."""

    page: Annotated[str, says("the page", "MEMORY.md")]
    kept_as: Annotated[str, says("where the edit is kept", "MEMORY.edited.md")]


class PagesData:
    """What became of the pages."""

    written: Annotated[list[str], says("pages that changed", ["MEMORY.md"])]
    unchanged: Annotated[list[str], says("pages that were current", [])]
    edited: Annotated[list[PageEdit], says("pages that had been edited by hand", [])]


class OverviewOwner:
    """One owner of memory."""

    app_id: Annotated[str, says("the app", "default")]
    project_id: Annotated[str, says("the project", "default")]
    scope: Annotated[str, says("user, agent, mission or project", "user")]
    owner: Annotated[str, says("who; empty for the project itself", "alice")]
    kinds: Annotated[dict[str, int], says("how many entries of each kind", {"episode": 12})]


class OverviewData:
    """Who has a memory here."""

    owners: Annotated[list[OverviewOwner], says("every owner that may be seen", [])]
    freshness: Annotated[
        FreshnessBlock,
        says("how far the index was behind", {"lsn": 12, "pending": 0, "state": "fresh", "notes": []}),
    ]


class EntryCard:
    """An entry as one line of a listing."""

    id: Annotated[str, says("its id", "alice_ep_20260601_00000001")]
    kind: Annotated[str, says("what it is", "episode")]
    app_id: Annotated[str, says("the app", "default")]
    project_id: Annotated[str, says("the project", "default")]
    scope: Annotated[str, says("whose kind of memory it is", "user")]
    owner: Annotated[str, says("whose it is", "alice")]
    title: Annotated[str, says("in a few words", "A move to Lisbon")]
    text: Annotated[str, says("the beginning of its text", "On 1 June 2026 Alice said ...")]
    timestamp: Annotated[str, says("when; empty where unknown", "2026-06-01T09:30:00+00:00")]
    session_id: Annotated[str, says("the session it was said in", "s1")]
    status: Annotated[str, says("of a memory: candidate, promoted or archived", "promoted")]
    category: Annotated[str, says("of a memory: what kind of statement", "preference")]
    pinned: Annotated[bool, says("whether it is kept at hand for good", False)]
    origin: Annotated[str, says("of a memory: where the words come from", "human")]
    path: Annotated[
        str,
        says(
            "its file in the root", "default_app/default_project/users/alice/episodes/episode-2026-06-01.md"
        ),
    ]


class DayCount:
    """How much there is of one day."""

    day: Annotated[str, says("the day, in the display zone", "2026-06-01")]
    count: Annotated[int, says("how many entries", 12)]


class TimelineData:
    """Entries, newest first."""

    entries: Annotated[list[EntryCard], says("the entries", [])]
    total: Annotated[int, says("how many there are in all", 420)]
    days: Annotated[list[DayCount] | None, says("entries of each day, where asked for", [])] = None
    freshness: Annotated[
        FreshnessBlock,
        says("how far the index was behind", {"lsn": 12, "pending": 0, "state": "fresh", "notes": []}),
    ]


class UpcomingItem(EntryCard):
    """A plan."""

    starts: Annotated[str, says("when its time begins; of a deadline the day it was told", "2026-06-01")]
    ends: Annotated[str, says("when its time ends", "2026-06-12")]
    due: Annotated[str, says("the day to be shown: when it is due; empty where none was told", "2026-06-12")]


class UpcomingData:
    """What is coming up."""

    entries: Annotated[list[UpcomingItem], says("plans, the soonest first", [])]
    freshness: Annotated[
        FreshnessBlock,
        says("how far the index was behind", {"lsn": 12, "pending": 0, "state": "fresh", "notes": []}),
    ]


class SaidItem:
    """Words behind an entry."""

    sender: Annotated[str, says("who said it", "Alice")]
    text: Annotated[str, says("what was said", "I moved to Lisbon in May.")]


class FoundCard(EntryCard):
    """An entry that answers."""

    score: Annotated[float, says("how well it answers", 0.83)]
    facts: Annotated[list[str] | None, says("its facts that answer", ["Alice lives in Lisbon."])] = None
    said: Annotated[list[SaidItem] | None, says("verbatim words behind it", [])] = None
    explain: Annotated[
        dict[str, float] | None, says("what each leg contributed, where asked for", {"words": 0.4})
    ] = None


class FoundData:
    """What was found in everybody's memory."""

    hits: Annotated[list[FoundCard], says("best first", [])]
    freshness: Annotated[
        FreshnessBlock,
        says("how far the index was behind", {"lsn": 12, "pending": 0, "state": "fresh", "notes": []}),
    ]


class LinkedData:
    """How an entry is connected."""

    came_from: Annotated[list[EntryCard], says("the entry it was made from", [])]
    made_from_it: Annotated[list[EntryCard], says("what was made from it", [])]
    supersedes: Annotated[list[EntryCard], says("what it replaces", [])]
    superseded_by: Annotated[list[EntryCard], says("what replaced it", [])]
    contradicts: Annotated[list[EntryCard], says("what says otherwise", [])]


class RevisedData:
    """An entry that was put right."""

    id: Annotated[str, says("its id", "alice_ep_20260601_00000001")]
    version: Annotated[str, says("its version from now on", "9f86d081884c7d65")]


class ChangeItem:
    """One change of an entry."""

    id: Annotated[str, says("the change, to restore what was before it", "ent-000001")]
    at: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]
    path: Annotated[
        str, says("the note", "default_app/default_project/users/alice/episodes/episode-2026-06-01.md")
    ]
    entry: Annotated[str, says("the entry", "ep_20260601_00000001")]
    before: Annotated[str | None, says("the hash of its text before", "9f86d081")]
    after: Annotated[str | None, says("the hash of its text after", "60303ae2")]
    cause: Annotated[str, says("what changed it", "edit")]
    action: Annotated[Literal["added", "changed", "removed"], says("what happened", "changed")]
    diff: Annotated[str | None, says("line by line, where asked for", "-Porto\n+Lisbon")] = None


class LogData:
    """Changes of entries."""

    changes: Annotated[list[ChangeItem], says("newest first", [])]


class CheckpointData:
    """A marked moment."""

    id: Annotated[str, says("its id", "chk-000001")]
    at: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]
    changes: Annotated[int, says("how many changes there were by then", 12)]
    hash: Annotated[str, says("the hash of all of them", "9f86d081")]
    label: Annotated[str, says("what it is called", "before the move")]


class CheckpointsData:
    """The marked moments."""

    checkpoints: Annotated[list[CheckpointData], says("oldest first", [])]


class DifferenceItem:
    """An entry that is different now."""

    path: Annotated[
        str, says("the note", "default_app/default_project/users/alice/episodes/episode-2026-06-01.md")
    ]
    entry: Annotated[str, says("the entry", "ep_20260601_00000001")]
    action: Annotated[Literal["added", "changed", "removed"], says("what happened", "changed")]
    diff: Annotated[str, says("the difference, line by line", "-Porto\n+Lisbon")]


class DiffData:
    """What is different now."""

    differences: Annotated[list[DifferenceItem], says("each entry", [])]


class RestoredItem:
    """An entry that was, or would be, brought back."""

    path: Annotated[
        str, says("the note", "default_app/default_project/users/alice/episodes/episode-2026-06-01.md")
    ]
    entry: Annotated[str, says("the entry", "ep_20260601_00000001")]
    action: Annotated[
        Literal["write", "remove", "purged"], says('"purged" for one whose text was forgotten since', "write")
    ]


class RestoreData:
    """What was brought back."""

    dry_run: Annotated[bool, says("whether nothing was changed, only told", False)]
    entries: Annotated[list[RestoredItem], says("each entry", [])]


class RunSummary:
    """One run of a strategy."""

    run_id: Annotated[str, says("its id", "17")]
    status: Annotated[str, says("how it went", "done")]
    error: Annotated[str | None, says("what went wrong", "the model did not answer")] = None


class TriggerAnswer:
    """What running a strategy did."""

    status: Annotated[str, says("done, timeout, disabled or busy", "done")]
    name: Annotated[str, says("the strategy", "extract_atomic_facts")]
    dispatched: Annotated[int, says("how many runs it took", 3)]
    waiting: Annotated[int, says("how many still wait", 0)] = 0
    runs: Annotated[list[RunSummary], says("its latest runs", [])]


class StrategyItem:
    """One strategy."""

    name: Annotated[str, says("its name", "extract_atomic_facts")]
    purpose: Annotated[str, says("what it is for", "facts from episodes")]
    enabled: Annotated[bool, says("whether it is on", True)]
    trigger: Annotated[str, says("when it runs", "episode")]
    runs: Annotated[int, says("runs that were done", 12)]
    skipped: Annotated[int, says("runs that had nothing to do", 0)]
    waiting: Annotated[int, says("runs that wait", 0)]
    failed: Annotated[int, says("runs that were given up", 0)]
    last_run: Annotated[str, says("when it ran last", "2026-06-01T09:30:00+00:00")]
    last_error: Annotated[str, says("what went wrong last", "")]


class StrategiesData:
    """The strategies."""

    strategies: Annotated[list[StrategyItem], says("each with how its runs went", [])]


class TakenBack:
    """What became of one entry of a run."""

    path: Annotated[str, says("its note", "default_app/default_project/shared/memories/memory-2026-06-01.md")]
    entry: Annotated[str, says("its id", "mem_20260601_00000001")]
    action: Annotated[
        Literal["write", "remove", "kept", "purged"],
        says(
            "put back, taken out, kept because it was changed since, or gone because it was forgotten",
            "write",
        ),
    ]


class UndoneData:
    """What was taken back."""

    run_id: Annotated[str, says("the run", "con_0123456789ab")]
    kind: Annotated[str, says("what it was", "consolidation")]
    dry_run: Annotated[bool, says("whether nothing was changed, only told", False)]
    restored: Annotated[int, says("how many entries are as they were before", 3)]
    kept: Annotated[int, says("how many were changed since and stay", 0)]
    entries: Annotated[list[TakenBack], says("each entry that was not as before the run", [])]


class SetAside:
    """A line that could not be used."""

    path: Annotated[str, says("the file", "default_app/default_project/sessions/s1.jsonl")]
    trouble: Annotated[str, says("what is wrong with it", "line 3: not JSON")]


class WaitingItem:
    """An episode that could not be written yet."""

    owner: Annotated[str, says("whose it is", "alice")]
    session_id: Annotated[str, says("the session it comes from", "s1")]
    cell_id: Annotated[str, says("the stretch of talk", "mc_0123456789ab")]
    reason: Annotated[str, says("why", "the disk is full")]


class IndexStatus:
    """The queue and the index at a glance."""

    state: Annotated[str, says("fresh, behind or rebuilding", "fresh")]
    pending: Annotated[int, says("changes that wait", 0)]
    done: Annotated[int, says("files that are indexed", 42)]
    failed: Annotated[int, says("files that could not be", 0)]
    last_lsn: Annotated[int, says("the newest change", 99)]
    applied_lsn: Annotated[int, says("every change up to this one is searchable", 99)]
    rows: Annotated[int, says("rows in the index", 512)]
    vectors_missing: Annotated[int, says("rows that wait for their vector", 0)]
    index_bytes: Annotated[int, says("its bytes on disk, all below .index", 1048576)]
    engine: Annotated[str, says("who answers: auto, memory or lancedb", "auto")]
    lancedb: Annotated[
        dict[str, int],
        says(
            "rows in the tables of LanceDB, and changes that are not in them yet", {"rows": 512, "waiting": 0}
        ),
    ]
    set_aside: Annotated[list[SetAside], says("lines that could not be used", [])]
    waiting: Annotated[list[WaitingItem], says("episodes that could not be written yet", [])]
    daemon: Annotated[
        dict[str, Any] | None, says("how background life goes, while there is one", {"healthy": True})
    ] = None


class DocumentStored:
    """A document that was taken in."""

    doc_id: Annotated[str, says("its id", "d_0123456789abcdef")]
    category_id: Annotated[str, says("its category", "manuals")]
    topic_count: Annotated[int, says("how many topics it has", 12)]
    source_name: Annotated[str | None, says("the name of the original", "tides.pdf")]
    md_path: Annotated[
        str, says("its file in the root", "default_app/default_project/knowledge/manuals/Tides_d_01.md")
    ]
    original_file_path: Annotated[
        str | None, says("where the original is; none for one that was sent", "/srv/tides.pdf")
    ]
    title: Annotated[str, says("its title", "Tides")]
    change: Annotated[Literal["added", "replaced", "unchanged"], says("what became of it", "added")]


class KnowledgeRefused:
    """A file that was not taken in."""

    path: Annotated[str, says("the file", "/srv/scan.pdf")]
    reason: Annotated[str, says("why", "scan.pdf holds no text")]


class KnowledgeAddData:
    """What was taken in, and what was not."""

    documents: Annotated[list[DocumentStored], says("what was taken in", [])]
    refused: Annotated[list[KnowledgeRefused], says("what was not", [])]


class DocumentEdited:
    """What changed of a document."""

    doc_id: Annotated[str, says("its id", "d_0123456789abcdef")]
    updated_fields: Annotated[list[str], says("what changed", ["title"])]
    updated_at: Annotated[str, says("when it changed last", "2026-06-01T09:30:00+00:00")]


class DocumentRemoved:
    """A document that is gone."""

    doc_id: Annotated[str, says("its id", "d_0123456789abcdef")]
    removed: Annotated[
        str, says("the file that was removed", "default_app/default_project/knowledge/manuals/Tides_d_01.md")
    ]


class DocumentItem:
    """A document in a list."""

    doc_id: Annotated[str, says("its id", "d_0123456789abcdef")]
    category_id: Annotated[str, says("its category", "manuals")]
    title: Annotated[str, says("its title", "Tides")]
    topic_count: Annotated[int, says("how many topics it has", 12)]
    created_at: Annotated[str, says("when it came", "2026-06-01T09:30:00+00:00")]
    path: Annotated[str, says("its file", "default_app/default_project/knowledge/manuals/Tides_d_01.md")]


class DocumentsData:
    """One page of documents."""

    documents: Annotated[list[DocumentItem], says("the documents", [])]
    total: Annotated[int, says("how many there are", 42)]
    page: Annotated[int, says("which page this is", 1)]
    page_size: Annotated[int, says("how many a page", 20)]
    notes: Annotated[list[str], says("files that cannot be read, and why", [])]


class TopicOverview:
    """A topic in a few words."""

    topic_id: Annotated[str, says("its id", "d_0123456789abcdef_2")]
    topic_name: Annotated[str, says("its heading", "Springs")]
    topic_path: Annotated[str, says("the headings above it and its own", "Tides > Springs")]
    depth: Annotated[int, says("how deep its heading is; 0 for what stands before the first", 2)]
    summary: Annotated[str, says("its beginning", "High at noon.")]
    line: Annotated[int, says("the line it begins on", 17)]


class DocumentData:
    """One document."""

    doc_id: Annotated[str, says("its id", "d_0123456789abcdef")]
    category_id: Annotated[str, says("its category", "manuals")]
    title: Annotated[str, says("its title", "Tides")]
    summary: Annotated[str, says("its beginning", "High at noon.")]
    source_name: Annotated[str | None, says("the name of the original", "tides.pdf")]
    source_type: Annotated[str | None, says("what the original is", "pdf")]
    original_file_path: Annotated[str | None, says("where the original is", "/srv/tides.pdf")]
    sha256: Annotated[str | None, says("the hash of the original", "9f86d081884c7d65")]
    md_path: Annotated[
        str, says("its file in the root", "default_app/default_project/knowledge/manuals/Tides_d_01.md")
    ]
    topics: Annotated[list[TopicOverview], says("its topics, in order", [])]
    created_at: Annotated[str, says("when it came", "2026-06-01T09:30:00+00:00")]
    updated_at: Annotated[str, says("when it changed last", "2026-06-01T09:30:00+00:00")]


class TopicData(TopicOverview):
    """One topic."""

    doc_id: Annotated[str, says("the document", "d_0123456789abcdef")]
    category_id: Annotated[str, says("its category", "manuals")]
    content: Annotated[str, says("its words", "High at noon.")]
    content_labels: Annotated[list[str], says("always empty: nothing labels documents here", [])]
    parent_topic_id: Annotated[str | None, says("the topic it belongs to", "d_0123456789abcdef_0")]
    children_topic_ids: Annotated[list[str], says("the topics below it", [])]
    created_at: Annotated[str, says("when the document came", "2026-06-01T09:30:00+00:00")]
    updated_at: Annotated[str, says("when it changed last", "2026-06-01T09:30:00+00:00")]


class DocumentContext:
    """The document of a hit."""

    doc_id: Annotated[str, says("its id", "d_0123456789abcdef")]
    title: Annotated[str, says("its title", "Tides")]
    summary: Annotated[str, says("its beginning", "High at noon.")]


class KnowledgeHit:
    """A topic that answers."""

    topic_id: Annotated[str, says("its id", "d_0123456789abcdef_2")]
    category_id: Annotated[str, says("its category", "manuals")]
    topic_name: Annotated[str, says("its heading", "Springs")]
    topic_path: Annotated[str, says("the headings above it and its own", "Tides > Springs")]
    depth: Annotated[int, says("how deep its heading is", 2)]
    summary: Annotated[str, says("the beginning of the passage", "High at noon.")]
    content: Annotated[str | None, says("the passage, where asked for", "High at noon.")]
    score: Annotated[float, says("how well it answers, 0 to 1", 0.83)]
    retrieval_method: Annotated[str, says("how it was found", "hybrid")]
    source: Annotated[str | None, says("where the original is", "/srv/tides.pdf")]
    path: Annotated[
        str, says("the file it stands in", "default_app/default_project/knowledge/manuals/Tides_d_01.md")
    ]
    line: Annotated[int, says("the line the passage begins on", 17)]
    document: Annotated[
        DocumentContext,
        says("its document", {"doc_id": "d_0123456789abcdef", "title": "Tides", "summary": "High at noon."}),
    ]


class KnowledgeFound:
    """What a search of the documents found."""

    hits: Annotated[list[KnowledgeHit], says("the topics, best first", [])]
    total: Annotated[int, says("how many", 3)]
    took_ms: Annotated[float, says("how long it took", 8.1)]
    notes: Annotated[list[str], says("what the answer rests on", [])]


class CategoryItem:
    """A category of documents."""

    category_id: Annotated[str, says("its name", "manuals")]
    description: Annotated[str, says("what it holds, as categories.md says", "How things are run.")]
    document_count: Annotated[int, says("how many documents it has", 4)]


class CategoriesData:
    """The categories of a space."""

    categories: Annotated[list[CategoryItem], says("the categories, by name", [])]


class LinkData:
    """A linked folder."""

    name: Annotated[str, says("what it is called here", "notes")]
    path: Annotated[str, says("where it is", "/srv/notes")]
    documents: Annotated[int, says("how many documents of it are known", 120)]
    waiting: Annotated[int, says("how many files of the space's knowledge are still to be read", 0)]


class LinkItem(LinkData):
    """A linked folder in a list."""

    trouble: Annotated[str, says("what is wrong with it", "")]


class LinksData:
    """The linked folders."""

    links: Annotated[list[LinkItem], says("the folders", [])]
    notes: Annotated[list[str], says("files that cannot be read, and why", [])]


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


class EventItem:
    """One thing that happened; what else it carries depends on `event`."""

    id: Annotated[int, says("its number, ascending", 1780300000001)]
    event: Annotated[
        Literal["changed", "memory_inserted", "memory_upserted", "missed"],
        says('what happened; "missed" if events before it are gone: look at everything again', "changed"),
    ]
    app_id: Annotated[str, says("the app", "default")]
    project_id: Annotated[str, says("the project", "default")]
    scope: Annotated[str | None, says("whose: user, agent, mission or project", "user")]
    owner: Annotated[str | None, says("the user, agent or run", "alice")]
    path: Annotated[str, says("the file", "default_app/default_project/users/alice/user.md")] = ""
    kind: Annotated[str, says("what the file holds", "profile")] = ""
    change: Annotated[str, says("added, modified or deleted", "modified")] = ""
    lsn: Annotated[int, says("the change as min_lsn takes it", 12)] = 0
    memory: Annotated[dict[str, Any] | None, says("the memory's row", {"id": "mem_20260601_00000001"})] = None


class EventsData:
    """What happened lately."""

    events: Annotated[list[EventItem], says("the events, oldest first", [])]
    last: Annotated[int, says("the number to ask after next", 1780300000001)]


class QuiesceData:
    """Whether every change so far is indexed."""

    quiesced: Annotated[bool, says("whether nothing waits any more", True)]
    drained: Annotated[int, says("how many changes were indexed meanwhile", 3)]
    pending_before: Annotated[int, says("how many waited", 3)]
    pending_after: Annotated[int, says("how many wait now", 0)]
    failed_permanent: Annotated[int, says("how many can never be indexed as they are", 0)]


class TaskItem:
    """One stretch of talk on its way to an episode."""

    id: Annotated[str, says("its id", "mc_0123456789ab")]
    status: Annotated[
        Literal["queued", "processing", "success", "failed"],
        says('"queued" while the stretch is open, "success" once its episodes are written', "success"),
    ]
    task_type: Annotated[
        Literal["memory_add", "memory_flush"],
        says("what brought it here: messages that wait, or a closed stretch", "memory_flush"),
    ]
    session_id: Annotated[str, says("the session", "s1")]
    error: Annotated[str | None, says("why it failed so far; it is tried again", None)] = None
    error_code: Annotated[str | None, says("the sort of trouble", None)] = None
    created_at: Annotated[str, says("when it began", "2026-06-01T09:30:00+00:00")]
    finished_at: Annotated[str | None, says("when it was done", "2026-06-01T09:30:00+00:00")] = None


class TasksData:
    """One page of tasks."""

    total: Annotated[int, says("how many there are", 1)]
    page: Annotated[int, says("which page this is", 1)]
    page_size: Annotated[int, says("how many a page", 20)]
    items: Annotated[list[TaskItem], says("the tasks, newest first", [])]


class SyncData:
    """What bringing the index up to date did."""

    applied: Annotated[int, says("changes that were indexed", 3)]
    pending: Annotated[int, says("changes that wait", 0)]
    failed: Annotated[int, says("changes that could not be indexed", 0)]
    lsn: Annotated[int, says("every change up to this one is searchable", 99)]


class FailureItem:
    """A change that could not be indexed."""

    path: Annotated[
        str, says("the file", "default_app/default_project/users/alice/episodes/episode-2026-06-01.md")
    ]
    retryable: Annotated[bool, says("whether trying again is sensible", True)]
    reason: Annotated[str, says("why", "not UTF-8")]
    retries: Annotated[int, says("how often it was tried", 2)]


class FailuresData:
    """What could not be indexed."""

    failures: Annotated[list[FailureItem], says("each with its reason", [])]


class RebuildData:
    """What making the index anew took."""

    rows: Annotated[int, says("rows", 512)]
    notes: Annotated[int, says("files", 42)]
    failed: Annotated[int, says("files that could not be indexed", 0)]
    seconds: Annotated[float, says("how long it took", 1.5)]


class FindingItem:
    """One trouble and its next step."""

    level: Annotated[str, says("fail, warn or info", "warn")]
    what: Annotated[str, says("the trouble", "the local embedding model is not installed")]
    next: Annotated[str, says("what to do", "run `cairn model install`")]


class DoctorData:
    """Every trouble that can be seen."""

    findings: Annotated[list[FindingItem], says("worst first", [])]


class MendedItem:
    """Something that was mended."""

    where: Annotated[str, says("where", "cairn.toml")]
    what: Annotated[str, says("what was done", "is readable by you alone now")]
    code: Annotated[str, says("which trouble it was", "open-keys")]


class RepairData:
    """What was mended."""

    mended: Annotated[list[MendedItem], says("each with what was done", [])]


class ExportData:
    """What was copied."""

    target: Annotated[str, says("where to", "backup.tar.gz")]
    files: Annotated[int, says("how many files", 42)]
    bytes: Annotated[int, says("how many bytes", 123456)]
    left_out: Annotated[list[str], says("keys and tokens that stayed here", ["llm.api_key"])]


class BackupPart:
    """One part of a backup."""

    what: Annotated[str, says("sessions, journal, users, agents, ..., or settings", "sessions")]
    files: Annotated[int, says("how many files", 12)]
    bytes: Annotated[int, says("how many bytes", 34567)]


class TablesData:
    """The file that was written."""

    target: Annotated[str, says("the file", "memories.db")]
    memories: Annotated[int, says("how many memories are in it", 120)]
    bytes: Annotated[int, says("how large it is", 262144)]


class BackupData:
    """What a backup holds."""

    target: Annotated[str, says("the archive", "backups/cairn-20260601T120000Z.tar.gz")]
    files: Annotated[int, says("how many files", 42)]
    bytes: Annotated[int, says("how many bytes", 123456)]
    still: Annotated[bool, says("whether nothing was written meanwhile: the copy is of one moment", True)]
    contents: Annotated[list[BackupPart], says("what is in it, part by part", [])]
    left_out: Annotated[list[str], says("keys and tokens that stayed here", ["llm.api_key"])]


class BroughtData:
    """What was brought in."""

    imported: Annotated[int, says("files that are new", 40)]
    same: Annotated[int, says("files that were there already", 2)]
    merged: Annotated[int, says("files that were merged", 1)]
    messages: Annotated[int, says("messages that waited there to be extracted, now in the inbox", 0)]
    problems: Annotated[list[str], says("what could not be taken", [])]


class MovedData:
    """What a move did."""

    target: Annotated[str, says("where the memory is now, too", "s3://bucket/prefix")]
    files: Annotated[int, says("how many files the source holds", 42)]
    bytes: Annotated[int, says("how many bytes", 123456)]
    copied: Annotated[int, says("files that were brought over by this call", 42)]
    removed: Annotated[int, says("files that are gone since an earlier call", 0)]
    verified: Annotated[int, says("files that were read back from the target and are the same", 42)]
    still: Annotated[bool, says("whether nothing more was written to the source meanwhile", True)]
    problems: Annotated[list[str], says("what could not be brought over, and why", [])]


class EditConflict:
    """A note that changed on both sides."""

    path: Annotated[str, says("the note", "default_app/default_project/users/alice/user.md")]
    diff: Annotated[str, says("from theirs to yours", "-theirs\n+yours\n")]


class PulledData:
    """What a pull did, by path."""

    brought: Annotated[list[str], says("new in the folder, or as it is there now", [])]
    removed: Annotated[list[str], says("gone there, and so here", [])]
    yours: Annotated[list[str], says("edited here only: a push takes them", [])]
    conflicts: Annotated[
        list[EditConflict], says("edited on both sides: theirs lies beside as NAME.theirs", [])
    ]
    problems: Annotated[list[str], says("what cannot be read", [])]
    same: Annotated[int, says("notes that were the same", 40)]


class PushedData:
    """What a push did, by path."""

    written: Annotated[list[str], says("edits that are there now", [])]
    removed: Annotated[list[str], says("removed there, since they were here", [])]
    missing: Annotated[list[str], says("removed here and left there: `delete` removes them", [])]
    conflicts: Annotated[
        list[EditConflict], says("changed there, too: theirs lies beside as NAME.theirs", [])
    ]
    problems: Annotated[list[str], says("what was not taken, and why", [])]


class Capabilities:
    """What this server can do."""

    llm: Annotated[bool, says("ask a language model", False)]
    embed: Annotated[bool, says("search by meaning", True)]
    rerank: Annotated[bool, says("let a model order hits", False)]
    multimodal_llm: Annotated[bool, says("read pictures", False)]
    parser: Annotated[bool, says("read documents", False)]


class CascadeBlock:
    """How the index is."""

    healthy: Annotated[bool, says("whether all goes well", True)]
    reasons: Annotated[list[str], says("why not", [])]
    pending: Annotated[int, says("changes that wait", 0)]
    failed_permanent: Annotated[int, says("changes that cannot be indexed", 0)]
    failed_retryable: Annotated[int, says("changes that are tried again", 0)]
    drain_consecutive_failures: Annotated[int, says("rounds that failed in a row", 0)]
    unrecoverable_total: Annotated[int, says("changes that cannot be indexed, in all", 0)]
    optimize_failure_streak: Annotated[int, says("upkeep that failed in a row", 0)]
    prune_stale_seconds: Annotated[float, says("always 0", 0.0)]


class HealthAnswer:
    """How the server and the index are."""

    status: Annotated[str, says("ok or degraded", "ok")]
    version: Annotated[str, says("Cairn's version", "0.1.0")]
    reasons: Annotated[list[str], says("what is wrong, where something is", [])]
    ready: Annotated[bool, says("whether calls should be sent here: not while the index is made anew", True)]
    capabilities: Annotated[Capabilities, says("what can be done here", {"llm": False, "embed": True})]
    disabled_features: Annotated[list[str], says("what cannot", ["llm", "rerank"])]
    cascade: Annotated[CascadeBlock | None, says("how the index is", {"healthy": True})] = None


class ErrorDetail:
    """What went wrong."""

    code: Annotated[str, says("for programs", "INVALID_INPUT")]
    message: Annotated[str, says("for people: the thing, the trouble, the next step", "query: is missing.")]
    timestamp: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]
    path: Annotated[str, says("the path that was asked", "/api/v1/memory/search")]


class ErrorAnswer:
    """A refusal or a failure."""

    request_id: Annotated[str, says("to find it in the server's log", "4f1c")]
    error: Annotated[
        ErrorDetail, says("what went wrong", {"code": "INVALID_INPUT", "message": "query: is missing."})
    ]


class Drift:
    """How far the work tree is from a checkpoint."""

    summary: Annotated[str, says("in a sentence", "2 files changed")]


class ProjectStatusData:
    """How a repository's memory stands; more fields follow these."""

    state: Annotated[
        dict[str, Any],
        says("the newest checkpoint and when it was made", {"latestCheckpointId": "chk-000003"}),
    ]
    backlog: Annotated[dict[str, Any], says("events that wait to be folded in", {"all": {"count": 2}})]
    drift: Annotated[
        Drift, says("how far the work tree is from the checkpoint", {"summary": "2 files changed"})
    ]
    suggestedAction: Annotated[str, says("what to do next", "cairn project consolidate")]  # noqa: N815 -- the contract's name


class ProjectMoment:
    """An event or a checkpoint of a repository."""

    id: Annotated[str, says("its id", "chk-000003")]
    at: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]
    summary: Annotated[str, says("what it is about", "Folded in 2 events")]
    kind: Annotated[str, says("of an event: what it is", "note")] = ""


class ProjectStoryData:
    """A repository's memory to read."""

    pages: Annotated[dict[str, str], says("its pages, by name, as Markdown", {"gotchas": "# Gotchas"})]
    checkpoints: Annotated[list[ProjectMoment], says("newest first", [])]
    events: Annotated[list[ProjectMoment], says("newest first", [])]
    changed: Annotated[
        dict[str, str], says("what each section changed, where two were compared", {"gotchas": "+ a trap"})
    ]


class ProjectAnswer:
    """An answer about a repository; more fields follow these."""

    answer: Annotated[str, says("the answer", "Deploys wait for the migration job [1].")]
    citations: Annotated[list[dict[str, Any]], says("its evidence", [{"sourceId": "evt-000001"}])]


class ProjectFinding:
    """One check of a repository's record."""

    status: Annotated[str, says("pass, warn or fail", "pass")]
    code: Annotated[str, says("which check", "checkpoint-hash")]
    message: Annotated[str, says("what was found", "every checkpoint has its hash")]


class ValidateData:
    """Whether a repository's record is whole."""

    ok: Annotated[bool, says("whether nothing fails", True)]
    findings: Annotated[list[ProjectFinding], says("each check", [])]


class PreviewData:
    """What consolidating would change."""

    noop: Annotated[bool, says("whether nothing would", False)]
    summary: Annotated[
        dict[str, Any], says("what would be added, merged and dropped", {"changedSections": ["gotchas"]})
    ]
    diffs: Annotated[
        dict[str, str], says("the difference of each file", {"docs/cairn/gotchas.md": "+ a trap"})
    ]


class TokenData:
    """A token of the HTTP server, without its secret."""

    name: Annotated[str, says("its name", "ci")]
    state: Annotated[Literal["active", "expired", "revoked"], says("whether it holds", "active")]
    rights: Annotated[str, says("what it may do, in the words of server.tokens", "r owner=alice")]
    made: Annotated[str, says("when it was made", "2026-06-01T09:30:00+00:00")]
    expires: Annotated[str | None, says("when it ends", "2026-08-30T09:30:00+00:00")]
    revoked: Annotated[str | None, says("when it was revoked", None)]


class NewToken(TokenData):
    """A token that was just made."""

    secret: Annotated[str, says("what callers send; it is told this once", "cairn_...")]


class TokensData:
    """The tokens that were made for this root."""

    tokens: Annotated[list[TokenData], says("oldest first", [])]


class AuditCall:
    """One call of the HTTP server."""

    at: Annotated[str, says("when it ended", "2026-06-01T09:30:00.000+00:00")]
    token: Annotated[str, says("whose token; empty where there was none", "ci")]
    operation: Annotated[str, says("what was called", "search")]
    about: Annotated[dict[str, str], says("about whom: ids, never content", {"user_id": "alice"})]
    status: Annotated[int, says("the status of the answer", 200)]
    outcome: Annotated[str, says('"done", or the code of the refusal', "done")]
    ms: Annotated[float, says("how long it took", 3.2)]
    request_id: Annotated[str, says("to find it in the server's log", "4f1c")]
    unlogged: Annotated[int, says("calls without a token that were refused since the line before", 0)]


class AuditData:
    """Calls of the HTTP server."""

    calls: Annotated[list[AuditCall], says("newest first", [])]


class IndexGlance:
    """The index and its queue in figures."""

    state: Annotated[str, says("fresh, behind or rebuilding", "fresh")]
    pending: Annotated[int, says("changes that wait", 0)]
    failed: Annotated[int, says("files that could not be indexed", 0)]
    vectors_missing: Annotated[int, says("rows that wait for their vector", 0)]
    rows: Annotated[int, says("rows in the index", 512)]
    bytes: Annotated[int, says("what everything below the index's folder takes on disk", 1048576)]


class StrategiesGlance:
    """The offline strategies in figures."""

    on: Annotated[int, says("how many are switched on", 7)]
    waiting: Annotated[int, says("runs that wait or go on", 0)]
    gave_up: Annotated[int, says("runs that failed for good", 0)]


class SpaceGlance:
    """One space of the root."""

    app_id: Annotated[str, says("the app", "default")]
    project_id: Annotated[str, says("the project", "default")]
    last_sweep: Annotated[str | None, says("when its memories were last swept", "2026-06-01T03:00:00+00:00")]


class ModelGlance:
    """The models in use, and what was spent."""

    embedding: Annotated[str | None, says("what makes vectors; none: words alone", "minilm")]
    language_model: Annotated[str | None, says("the configured language model", None)]
    tokens_today: Annotated[int, says("what it has cost since 00:00 UTC", 0)]
    tokens_cap: Annotated[int, says("the most of a day", 1000000)]


class ServerGlance:
    """The HTTP server's settings."""

    tokens: Annotated[int, says("tokens that hold; none: open to this machine", 0)]
    address: Annotated[str, says("where `cairn server start` listens", "127.0.0.1:8000")]


class StatusData:
    """How a root stands."""

    root: Annotated[str, says("the folder", "/home/ann/.cairn")]
    version: Annotated[str, says("Cairn's version", "0.1.0")]
    index: Annotated[IndexGlance, says("the index and its queue", {"state": "fresh", "pending": 0})]
    strategies: Annotated[StrategiesGlance, says("the offline strategies", {"on": 7, "waiting": 0})]
    spaces: Annotated[list[SpaceGlance], says("what there is", [{"app_id": "default"}])]
    model: Annotated[ModelGlance, says("models and spend", {"embedding": "minilm"})]
    engines: Annotated[dict[str, str], says("what each seam is served by", {"storage": "device-local"})]
    server: Annotated[ServerGlance, says("the HTTP server", {"tokens": 0})]
    warnings: Annotated[list[str], says("what to look at, with the next step", [])]


class PersonNote:
    """A note of a person's."""

    path: Annotated[str, says("its file", "default_app/default_project/users/alice/user.md")]
    text: Annotated[str, says("as it stands", "---\nid: ...\n---\n")]
    trouble: Annotated[str, says("why it could not be read, where it could not", "")] = ""


class PersonSession:
    """A session a person spoke in."""

    session_id: Annotated[str, says("which", "s1")]
    shared: Annotated[
        bool, says("whether other users spoke in it: then only this person's words are here", False)
    ]
    messages: Annotated[list[dict[str, Any]], says("what was said, word for word", [{"content": "I moved."}])]


class PersonData:
    """Everything that is kept of a person."""

    user_id: Annotated[str, says("the person", "alice")]
    at: Annotated[str, says("when it was looked up", "2026-06-01T09:30:00+00:00")]
    notes: Annotated[list[PersonNote], says("their notes", [])]
    sessions: Annotated[list[PersonSession], says("what they said", [])]
    waiting: Annotated[
        list[dict[str, Any]], says("what hooks of agents have left and the memory has not taken in yet", [])
    ]


class SessionEntry:
    """An entry that was made from a session."""

    id: Annotated[str, says("its id", "alice_ep_20260601_00000001")]
    kind: Annotated[str, says("what it is", "episode")]
    path: Annotated[
        str, says("its file", "default_app/default_project/users/alice/episodes/episode-2026-06-01.md")
    ]
    sections: Annotated[dict[str, str], says("what it says", {"Subject": "A move"})]


class SessionData:
    """A session as a whole."""

    session_id: Annotated[str, says("which", "s1")]
    at: Annotated[str, says("when it was looked up", "2026-06-01T09:30:00+00:00")]
    messages: Annotated[list[dict[str, Any]], says("what was said, word for word", [{"content": "I moved."}])]
    entries: Annotated[list[SessionEntry], says("what was made from it", [])]
    waiting: Annotated[
        list[dict[str, Any]], says("what hooks of agents have left and the memory has not taken in yet", [])
    ]


class FarewellData:
    """A person or a session that was forgotten."""

    at: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]
    complete: Annotated[bool, says("whether nothing of their own is left below the root", True)]
    dry_run: Annotated[bool, says("whether nothing was removed, only told", False)]
    removed: Annotated[dict[str, int], says("how many of each", {"notes": 5, "messages": 12})]
    sessions: Annotated[list[str], says("sessions that went whole", ["s1"])]
    places: Annotated[list[str], says("files that went or were cleaned", [])]
    stays: Annotated[list[LeftItem], says("what stays, and why", [{"where": "backups", "why": "..."}])]


class FoldData:
    """What was dropped of the history."""

    dry_run: Annotated[bool, says("whether nothing was dropped, only told", False)]
    texts: Annotated[int, says("former texts that went", 120)]
    characters: Annotated[int, says("how long they were together", 48000)]
