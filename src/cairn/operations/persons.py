"""All of a person or of a session: handed over, or forgotten, with a preview and a receipt."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from cairn import governed
from cairn.notes.format import list_items, parse_note
from cairn.operations import rules
from cairn.operations.answers import Answers
from cairn.operations.fields import MAX_ID, AppId, DryRun, InSpace, ProjectId, SessionId, space_named
from cairn.operations.forgetting import Purgers, purge_history, purge_index, while_quiet
from cairn.operations.table import Granted, Room, operation, says
from cairn.types import Scope, Space

if TYPE_CHECKING:
    from cairn.governed.persons import Farewell, Going
    from cairn.governed.wanted import Beside
    from cairn.parts import Parts

answers = Answers("persons")

WholePerson = Annotated[str, says("the person", "alice", low=1, high=MAX_ID)]
_GONE = "[forgotten]"


class Persons(Room):
    """Export and forgetting of a whole person or session."""

    @operation("GET /person", answers.PersonData, rules.person, apart=True)
    def export_person(
        self, user_id: WholePerson, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> dict[str, Any]:
        """Everything that is kept of a person, to hand over: their notes as they stand, and what they said.

        Of sessions that others had a part in, only the person's own words.

        Raises:
            NotFound: nothing is kept of them.
        """
        scope = Scope(Space(app_id, project_id), "user", user_id)
        waiting = _waiting(self.parts, governed.persons.Going(scope.space, scope.owner))
        return governed.persons.export_person(self.parts.keeper, scope.space, scope.owner, waiting=waiting)

    @operation(
        "POST /person/forget",
        answers.FarewellData,
        rules.whole_space(write=True),
        forgets=("user_id",),
        apart=True,
    )
    def forget_person(
        self,
        user_id: WholePerson,
        *,
        shared: Annotated[
            bool, says("also remove their messages from sessions that others took part in", True)
        ] = False,
        dry_run: DryRun = False,
        **at: Unpack[InSpace],
    ) -> Farewell:
        """Remove a person: their notes, the sessions in which no other user spoke, and every line, former text, row,
        queued job and file name about them. There is no undo.

        What stays is named with its reason: sessions that others had a part in (unless `shared`), what others say about
        them, a git history, backups.

        Raises:
            NotFound: nothing is kept of them.
        """
        parts, scope = self.parts, Scope(space_named(**at), "user", user_id)

        def run(beside: Beside) -> Farewell:
            return governed.persons.forget_person(
                parts.keeper, scope.space, scope.owner, shared=shared, dry_run=dry_run, beside=beside
            )

        def retell(session: str) -> int:
            return parts.capture.reextract(scope.space, session)

        call = {"call": "forget_person", "user_id": user_id, "shared": shared, "dry_run": dry_run, **at}
        return while_quiet(
            parts, run, _hooks(parts), call=call, waiting=lambda going: len(_waiting(parts, going)), retell=retell
        )  # fmt: skip

    @operation("GET /session", answers.SessionData, rules.session_read, apart=True)
    def export_session(
        self,
        session_id: SessionId,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
        *,
        limited_to: Annotated[Collection[str] | None, Granted("owners")] = None,
    ) -> dict[str, Any]:
        """A session word for word, and the entries that were made from it.

        Raises:
            NotFound: there is none of that name.
            Forbidden: somebody outside `limited_to` spoke in it.
        """
        from cairn import rights

        space = Space(app_id, project_id)
        waiting = _waiting(self.parts, governed.persons.Going(space, sessions=[session_id]))
        found = governed.persons.export_session(self.parts.keeper, space, session_id, waiting=waiting)
        turns = ((str(one.get("role")), str(one.get("sender_id"))) for one in found["messages"])
        rights.check_session(session_id, rights.session_owners(turns), limited_to)
        return found

    @operation(
        "POST /session/forget",
        answers.FarewellData,
        rules.whole_space(write=True),
        forgets=("session_id",),
        apart=True,
    )
    def forget_session(
        self, session_id: SessionId, *, dry_run: DryRun = False, **at: Unpack[InSpace]
    ) -> Farewell:
        """Remove a session from everybody's memory: its words, its episodes, and what was made from them. There is no undo.

        Raises:
            NotFound: there is none of that name.
        """
        parts, space = self.parts, space_named(**at)

        def run(beside: Beside) -> Farewell:
            return governed.persons.forget_session(
                parts.keeper, space, session_id, dry_run=dry_run, beside=beside
            )

        call = {"call": "forget_session", "session_id": session_id, "dry_run": dry_run, **at}
        return while_quiet(
            parts, run, _hooks(parts), call=call, waiting=lambda going: len(_waiting(parts, going))
        )


def _hooks(parts: Parts) -> Purgers:
    """What takes somebody out of the places that hold copies, in this order: the index comes last."""
    return {
        "waiting events": lambda going: _from_spool(parts, going),
        "folders": lambda going: _prune(parts, going),
        "history": lambda going: _from_history(parts, going),
        "unfinished cells": lambda going: parts.capture.forget(going.space, going.sessions),
        "queued strategies": lambda going: parts.engine.forget(going.is_recorded),
        "audit lines": lambda going: _from_audit(parts, going),
        "index": lambda going: purge_index(
            parts, going.paths, [*filter(None, [going.owner]), *going.sessions]
        ),
    }


def _waits(parts: Parts, going: Going, event: dict[str, Any]) -> bool:
    """Whether what an agent's hook has left is of who goes. What cannot be read is the person's whose agents they are."""
    from cairn.engines import spool
    from cairn.projects import space_at

    is_theirs = bool(going.owner) and going.owner == parts.settings.memory.person
    if "text" in event:
        return is_theirs or any(one.partition("-")[2] in event["text"] for one in going.sessions)
    if "trouble" in event:
        return is_theirs or going.names(str(event["trouble"]))
    named = is_theirs or spool.session_of(event) in going.sessions
    return named and space_at(str(event.get("folder", ""))) == going.space


def _waiting(parts: Parts, going: Going) -> list[dict[str, Any]]:
    from cairn.engines import spool

    found = (event for _, event in spool.kept(parts.settings.root))
    return [event for event in found if _waits(parts, going, event)]


def _from_spool(parts: Parts, going: Going) -> int:
    from cairn.engines import spool

    root = parts.settings.root
    with parts.local_locks.hold(spool.LOCK):
        for session in going.sessions:
            spool.forget_marks(root, session)
        return spool.clean(root, lambda event: None if _waits(parts, going, event) else event)


def _prune(parts: Parts, going: Going) -> int:
    if not going.owner:
        return 0
    return parts.storage.prune(parts.root.scope(Scope(going.space, "user", going.owner)))


def _from_history(parts: Parts, going: Going) -> int:
    touched = purge_history(parts, going.wanted) if going.wanted is not None else 0
    parts.observer.settle()
    history = parts.observer.of(going.space)
    if not going.owner:
        return touched + history.purge(
            clean=lambda _path, text: None if going.names(text) or going.is_told(text) else text
        )
    home = parts.root.space(going.space).key
    touched += history.forget_folder(f"{home}/{going.folder}", f"{home}/users/{going.alias}/")
    # Former texts of others' entries that have them as a speaker are told anew with the entries.
    return touched + history.purge(clean=lambda _path, text: None if _tells_them(text, going) else text)


def _tells_them(text: str, going: Going) -> bool:
    """Whether a former text has them as a speaker: in a line of theirs, or named beside the others after their lines went."""
    if not going.names(text):
        return False
    speakers = (entry.inline.get("sender_ids", "") for entry in parse_note(text).entries)
    return f"{going.owner}: " in text or any(going.owner in list_items(one) for one in speakers)


def _from_audit(parts: Parts, going: Going) -> int:
    from cairn.engines.audit import AuditLog

    def change(line: dict[str, Any]) -> dict[str, Any]:
        about = line.get("about")
        if not isinstance(about, dict):
            return line
        space = (about.get("app_id", "default"), about.get("project_id", "default"))
        sessions = going.sessions if space == (going.space.app, going.space.project) else ()

        def is_of(name: str, value: Any) -> bool:
            return going.names(str(value)) or (name == "session_id" and value in sessions)

        return {
            **line,
            "about": {name: _GONE if is_of(name, value) else value for name, value in about.items()},
        }

    return AuditLog(parts.settings.server_dir, parts.settings.server.audit_bytes).rewrite(change)
