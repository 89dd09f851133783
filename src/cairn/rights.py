"""Who may do what: the one place that decides, for every surface that knows its caller.

A grant is what one token may do. What it is asked about is always one of four things: an owner's memory, the
project's own, a space as a whole, or the root as a whole.

    owner    users, agents and runs by id: inside `owner=`, where the token names owners
    project  memories that belong to nobody: a right of its own (`share`) for a token limited to owners
    space    what tells or changes everybody's (log, diff, sweep, forget): no token that is limited to owners
    root     every space at once: no token that is limited at all

Letting a memory in (`promote`) and keeping it at hand (`pin`) are rights of their own, too: without them the
words of a caller stay a candidate, and what was let in is not reworded. A session belongs to who began it:
see `check_session` and `check_newcomers`, which the inbox asks under the session's lock.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from cairn.errors import Conflict, Forbidden, Invalid, Misconfigured
from cairn.types import Scope, Space

_MIN_SECRET = 16
_RIGHTS = ("share", "promote", "pin")
_WORDS = "[r|rw] [app=a,b] [project=p] [owner=o] [share] [promote] [pin] [admin] [rate=N] [expires=DATE] [name=NAME]"
_NAME = re.compile(r"[A-Za-z0-9_.@+-]{1,64}")
_SPAN = re.compile(r"(\d{1,5})([hd])")


@dataclass(frozen=True, slots=True)
class Grant:
    """What one token may do. None means not limited.

    `rate` is how many calls a minute it may make (0: not limited), `expires` when it ends. `admin` is the right to make
    and revoke tokens and to read the audit log; only a token that is not limited otherwise can have it.
    """

    digest: bytes = b""
    name: str = ""
    write: bool = True
    apps: frozenset[str] | None = None
    projects: frozenset[str] | None = None
    owners: frozenset[str] | None = None
    share: bool = True
    promote: bool = True
    pin: bool = True
    admin: bool = False
    rate: int = 0
    expires: datetime | None = None

    # ------------------------------------------------------------ what it reaches

    def reach_owners(self, space: Space, owners: Collection[str], *, write: bool = False) -> None:
        """Raise `Forbidden` unless the memory of each of `owners` (at least one) may be reached."""
        self._reach(space, write=write)
        if self.owners is not None:
            outside = [owner for owner in owners if owner not in self.owners]
            if outside or not owners:
                named = f' "{outside[0][:128]}"' if outside and outside[0] else " without an owner"
                raise Forbidden(f"This token does not reach memory{named}.")

    def reach_scope(self, scope: Scope, *, write: bool = False) -> None:
        """Raise `Forbidden` unless memories of `scope` may be reached: an owner's, or the project's."""
        if scope.track != "project":
            self.reach_owners(scope.space, [scope.owner], write=write)
            return
        self._reach(scope.space, write=write)
        if not self.share and (write or self.owners is not None):
            raise Forbidden(
                "This token does not reach the project's own memory. Name a scope and an owner, or give the "
                'token the word "share".'
            )

    def sees(self, scope: Scope) -> bool:
        """Whether memories of `scope` may be read."""
        try:
            self.reach_scope(scope)
        except Forbidden:
            return False
        return True

    def reach_space(self, space: Space, *, write: bool = False) -> None:
        """Raise `Forbidden` unless everybody's memory in `space` may be reached."""
        self._reach(space, write=write)
        if self.owners is not None:
            raise Forbidden(
                "This token does not reach memory without an owner: it is limited to owners. Name one of them, or use a "
                "token without `owner=`."
            )
        if write and not self.share:
            raise Forbidden('This token may not change what is the project\'s: it lacks the word "share".')

    def reach_root(self, *, write: bool = False) -> None:
        """Raise `Forbidden` unless the token is not limited at all."""
        if self.apps is not None or self.projects is not None:
            raise Forbidden(
                "This token does not reach the root as a whole: use one without `app=` and `project=`."
            )
        self.reach_space(Space(), write=write)

    def _reach(self, space: Space, *, write: bool) -> None:
        if write and not self.write:
            raise Forbidden("This token may only read: use one with `rw`.")
        if self.apps is not None and space.app not in self.apps:
            raise Forbidden(f'This token does not reach app_id "{space.app}": use one whose `app=` names it.')
        if self.projects is not None and space.project not in self.projects:
            raise Forbidden(
                f'This token does not reach project_id "{space.project}": use one whose `project=` names it.'
            )

    def may_administer(self) -> None:
        """Raise `Forbidden` unless the token may make and revoke tokens and read the audit log."""
        if not self.admin:
            raise Forbidden(
                'This token may not look after tokens: it lacks the word "admin". '
                "`cairn token` does so on the machine itself."
            )

    @property
    def sees_shared(self) -> bool:
        """Whether what is the project's may be read beside an owner's memory."""
        return self.share or self.owners is None

    # ------------------------------------------------------------ what it may let in

    def may_promote(self, what: str) -> None:
        """Raise `Forbidden` unless the token may let memories in; `what` names the field or the call."""
        if not self.promote:
            raise Forbidden(
                f"{what}: this token may not promote. Leave it out, and the memory is kept as a candidate; or use a token "
                'with the right "promote".'
            )

    def may_pin(self, what: str) -> None:
        """Raise `Forbidden` unless the token may pin, which also promotes."""
        if not self.pin:
            raise Forbidden(f'{what}: this token may not pin. A token may with the word "pin".')

    def may_remember(self, scope: Scope, *, mode: str, status: str | None, pinned: bool) -> None:
        """Raise `Forbidden` unless a memory of `scope` may be written, and let in as it is asked for."""
        self.reach_scope(scope, write=True)
        if pinned:
            self.may_pin("pinned")
        if mode == "strict":
            self.may_promote('mode "strict"')
        if status == "promoted":
            self.may_promote('status "promoted"')

    def may_reword(self, row: Mapping[str, Any], *, confidence: float | None = None) -> None:
        """Raise `Forbidden` unless the memory of this row may be changed: what was let in, by who may let in.

        How sure a memory is decides whether a sweep lets it in, so that is theirs to say, too.
        """
        if row["status"] == "promoted" or row["pinned"]:
            self.may_promote(f"{row['id']} is promoted")
        if confidence is not None:
            self.may_promote("confidence")

    def may_restore(self, row: Mapping[str, Any]) -> None:
        """Raise `Forbidden` unless this archived memory may come back with the status it had."""
        if row["promoted_at"]:
            self.may_promote(f"{row['id']} was promoted")


OPEN = Grant()


def parse_tokens(lines: Sequence[str]) -> tuple[Grant, ...]:
    """Read the `server.tokens` setting; see `ServerSettings`. One without `name=` is named by its place.

    Raises:
        Misconfigured: a token that is too short, or a word of it that has no meaning.
    """
    found = []
    for place, line in enumerate(lines, 1):
        secret, *words = line.split()
        if len(secret) < _MIN_SECRET:
            raise Misconfigured(
                f"server.tokens: a token needs at least {_MIN_SECRET} characters.", setting="server.tokens"
            )
        try:
            found.append(grant_of(digest_of(secret.encode()), f"settings-{place}", words))
        except Invalid as error:
            raise Misconfigured(f"server.tokens: {error}", setting="server.tokens") from None
    return tuple(found)


def digest_of(secret: bytes) -> bytes:
    """What is kept of a secret. Ours have 256 random bits, so one round of a hash is enough."""
    return hashlib.sha256(secret).digest()


def check_name(name: str) -> str:
    """A token's name.

    Raises:
        Invalid: it has other characters, or too many.
    """
    if not _NAME.fullmatch(name):
        raise Invalid(
            f'"{name[:60]}" cannot be a token\'s name: use 1 to 64 letters, digits and _.@+- without blanks.',
            field="name",
        )
    return name


def split_rights(rights: str) -> list[str]:
    """The words of a text of rights.

    Raises:
        Invalid: there is none. An empty text is a variable that was not set more often than a wish for every right.
    """
    if words := rights.split():
        return words
    raise Invalid(
        f'No right is named: say "rw" for all but admin, or what is allowed: {_WORDS}. Nothing was made.',
        field="rights",
    )


def grant_of(digest: bytes, name: str, words: Sequence[str]) -> Grant:
    """What the words after a secret allow.

    Raises:
        Invalid: a word that has no meaning, or one that is there twice, so that the second would undo the first.
    """
    limits: dict[str, frozenset[str]] = {}
    named: dict[str, bool] = {}
    write, admin, rate = True, False, 0
    expires: datetime | None = None
    seen: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        about = "r" if word == "rw" else key.removeprefix("-")
        if about in seen:
            raise Invalid(_twice(seen[about], word), field="rights")
        seen[about] = word
        if word in {"r", "rw"}:
            write = word == "rw"
        elif word.removeprefix("-") in _RIGHTS:
            named[word.removeprefix("-")] = not word.startswith("-")
        elif word == "admin":
            admin = True
        elif key in {"app", "project", "owner"} and value:
            if "" in (names := value.split(",")):
                raise Invalid(
                    f'"{word[:60]}" has an empty name: write {key}=a or {key}=a,b without blanks, or leave it out for all.',
                    field="rights",
                )
            if value != "*":
                limits[key] = frozenset(names)
        elif key == "rate" and value.isascii() and value.isdigit() and 0 < int(value) <= 1_000_000:
            rate = int(value)
        elif key == "expires" and value:
            expires = end_of(value)
        elif equals and key == "name":
            name = check_name(value)
        else:
            raise Invalid(f'"{word[:60]}" is not understood; the words are {_WORDS}.', field="rights")
    # Who is limited to owners has the further rights only by name; who is not can be denied them by name.
    usual = "owner" not in limits
    if admin and (limits or not write or not all(named.values())):
        raise Invalid(
            '"admin" makes tokens of every kind, so it is for a token that is not limited otherwise: leave out '
            "r, app=, project=, owner= and words with a minus.",
            field="rights",
        )
    return Grant(
        digest=digest,
        name=name,
        write=write,
        apps=limits.get("app"),
        projects=limits.get("project"),
        owners=limits.get("owner"),
        share=named.get("share", usual),
        promote=named.get("promote", usual),
        pin=named.get("pin", usual),
        admin=admin,
        rate=rate,
        expires=expires,
    )


def _twice(before: str, word: str) -> str:
    key, equals, _ = word.partition("=")
    listed = (
        f" Several stand in one list: {key}=a,b." if equals and key in {"app", "project", "owner"} else ""
    )
    return f'"{before[:60]}" and "{word[:60]}" cannot both hold: leave one out.{listed}'


def end_of(text: str, now: datetime | None = None) -> datetime:
    """When a token ends: a day (its end, in UTC), a moment with its zone, or a span from `now` (`90d`, `12h`).

    Raises:
        Invalid: none of these.
    """
    span = _SPAN.fullmatch(text)
    if span is not None and now is not None:
        return now + int(span[1]) * (timedelta(hours=1) if span[2] == "h" else timedelta(days=1))
    try:
        if len(text) == len("2027-01-01"):
            return datetime.fromisoformat(text).replace(tzinfo=UTC) + timedelta(days=1)
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found
    except (ValueError, OverflowError):
        pass
    spans = ", or a span such as 90d or 12h" if now is not None else ""
    raise Invalid(
        f'expires "{text[:60]}" is no end: give a day (2027-01-01), a time with its zone '
        f"(2027-01-01T12:00:00+00:00){spans}.",
        field="expires",
    )


# ---------------------------------------------------------------- sessions


def session_owners(turns: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Whose a session is, by the (role, sender) of all that was said in it.

    Every user's; where none has spoken the assistants', else whoever spoke. What an assistant said to a user is the
    user's.
    """
    spoke: dict[str, set[str]] = {}
    for role, sender in turns:
        spoke.setdefault(role, set()).add(sender)
    for role in ("user", "assistant"):
        if role in spoke:
            return frozenset(spoke[role])
    return frozenset().union(*spoke.values())


def check_session(session_id: str, owners: Collection[str], limited_to: Collection[str] | None) -> None:
    """Raise `Forbidden` where a caller limited to some owners asks for a session of anybody else."""
    if limited_to is not None and not set(owners) <= set(limited_to):
        raise Forbidden(
            f'Session "{session_id[:200]}" holds words of somebody else, whom this caller does not reach: use another '
            "session_id. Nothing was written.",
            session_id=session_id,
        )


def check_newcomers(session_id: str, begun_for: Collection[str] | None, users: Iterable[str]) -> None:
    """Raise `Conflict` where another user would speak in a session that somebody began for himself.

    Without this, who begins a session under an id that he guesses gets a share in what is said there later.
    """
    if begun_for is None:
        return
    strangers = [user for user in users if user not in begun_for]
    if strangers:
        raise Conflict(
            f'Session "{session_id[:200]}" was begun by a caller limited to {", ".join(sorted(begun_for))[:200]}: '
            f'"{strangers[0][:128]}" cannot speak in it. Use another session_id. Nothing was written.',
            session_id=session_id,
        )
