"""A language is a file: one dropped in is used wherever words decide, through the public surface."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import cairn

# A made-up tongue. "zul" yesterday, "tamo" tomorrow, "mo" I, "nerk" not, "fenk" thanks.
TOMA = r"""
[language]
name = "Toma"
common = "mo vik lom tapa zul tamo nerk ruk sa gelem dur pel"

[lists]
towns = "Grevia Porenta"

[phrases]
home = "tapa lom (?P<o>{towns})"

[dates]
numbers = ["ena", "dva", "drin"]
weekdays = ["lunik", "marik", "merik", "jovik", "venik", "satik", "solik"]
months = ["janu", "febu", "maru", "apru", "mayu", "junu", "julu", "augu", "sepu", "oktu", "novu", "deku"]

[dates.units]
day = "dag/dagen"

[dates.fixed]
"zul" = "day -1"
"tamo" = "day 1"

[dates.forms]
within = ['pel {count} {unit}']
ago = ['{count} {unit} gelem']

[dates.tense]
past = ["vikta"]
future = ["sa"]

[talk]
first = '\b[Mm]o\b'
second = '\btu\b'
small_talk = ['\bfenk\b']
hedged = ['\bmezu\b']
least = 3

[words]
little = "lom sa gelem dur"
small = "fenk okra"
denials = "nerk"
times = "zul|tamo"

[words.endings]
of = '[a-z]+us(?:en)?'
steps = [[['(.+us)en', '\1']]]

[plans]
intent = ['\bmo sa\b']

[clauses]
starts = '[,;] *(?=mo\b)'
ends = '[,;]'

[[profile]]
category = "Instruction"
patterns = ['ruk .+']

[[profile]]
category = "Home"
slot = "home"
patterns = ['mo {home}']

[asking]
first_person = "mo"
fillers = "lom dur"
"""
SCRIPT = r"""
import json, sys
import cairn
from datetime import UTC, datetime, timedelta
from tests.waiting import until

now = datetime.now(UTC)
def said(text, days=0):
    at = int((now - timedelta(days=days)).timestamp() * 1000)
    return {"sender_id": "ana", "sender_name": "Ana", "role": "user", "timestamp": at, "content": text}

with cairn.open_blocking(sys.argv[1], embedding__provider="none") as memory:
    for number, (text, days) in enumerate([
        ("Mo tapa lom Grevia.", 9), ("Fenk!", 8), ("Mo tapa lom Porenta.", 5), ("Ruk vik dur Kolumbo.", 4),
        ("Mo vikta Brankus zul.", 3), ("Mo sa vik Dorelia tamo.", 0), ("Mezu mo vik Hulda.", 0),
    ]):
        memory.add(f"s{number}", [said(text, days)])
        memory.flush(f"s{number}")
    for name in ("extract_atomic_facts", "extract_user_profile", "extract_foresight"):
        memory.trigger(name)
    until(lambda: not any(one.get("pending") or one.get("running") for one in memory.parts.engine.jobs.counts().values()))
    memory.remember("Vik tapa Grevia dur Brankus", scope="user", owner="ana")
    again = memory.remember("Nerk vik tapa Grevia dur Brankus", scope="user", owner="ana")
    empty = memory.remember("fenk okra", scope="user", owner="ana")
    asked = memory.search("fenk okra", user_id="ana", for_injection=True, consistency="strong").as_data()
    print(json.dumps({
        "facts": [one["content"] for one in memory.get("atomic_fact", user_id="ana", page_size=50).as_data()["atomic_facts"]],
        "ended": [one["content"] for one in memory.get("atomic_fact", user_id="ana", page_size=50).as_data()["atomic_facts"] if one.get("until")],
        "profile": json.dumps(memory.get("profile", user_id="ana").as_data(), ensure_ascii=False),
        "due": [one["due"] for one in memory.upcoming(scope="user", owner="ana")["entries"]],
        "again": [one["id"] if isinstance(one, dict) else str(one) for one in again.contradicts],
        "empty": empty.accepted,
        "form": [one["text"] for one in memory.search("Brankusen", user_id="ana", evidence=3).as_data()["evidence"]],
        "injected": asked.get("prompt", ""),
        "tomorrow": (now + timedelta(days=1)).date().isoformat(),
        "then": (now - timedelta(days=4)).strftime("%-d %B %Y"),
    }))
"""


def beside(tmp_path: Path) -> Path:
    """The package as it is, linked, with one language file more."""
    package = Path(cairn.__file__).parent
    copy = tmp_path / "code" / "cairn"
    for here, there, skipped in (
        (package, copy, "language"),
        (package / "language", copy / "language", "data"),
        (package / "language" / "data", copy / "language" / "data", ""),
    ):
        there.mkdir(parents=True)
        for child in here.iterdir():
            if child.name != skipped:
                (there / child.name).symlink_to(child)
    (copy / "language" / "data" / "xt.toml").write_text(TOMA, encoding="utf-8")
    return copy.parent


def test_a_language_file_dropped_in_is_used_everywhere(tmp_path):
    """Facts, dates, profile, supersession, plans, small talk and contradictions come from its words alone."""
    path = os.pathsep.join([str(beside(tmp_path)), str(Path(__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "root")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert f"Ana: Mo vikta Brankus zul ({told['then']})." in told["facts"]
    assert not any("Fenk" in fact or "Hulda" in fact for fact in told["facts"])
    assert told["ended"] == ["Ana: Mo tapa lom Grevia."]
    assert "Instruction" in told["profile"]
    assert "Ruk vik dur Kolumbo" in told["profile"]
    assert "Porenta" in told["profile"]
    assert told["due"] == [told["tomorrow"]]
    assert told["form"] == ["Mo vikta Brankus zul."]
    assert told["injected"] == ""
    assert told["again"]
    assert told["empty"] is False
