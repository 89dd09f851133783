"""Memories to be asked, and who reads them from the files they are published in.

A data set is not part of the project; it is read from the path given. A file says itself what it is:

    <kind>.jsonl of our own form (`transfer`)    a memory in each line
    a LoCoMo file                                two people through many sessions; questions 1 to 4, evidence by turn
    <name>-chat.json beside <name>-q.json        BEAM: a person and an assistant; evidence by message
    .jsonl with meeting transcripts              QMSum: three to ten people; the turns of the relevant spans
    .json with message lists and questions       MemDaily: one person's short notes, in Chinese

What a reader takes is what can be scored by messages: no summaries, no spans of more than 60 turns.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

LOCOMO_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
LONGEST_SPAN = 60
NOTES_OF_A_FILE = 15
_START = datetime(2026, 3, 1, 10, tzinfo=UTC)


@dataclass
class Unit:
    """One message: what is found, or not."""

    id: str
    session: str
    speaker: str
    role: str
    ts: int
    text: str


@dataclass
class Question:
    """What is asked and the units that answer it; none where nothing does."""

    text: str
    gold: tuple[str, ...]
    cat: str = ""


@dataclass
class Memory:
    id: str
    owner: str
    units: list[Unit]
    questions: list[Question] = field(default_factory=list)


def load(path: Path) -> dict[str, list[Memory]]:
    """The memories of a file, or of every file in a folder and the folders in it, by their kind."""
    found: dict[str, list[Memory]] = defaultdict(list)
    for file in sorted(path.rglob("*"), key=_in_order) if path.is_dir() else [path]:
        if file.suffix in {".json", ".jsonl"} and file.is_file():
            for kind, memory in _read(file):
                found[kind].append(memory)
    return dict(found)


def _in_order(file: Path) -> list[object]:
    """Files as a person counts them: 2 before 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(file))]


def _read(file: Path) -> Iterator[tuple[str, Memory]]:
    if file.suffix == ".jsonl":
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(line for line in lines if line.strip()):
                one = json.loads(line)
                if "meeting_transcripts" in one:
                    yield "meetings", _meeting(f"meeting-{number}", one, number)
                else:
                    yield file.stem, _own(one)
        return
    if file.name.endswith("-chat.json"):
        questions = file.with_name(file.name.replace("-chat.json", "-q.json"))
        if questions.exists():
            asked = json.loads(questions.read_text("utf-8"))
            yield "assistant", _chat(file.name[:-10], json.loads(file.read_text("utf-8")), asked)
        return
    data = json.loads(file.read_text("utf-8"))
    first = data[0] if isinstance(data, list) and data else None
    if not isinstance(first, dict):
        return
    if "conversation" in first:
        yield from (("locomo", _conversation(one)) for one in data)
    elif "message_list" in first:
        yield from (("notes_zh", _diary(f"{file.stem}-{one['tid']}", one)) for one in data[:NOTES_OF_A_FILE])


def _own(data: Mapping[str, Any]) -> Memory:
    return Memory(
        str(data["id"]),
        str(data["owner"]),
        [Unit(**unit) for unit in data["units"]],
        [Question(q["text"], tuple(q["gold"]), str(q.get("cat", ""))) for q in data["questions"]],
    )


def _conversation(sample: Mapping[str, Any]) -> Memory:
    """A LoCoMo conversation; a picture that was shared is told by its caption."""
    talk = sample["conversation"]
    units = []
    for key in sorted((k for k in talk if re.fullmatch(r"session_\d+", k)), key=lambda k: int(k[8:])):
        stamp = talk[f"{key}_date_time"].strip().lower().replace(",", "")
        began = datetime.strptime(stamp, "%I:%M %p on %d %B %Y").replace(tzinfo=UTC)
        for place, turn in enumerate(talk[key]):
            picture = f" [shared image: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
            moment = began + timedelta(seconds=20 * place)
            text = turn["text"].strip() + picture
            units.append(Unit(turn["dia_id"], key, turn["speaker"], "user", _ms(moment), text))
    known = {unit.id for unit in units}
    questions = []
    for asked in sample["qa"]:
        marks = re.findall(r"D:?(\d+):(\d+)", " ".join(asked["evidence"]))
        gold = dict.fromkeys(f"D{int(session)}:{int(turn)}" for session, turn in marks)
        right = tuple(mark for mark in gold if mark in known)
        if right and asked["category"] in LOCOMO_CATEGORIES:
            questions.append(Question(asked["question"], right, LOCOMO_CATEGORIES[asked["category"]]))
    return Memory(sample["sample_id"], talk["speaker_a"], _apart(units), questions)


def _chat(name: str, batches: list[Any], asked: Mapping[str, Any]) -> Memory:
    """A BEAM chat; messages follow each other from the day that is told, or from the one before."""
    units: list[Unit] = []
    now = datetime(2024, 1, 1, 9, tzinfo=UTC)
    for number, batch in enumerate(batches):
        for said in (message for turn in batch["turns"] for message in turn):
            if re.fullmatch(r"[A-Z][a-z]+-\d+-\d{4}", said.get("time_anchor") or ""):
                told = datetime.strptime(said["time_anchor"], "%B-%d-%Y").replace(hour=9, tzinfo=UTC)
                now = max(now, told)
            text = re.sub(r"\s*->->\s*[\d,]+\s*$", "", said["content"]).strip()
            who = "Sam" if said["role"] == "user" else "assistant"
            units.append(Unit(str(said["id"]), f"b{number}", who, said["role"], _ms(now), text))
            now += timedelta(seconds=40)
        now += timedelta(days=1)
    known = {unit.id for unit in units}
    questions = []
    for category, ones in asked.items():
        for one in ones if category != "summarization" else ():
            named = dict.fromkeys(str(number) for number in _numbers(one.get("source_chat_ids")))
            gold = tuple(mark for mark in named if mark in known)
            if gold or category == "abstention":
                questions.append(Question(one["question"], gold, category))
    return Memory(f"chat-{name}", "Sam", _apart(units), questions)


def _numbers(value: object) -> Iterator[int]:
    """The message numbers in lists and groups of lists."""
    if isinstance(value, int):
        yield value
    for inside in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _numbers(inside)


def _meeting(name: str, data: Mapping[str, Any], number: int) -> Memory:
    """A QMSum meeting, one session, with the questions that point at a part of it."""
    began = _START + timedelta(days=number % 28)
    units = []
    for place, turn in enumerate(data["meeting_transcripts"]):
        text = " ".join(re.sub(r"\{\w+\}", "", turn["content"]).split())
        moment = began + timedelta(seconds=5 * place)
        who = turn["speaker"].strip() or "Someone"
        units.append(Unit(str(place), "m", who, "user", _ms(moment), text or "..."))
    questions = []
    for asked in data["specific_query_list"]:
        spans = [(int(first), int(last)) for first, last in asked["relevant_text_span"]]
        gold = tuple(str(n) for first, last in spans for n in range(first, last + 1) if n < len(units))
        if 0 < len(gold) <= LONGEST_SPAN:
            questions.append(Question(asked["query"], gold, "short" if len(gold) <= 10 else "long"))
    return Memory(name, units[0].speaker, units, questions)


def _diary(name: str, data: Mapping[str, Any]) -> Memory:
    """One person's notes of MemDaily."""
    units = []
    for said in data["message_list"]:
        year, month, day, hour, minute = (int(part) for part in re.findall(r"\d+", said["time"])[:5])
        moment = datetime(year, month, day, hour, minute, tzinfo=UTC)
        units.append(Unit(str(said["mid"]), "t", "小王", "user", _ms(moment), said["message"]))
    known = {unit.id for unit in units}
    questions = []
    for asked in data["question_list"]:
        gold = tuple(str(step) for step in asked["target_step_id"] if str(step) in known)
        if gold:
            questions.append(Question(asked["question"], gold))
    return Memory(name, "小王", _apart(units), questions)


def _apart(units: list[Unit]) -> list[Unit]:
    """`units` with times that differ: an answer tells a message by its time."""
    seen: set[int] = set()
    for unit in units:
        while unit.ts in seen:
            unit.ts += 1
        seen.add(unit.ts)
    return units


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
