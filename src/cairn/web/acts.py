"""What the forms of the page do: call an operation, then redirect with a message.

Each act gets the fields of its form and returns where to go and what to say; those that must be looked at first
(forgetting, a conflict, a plan) return a view instead. Without a script a form reloads the page; with one the same
answer comes as JSON.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cairn.errors import Conflict, Invalid
from cairn.memory import Memories
from cairn.operations.browse import Browse
from cairn.operations.knowledge import Knowledge
from cairn.operations.memories import Remember
from cairn.operations.persons import Persons
from cairn.operations.time import Time
from cairn.operations.upkeep import Upkeep
from cairn.web import views
from cairn.web.desk import Desk
from cairn.wording import counted

Form = Mapping[str, Any]
_HEALTH, _KNOWLEDGE = "/view/health", "/view/knowledge"


@dataclass
class Done:
    """What an act came to: a place to go to and a sentence, or a view to show at once; how to undo it, if it can be."""

    said: str = ""
    to: str = ""
    template: str = ""
    shown: dict[str, Any] = field(default_factory=dict)
    undo: str = ""
    status: int = 200


def _place(form: Form) -> dict[str, str]:
    return {name: form[name] for name in ("scope", "owner") if form.get(name)}


def _entry(desk: Desk, name: str) -> str:
    return desk.link("/view/entry", id=name)


def _newest(desk: Desk, name: str) -> str:
    """The last change of an entry so far."""
    log = desk.tried(Time.log, id=name, limit=1)
    return log["changes"][0]["id"] if log and log["changes"] else ""


def _undoing(desk: Desk, name: str, since: str) -> str:
    """The change to restore for taking back all that was done to an entry since another one."""
    log = desk.tried(Time.log, id=name, limit=5)
    news = list(itertools.takewhile(lambda one: one["id"] != since, log["changes"])) if log else []
    return news[-1]["id"] if news else ""


# ---------------------------------------------------------------- one entry


def revise(desk: Desk, form: Form) -> Done:
    """Save an edited entry; where somebody else was quicker, both texts are shown."""
    name = form.get("id", "")
    before = _newest(desk, name)
    try:
        desk.ask(Browse.revise, id=name, source=form.get("source", ""), expect=form.get("expect", "-"))
    except Conflict as error:
        template, shown = views.entry(desk, {"id": name, "edit": "1"})
        return Done(str(error), template=template, shown=shown | {"mine": form.get("source", "")}, status=409)
    return Done("Saved.", _entry(desk, name), undo=_undoing(desk, name, before))


def correct(desk: Desk, form: Form) -> Done:
    """Replace a memory by a new one; the old stays readable."""
    name = form.get("id", "")
    verdict = desk.ask(
        Memories.supersede, id=name, content=form.get("content", ""), reason=form.get("reason") or "corrected on the page", **_place(form)
    )  # fmt: skip
    _check_accepted(verdict)
    return Done(
        "Corrected: the new memory stands, the old one is kept below it.",
        _entry(desk, verdict["memory"]["id"]),
    )


def _check_accepted(verdict: Mapping[str, Any]) -> None:
    if not verdict["accepted"]:
        raise Invalid(
            f"The gate refused it: {verdict.get('detail') or verdict.get('reason')}. Nothing was changed."
        )


def simple(method: Callable[..., Any], said: str) -> Callable[[Desk, Form], Done]:
    """An act that is one operation on one memory."""

    def act(desk: Desk, form: Form) -> Done:
        name = form.get("id", "")
        before = _newest(desk, name)
        more = {"reason": form["reason"]} if form.get("reason") else {}
        desk.ask(method, id=name, **more, **_place(form))
        return Done(said, form.get("back") or _entry(desk, name), undo=_undoing(desk, name, before))

    return act


def reword(desk: Desk, form: Form) -> Done:
    """Change a candidate's words, then let it in."""
    name = form.get("id", "")
    before = _newest(desk, name)
    desk.ask(
        Memories.edit, id=name, content=form.get("content", ""), reason="reworded on the page", **_place(form)
    )
    desk.ask(Memories.promote, id=name, **_place(form))
    return Done(
        "Reworded and kept.", form.get("back") or _entry(desk, name), undo=_undoing(desk, name, before)
    )


def merge(desk: Desk, form: Form) -> Done:
    """Make one of a candidate and a memory: the memory is replaced by the joint text, the candidate put away."""
    begun = {name: _newest(desk, name) for name in (form.get("into", ""), form.get("id", ""))}
    verdict = desk.ask(
        Memories.supersede, id=form.get("into", ""), content=form.get("content", ""), reason=f"merged with {form.get('id', '')}"
    )  # fmt: skip
    _check_accepted(verdict)
    made = verdict["memory"]["id"]
    if made != form.get("id"):
        desk.ask(Memories.archive, id=form.get("id", ""), reason=f"merged into {made}")
    begun[made] = begun.get(made, "")
    undo = ",".join(change for name, since in begun.items() if (change := _undoing(desk, name, since)))
    return Done("Merged into one.", desk.link("/view/review"), undo=undo)


def restore(desk: Desk, form: Form) -> Done:
    """Bring an entry back to what it was before one change (or before several), or everything to a checkpoint."""
    targets = form.get("target", "").split(",")
    plan = [one for target in targets for one in desk.ask(Time.restore, target=target)["entries"]]
    said = f"Restored {counted(len(plan), 'entry')}." if plan else "It is as it was: nothing to restore."
    return Done(said, form.get("back") or desk.link("/"))


def forget(desk: Desk, form: Form) -> Done:
    """Look at what would go, then let it go; the receipt says what went."""
    name, words = form.get("id", ""), [one for one in form.get("words", "").splitlines() if one.strip()]
    asked: dict[str, Any] = {"id": name} if name else {}
    if words:
        asked["words"] = words
    also = [key.removeprefix("also:") for key in form if key.startswith("also:")]
    receipt = desk.ask(Memories.forget, **asked, also=also, dry_run=form.get("sure") != "yes")
    shown = {"receipt": receipt, "name": name, "words": form.get("words", ""), "also": also}
    return Done(template="forget.html", shown=shown)


def forget_person(desk: Desk, form: Form) -> Done:
    """The same for all that is a person's own."""
    owner, shared = form.get("owner", ""), form.get("shared") == "yes"
    planned = form.get("sure") != "yes"
    receipt = desk.ask(Persons.forget_person, user_id=owner, shared=shared, dry_run=planned)
    return Done(template="farewell.html", shown={"receipt": receipt, "owner": owner})


def remember(desk: Desk, form: Form) -> Done:
    """Keep one sentence."""
    scope, _, owner = form.get("who", "").partition(":")
    place = {"scope": scope, "owner": owner} if owner else {"scope": "project"}
    verdict = desk.ask(
        Remember.remember, content=form.get("content", ""), category=form.get("category") or "fact", **place
    )
    if not verdict["accepted"]:
        raise Invalid(f"It was not kept: {verdict.get('detail') or verdict.get('reason')}.")
    return Done("Remembered.", _entry(desk, verdict["memory"]["id"]))


def core(desk: Desk, form: Form) -> Done:
    """Set the project's core memory."""
    lists = ("criticalConventions", "userPreferences", "activeFocus", "notes")
    given: dict[str, Any] = {
        name: [one.strip() for one in form.get(name, "").splitlines() if one.strip()] for name in lists
    }
    desk.ask(Memories.set_core, projectSummary=form.get("projectSummary", ""), **given)
    return Done("Core memory is set.", desk.link("/view/project"))


# ---------------------------------------------------------------- documents


def upload(desk: Desk, form: Form) -> Done:
    """Take in one file as a document."""
    file, name = form.get("file"), form.get("file_name", "")
    if not isinstance(file, bytes) or not name:
        raise Invalid("file: choose a file to take in.", field="file")
    more = {"category_id": form["category"].strip()} if form.get("category", "").strip() else {}
    title = form.get("title", "").strip() or name.rpartition(".")[0] or name
    made = desk.ask(Knowledge.knowledge_upload, title=title, file=file, file_name=name, **more)
    return Done(f"{title} is taken in.", desk.link("/view/document", id=made["doc_id"]))


# ---------------------------------------------------------------- upkeep


def repair(desk: Desk, _form: Form) -> Done:
    """Mend what is safe to mend."""
    done = desk.ask(Upkeep.repair)["mended"]
    return Done(
        "; ".join(f"{one['where']}: {one['what']}" for one in done) or "There was nothing to mend.",
        _HEALTH,
    )


def retry(desk: Desk, _form: Form) -> Done:
    """Queue what failed again."""
    desk.ask(Upkeep.failures, retry=True)
    return Done("What can be tried again is queued.", _HEALTH)


def trigger(desk: Desk, form: Form) -> Done:
    """Run a strategy now."""
    done = desk.ask(Upkeep.trigger, name=form.get("name", ""), timeout=20.0)
    return Done(f"{done['name']}: {done['status']}, {done['dispatched']} runs.", _HEALTH)


def switch(desk: Desk, form: Form) -> Done:
    """Switch a strategy on or off."""
    name, on = form.get("name", ""), form.get("on") == "yes"
    rows = desk.ask(Upkeep.switch, name=name, off=not on)["strategies"]
    now = next(row["enabled"] for row in rows if row["name"] == name)
    told = f"{name.replace('_', ' ')} is {'on' if now else 'off'}"
    rest = "." if now == on else " still: strategies.enabled is false, so that none runs."
    return Done(told + rest, _HEALTH)


def undo(desk: Desk, form: Form) -> Done:
    """Take a run back: the one that is named, or the latest reflection."""
    done = desk.ask(Time.undo, run_id=form.get("run_id") or "reflection")
    kept = f" {done['kept']} were changed since and stay." if done["kept"] else ""
    return Done(f"{done['restored']} entries are as they were.{kept}", _HEALTH)


def asked(method: Callable[..., Any], said: str, to: str, **fields: str) -> Callable[[Desk, Form], Done]:
    """An act that is one operation with these fields of its form; `said` is told with what it answered."""

    def act(desk: Desk, form: Form) -> Done:
        done = desk.ask(method, **{name: form.get(field, "") for name, field in fields.items()})
        return Done(said.format_map(done), to if to == _HEALTH else desk.link(to))

    return act


def planned(method: Callable[..., Any], what: str) -> Callable[[Desk, Form], Done]:
    """An act that is planned first, then carried out."""

    def act(desk: Desk, form: Form) -> Done:
        only = form.get("sure") != "yes"
        plan = desk.ask(method, dry_run=only)
        return Done(template="plan.html", shown={"what": what, "plan": plan, "planned": only})

    return act


_BY_NAME = (
    revise, correct, reword, merge, restore, forget, forget_person, remember, core, upload, repair, retry, trigger, switch,
    undo,
)  # fmt: skip

ACTS: Mapping[str, Callable[[Desk, Form], Done]] = {
    **{act.__name__: act for act in _BY_NAME},
    "checkpoint": asked(Time.checkpoint, "{id} is marked.", "/view/project", label="label"),
    "drop": asked(Knowledge.knowledge_remove, "The document is removed.", _KNOWLEDGE, doc_id="id"),
    "link": asked(
        Knowledge.knowledge_link,
        "{name} is followed; documents so far: {documents}.",
        _KNOWLEDGE,
        path="path",
    ),
    "unlink": asked(
        Knowledge.knowledge_unlink,
        "The folder is no longer followed; its files are as they were.",
        _KNOWLEDGE,
        name="name",
    ),
    "sync": asked(Upkeep.sync, "{applied} changes were applied.", _HEALTH),
    "rebuild": asked(Upkeep.rebuild, "Rebuilt: {rows} rows from {notes} files.", _HEALTH),
    "sweep": planned(Memories.sweep, "sweep"),
    "consolidate": planned(Memories.consolidate, "consolidate"),
    "keep": simple(Memories.promote, "Kept."),
    "refuse": simple(Memories.archive, "Put away."),
    "archive": simple(Memories.archive, "Archived: out of answers, still in its note."),
    "unarchive": simple(Memories.restore, "Back again."),
    "pin": simple(Memories.pin, "Pinned."),
    "unpin": simple(Memories.unpin, "Not pinned any more."),
}
