"""Who may call what: the rules of the table, each in terms of `cairn.rights`.

A rule gets the call and raises `Forbidden`. It may narrow the call down, never widen it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.errors import Forbidden, Invalid, NotFound, NotOffered
from cairn.operations.table import Asked
from cairn.types import Scope, Space, split_public_id

if TYPE_CHECKING:
    from cairn.config import Settings

Rule = Callable[[Asked], None]
AlsoRule = Callable[[Asked, Mapping[str, Any]], None]


def space_of(asked: Asked) -> Space:
    return Space(asked.fields["app_id"], asked.fields["project_id"])


def senders(asked: Asked) -> None:
    """Everyone who is said to speak in the messages; an assistant without a name speaks for the user it answers.

    So it needs a user of the caller's, in the messages or in what was said in the session before.
    """
    from cairn.talk.foreign import ASSISTANT, taken

    given, space = asked.fields, space_of(asked)
    if asked.grant.owners is None:
        asked.grant.reach_owners(space, (), write=True)
        return
    person = given["user_id"] or asked.room.settings.memory.person
    read = taken(given["messages"], user_id=person, now_ms=1)
    spoke = {str(one.get("sender_id")) for _, one in read.messages if isinstance(one, dict)}
    if spoke == {ASSISTANT}:
        before = asked.room.session_owners(given["session_id"], space.app, space.project)
        spoke = set(asked.grant.owners).intersection(before) or spoke
    asked.grant.reach_owners(space, sorted(spoke - {ASSISTANT} or spoke), write=True)


def session(asked: Asked) -> None:
    """The caller's own sessions; whose the session is, is looked at under its lock."""
    asked.grant.reach_owners(space_of(asked), asked.grant.owners or (), write=True)


def owner(asked: Asked) -> None:
    """The owner the call names, to read."""
    named = asked.fields["user_id"] or asked.fields["agent_id"] or ""
    asked.grant.reach_owners(space_of(asked), [named])


def recall(asked: Asked) -> None:
    """The person, the agent and the mission that are asked; what is the project's is left out for who may not see it.

    A token of one owner need not name that owner. A repository's record is everybody's who works there.
    """
    given, grant = asked.fields, asked.grant
    if grant.owners is not None:
        given["folder"] = None
        if given["user_id"] is None and len(grant.owners) == 1:
            given["user_id"] = next(iter(grant.owners))
    owners = (
        given["user_id"] or asked.room.settings.memory.person,
        given["agent_id"],
        given.get("mission_id"),
    )
    space = Space(given["app_id"], given["project_id"] or "default")
    grant.reach_owners(space, [one for one in owners if one])


def events(asked: Asked) -> None:
    """The owner the call names, or everything in the space."""
    if asked.fields["owner"] is None:
        asked.grant.reach_space(space_of(asked))
    else:
        asked.grant.reach_owners(space_of(asked), [asked.fields["owner"]])


def remember(asked: Asked) -> None:
    """The scope the memory goes to, and letting it in as it is asked for."""
    given = asked.fields
    scope = asked.room.parts.keeper.scope_of(
        space_of(asked), given["scope"], given["owner"], agent_id=given["agent_id"]
    )
    asked.grant.may_remember(scope, mode=given["mode"], status=given["status"], pinned=given["pinned"])
    if given["agent_id"] is not None:
        asked.grant.reach_owners(scope.space, [given["agent_id"]], write=True)


def agent(*, write: bool) -> Rule:
    """One agent's own: who it is and the documents it is given. They are before it as they stand."""

    def rule(asked: Asked) -> None:
        asked.grant.reach_owners(space_of(asked), [asked.fields["agent"]], write=write)
        if write:
            asked.grant.may_promote("what an agent is told of itself")

    return rule


def capture(asked: Asked) -> None:
    """The scope that what is captured goes to."""
    given = asked.fields
    asked.grant.reach_scope(
        asked.room.parts.keeper.scope_of(space_of(asked), given["scope"], given["owner"]), write=True
    )


def one_scope(asked: Asked) -> None:
    """The scope the call names, or the whole space where it names none, to read."""
    if asked.fields["scope"] is None:
        asked.grant.reach_space(space_of(asked))
        return
    named = asked.room.parts.keeper.scope_of(space_of(asked), asked.fields["scope"], asked.fields["owner"])
    asked.grant.reach_scope(named)


def one_memory(*, write: bool, also: AlsoRule | None = None) -> Rule:
    """The memory the call names; `also` looks at its row."""

    def rule(asked: Asked) -> None:
        given, space = asked.fields, space_of(asked)
        # The id says whose it is: a token learns nothing about what lies beyond it, not even that it is there.
        if named := given["owner"] or split_public_id(given["memory_id"])[0]:
            asked.grant.reach_owners(space, [named], write=write)
        elif asked.grant.owners is not None or given["scope"] == "project":
            asked.grant.reach_scope(Scope(space, "project", ""), write=write)
            given["scope"] = "project"
        place = {name: given[name] for name in ("scope", "owner", "app_id", "project_id")}
        row = asked.room.show(given["memory_id"], **place)
        asked.grant.reach_scope(Scope(space, row["scope"], row["scope_owner_id"]), write=write)
        if also is not None:
            also(asked, row)

    return rule


def anybody(_asked: Asked) -> None:
    """Everybody with a grant: the answer itself leaves out what the caller may not see."""


def seen(asked: Asked) -> None:
    """The owner the call names; where it names none, what the caller may see of the space (the call leaves out the
    rest).
    """
    given = asked.fields
    if given["scope"] is not None and (given["owner"] or given["scope"] == "project"):
        asked.grant.reach_scope(
            asked.room.parts.keeper.scope_of(space_of(asked), given["scope"], given["owner"])
        )
    else:
        asked.grant.reach_owners(space_of(asked), asked.grant.owners or ())


def one_entry(*, write: bool) -> Rule:
    """The owner of the entry the call names; all of the space where it names none, or what was said."""

    def rule(asked: Asked) -> None:
        grant, space, wanted = asked.grant, space_of(asked), asked.fields["entry_id"]
        if wanted is None or (grant.owners is None and not write):
            grant.reach_space(space, write=write)
            return
        from cairn.operations import lookup

        # The id says whose it is: a token learns nothing about what lies beyond it, not even that it is there.
        owners = grant.owners or ()
        if grant.owners is not None and not any(wanted.startswith(f"{one}_") for one in owners):
            grant.reach_scope(Scope(space, "project", ""), write=write)
        else:
            grant.reach_owners(space, owners, write=write)
        shown = lookup.show(asked.room.parts, space, wanted)
        if shown["kind"] in {"message", "cell", "page"}:
            grant.reach_space(space, write=write)
        grant.reach_scope(Scope(space, shown["scope"], shown["owner"]), write=write)
        if write and shown["kind"] == "memory":
            inline = shown["inline"]
            pinned = str(inline.get("pinned", "")).lower() == "true"
            grant.may_reword({"id": shown["id"], "status": inline.get("status"), "pinned": pinned})

    return rule


def may_reword(asked: Asked, row: Mapping[str, Any]) -> None:
    asked.grant.may_reword(row, confidence=asked.fields.get("confidence"))


def may_restore(asked: Asked, row: Mapping[str, Any]) -> None:
    asked.grant.may_restore(row)


def may_promote(asked: Asked, _row: Mapping[str, Any]) -> None:
    asked.grant.may_promote("promote")


def may_pin(what: str) -> Callable[[Asked, Mapping[str, Any]], None]:
    return lambda asked, _row: asked.grant.may_pin(what)


# ---------------------------------------------------------------- spaces and the root


def whole_space(*, write: bool, promotes: str = "") -> Rule:
    """Everybody's memory in the space; a dry run only reads. `promotes` names what lets memories in."""

    def rule(asked: Asked) -> None:
        dry = bool(asked.fields.get("dry_run"))
        asked.grant.reach_space(space_of(asked), write=write and not dry)
        if promotes and not dry:
            asked.grant.may_promote(promotes)

    return rule


def forget(asked: Asked) -> None:
    """The space: the receipt tells whether others hold the same words, too."""
    asked.grant.reach_space(space_of(asked), write=True)


def bring_in(asked: Asked) -> None:
    """The space: an export may hold memories of every scope, whoever it is said to be about."""
    asked.grant.reach_space(space_of(asked), write=True)
    if asked.fields["trust"]:
        asked.grant.may_promote("trust")


def core(*, write: bool) -> Rule:
    """The project's core memory, or an agent's."""

    def rule(asked: Asked) -> None:
        from cairn.governed.core import core_scope

        agent = asked.fields["agent"]
        asked.grant.reach_scope(core_scope(space_of(asked), agent), write=write)
        if write and not agent:
            # What stands there is before every agent at once.
            asked.grant.may_promote("core memory of the project")

    return rule


def skill_folders(asked: Asked) -> None:
    """The space, and folders below `server.project_roots` alone."""
    asked.grant.reach_space(space_of(asked), write=True)
    asked.grant.may_promote("skills/scan")  # a skill file is a person's word
    settings = asked.room.settings
    asked.fields["folders"] = [str(allowed_folder(settings, one)) for one in asked.fields["folders"]]


def library(*, write: bool) -> Rule:
    """The documents of a space: the project's own, like its memories. What they say is recalled as it stands, so
    whoever adds one lets it in.
    """

    def rule(asked: Asked) -> None:
        asked.grant.reach_scope(Scope(space_of(asked), "project", ""), write=write)
        if write:
            asked.grant.may_promote("knowledge")

    return rule


def linked_folder(asked: Asked) -> None:
    """The documents of the space, and a folder below `server.project_roots`."""
    library(write=True)(asked)
    asked.fields["path"] = str(allowed_folder(asked.room.settings, asked.fields["path"]))


def root(*, write: bool) -> Rule:
    """The root as a whole."""
    return lambda asked: asked.grant.reach_root(write=write)


def person(asked: Asked) -> None:
    """The person the call names, to read."""
    asked.grant.reach_owners(space_of(asked), [asked.fields["user_id"]])


def session_read(asked: Asked) -> None:
    """A session of the caller's own, to read; whose it is, is looked at when it is."""
    asked.grant.reach_owners(space_of(asked), asked.grant.owners or ())


def admin(asked: Asked) -> None:
    """Looking after tokens and reading the audit log: a right of its own."""
    asked.grant.may_administer()


def repository(*, write: str = "") -> Rule:
    """A repository below `server.project_roots`, and the space of its memory.

    `write` names what is written: agents are told it as it stands, so whoever writes lets it in. A dry run only reads.
    """

    def rule(asked: Asked) -> None:
        from cairn.projects import open_project  # a fifth of a second that most servers never need

        settings, fields = asked.room.settings, asked.fields
        project = open_project(allowed_folder(settings, fields["path"]))
        check_below(project.tree.resolve(), project_roots(settings))
        writes = bool(write) and not fields.get("dry_run") and fields.get("apply") is not False
        asked.grant.reach_space(project.space, write=writes)
        if writes:
            asked.grant.may_promote(write)
        if "folder" in fields:  # sessions are read from there
            check_below(Path(fields["folder"]).expanduser().resolve(), project_roots(settings))
        fields["path"] = str(project.tree)

    return rule


# ---------------------------------------------------------------- folders of this machine


def allowed_folder(settings: Settings, path: str) -> Path:
    """The folder at `path`, links resolved, if the server was told about it.

    Raises:
        Forbidden: without `server.project_roots`, or outside of them.
        NotFound: there is none.
        Invalid: no path.
    """
    roots = project_roots(settings)
    if not roots:
        raise NotOffered(
            "This server was told of no repositories. List their folders in server.project_roots."
        )
    if "\0" in path or not Path(path).is_absolute():
        raise Invalid("path: give the absolute path of a repository.", field="path")
    folder = Path(path).resolve()
    # Said before looking whether it is there, so that nobody can ask which folders this machine has.
    check_below(folder, roots)
    if not folder.is_dir():
        raise NotFound("path: there is no such folder below server.project_roots.")
    return folder


def project_roots(settings: Settings) -> list[Path]:
    return [Path(one).expanduser().resolve() for one in settings.server.project_roots]


def check_below(folder: Path, roots: list[Path]) -> None:
    if not any(folder == one or one in folder.parents for one in roots):
        raise Forbidden("path is not below any of server.project_roots.")
