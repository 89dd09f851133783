"""Server tokens in one small file, added and revoked while servers run.

A line's worth of each token is kept: its name, what it may do in the words of `server.tokens`, when it was made,
ends and was revoked, and a hash of its secret. A server looks at the file's stamp before each call and reads it again
when that has changed, so an addition or a revocation holds from the next call on, without a signal.

Once there is a file, its server is never open to everybody again: not when the last token is revoked, and not when the
file is lost or broken while the server runs.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.canonical import from_json
from cairn.engines import plain
from cairn.engines.tree import Tree
from cairn.errors import CairnError, Conflict, Misconfigured, NotFound
from cairn.rights import Grant, check_name, digest_of, end_of, grant_of, split_rights
from cairn.seams import Clock, Locator, Locks

if TYPE_CHECKING:
    from cairn.config import Settings
    from cairn.engines.postgres import Postgres

log = logging.getLogger("cairn.tokens")

PREFIX = "cairn_"
_FILE = Locator("tokens.json")
_DIGEST = 64
_MAX_BYTES = 16 * 1024 * 1024
_ALL = "SELECT data FROM cairn_tokens WHERE root = %(root)s"
_BRING = """
INSERT INTO cairn_tokens SELECT %(root)s, name, data FROM unnest(%(names)s::text[], %(data)s::text[]) AS one(name, data)
ON CONFLICT (root, name) DO
"""
_KEEP, _REPLACE = "NOTHING RETURNING true", "UPDATE SET data = excluded.data RETURNING true"


@dataclass(frozen=True, slots=True)
class Token:
    """One token, without its secret."""

    name: str
    rights: str
    made: str
    expires: str = ""
    revoked: str = ""
    digest: str = ""

    def state(self, now: datetime) -> str:
        """Whether it holds: "active", "expired" or "revoked"."""
        if self.revoked:
            return "revoked"
        return "expired" if self.expires and datetime.fromisoformat(self.expires) <= now else "active"

    def grant(self) -> Grant:
        """What it may do.

        Raises:
            Invalid: its words have no meaning.
        """
        made = grant_of(bytes.fromhex(self.digest), self.name, self.rights.split())
        return replace(made, expires=datetime.fromisoformat(self.expires)) if self.expires else made


class TokenFile:
    """The tokens of one root, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE.name
        self._stamp: tuple[int, ...] | None = None
        self._grants: tuple[Grant, ...] = ()
        self._reading = threading.Lock()
        self.begun = False
        self.grants()

    # ------------------------------------------------------------ for a server

    def grants(self) -> tuple[Grant, ...]:
        """What the tokens that are not revoked may do, as the file says now. `begun` stays true once it was there.

        Raises:
            Misconfigured: it could not be read at the first look; later the tokens of before hold, and the log says so.
        """
        stamp = self._stamped()
        if stamp == self._stamp:
            return self._grants
        with self._reading:
            first = self._stamp is None
            try:
                found = tuple(one.grant() for one in self.read() if not one.revoked)
            except CairnError as error:
                if first:
                    raise
                log.error("the tokens of before hold: %s", error)  # noqa: TRY400
                found = self._grants
            if stamp == _GONE and self.begun:
                log.error("%s is gone: no token of it holds any more", self._path)
            self._grants, self._stamp = found, stamp
            self.begun = self.begun or stamp != _GONE
        return self._grants

    def _stamped(self) -> tuple[int, ...]:
        try:
            seen = os.stat(self._path)
        except OSError:
            return _GONE
        return (seen.st_ino, seen.st_size, seen.st_mtime_ns)

    # ------------------------------------------------------------ for their keeper

    def read(self) -> list[Token]:
        """Every token, those that are gone included, oldest first.

        Raises:
            Misconfigured: the file is broken.
        """
        try:
            with open(plain.opened(self._path), "rb") as file:
                raw = file.read(_MAX_BYTES)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise Misconfigured(
                f"{self._path} cannot be read: {error.strerror}.", setting="server.tokens"
            ) from None
        try:
            return [token_of(one) for one in from_json(raw)["tokens"]]
        except (ValueError, KeyError, TypeError) as error:
            raise Misconfigured(
                f"{self._path} cannot be read ({type(error).__name__}): mend it, or remove it and make the tokens anew.",
                setting="server.tokens",
            ) from None

    def add(
        self, name: str, rights: str | None, expires: str | None, *, locks: Locks, clock: Clock
    ) -> tuple[Token, str]:
        """Make a token; the token and its secret, which is kept nowhere. `rights` that say nothing are not all rights.

        Raises:
            Invalid: a name, words or an end that cannot be.
            Conflict: a token of that name is active.
        """
        now = clock.now().astimezone(UTC)
        secret = PREFIX + secrets.token_urlsafe(32)
        words = split_rights(rights) if rights is not None else []
        grant = grant_of(b"", check_name(name), words)
        end = end_of(expires, now) if expires is not None else grant.expires
        kept = " ".join(word for word in words if not word.startswith(("expires=", "name=")))
        made = Token(
            name,
            kept or "rw",
            now.isoformat(timespec="seconds"),
            end.astimezone(UTC).isoformat(timespec="seconds") if end is not None else "",
            digest=digest_of(secret.encode()).hex(),
        )
        with locks.hold("tokens"):
            known = self.read()
            if any(one.name == name and one.state(now) == "active" for one in known):
                raise Conflict(
                    f'There is a token "{name}": revoke it first, or choose another name.', name=name
                )
            self.keep([*(one for one in known if one.name != name), made])
        return made, secret

    def revoke(self, name: str, *, locks: Locks, clock: Clock) -> Token:
        """End a token; it stays in the list.

        Raises:
            NotFound: there is none of that name that could be revoked.
        """
        with locks.hold("tokens"):
            known = self.read()
            mine = next((one for one in known if one.name == name and not one.revoked), None)
            if mine is None:
                there = ", ".join(one.name for one in known if not one.revoked)
                raise NotFound(
                    f'There is no token "{name[:60]}" to revoke. '
                    + (f"There are: {there}." if there else "`cairn token add` makes one.")
                    + " Those of server.tokens are in the settings.",
                    name=name,
                )
            gone = replace(mine, revoked=clock.now().astimezone(UTC).isoformat(timespec="seconds"))
            self.keep([gone if one is mine else one for one in known])
        return gone

    def keep(self, tokens: Sequence[Token]) -> None:
        """Make these all the tokens there are. The caller holds their lock."""
        rows = [asdict(one) for one in tokens]
        Tree(self._path.parent).replace(_FILE, (json.dumps({"tokens": rows}, indent=1) + "\n").encode())


_GONE: tuple[int, ...] = ()


class SharedTokens(TokenFile):
    """The tokens of a root as rows in `database`, copied into each machine's file in `folder`.

    A server goes on looking at its own file, so a call costs no question to the database, and while that is away the tokens
    of before hold. A token that is in the file alone, since it was made before there were several machines or the database
    was lost since, is brought to the others.
    """

    def __init__(self, folder: Path, database: Postgres) -> None:
        self._database = database
        self._file = TokenFile(folder)
        self.follow()
        super().__init__(folder)

    def follow(self) -> None:
        """Bring this machine's file up to what all servers have."""
        here = self._file.read()
        self._bring(here, _KEEP)
        if (found := self.read()) != here:
            self._file.keep(found)

    def read(self) -> list[Token]:
        found = [token_of(from_json(data)) for [data] in self._database.ask(_ALL)]
        return sorted(found, key=lambda one: (one.made, one.name))

    def keep(self, tokens: Sequence[Token]) -> None:
        self._bring(tokens, _REPLACE)
        self._file.keep(tokens)

    def _bring(self, tokens: Sequence[Token], what: str) -> None:
        if tokens:
            data = [json.dumps(asdict(one)) for one in tokens]
            self._database.ask(_BRING + what, names=[one.name for one in tokens], data=data)


def tokens_of(settings: Settings) -> TokenFile:
    """What a server that is about to start goes by: its file, brought up to what other servers of its root have.

    Raises:
        Unavailable: the database that they share does not answer.
    """
    place = settings.storage
    if place.backend == "s3" and place.database:
        from cairn.engines.postgres import Postgres

        database = Postgres(place.database, place.url, connections=1)
        try:
            SharedTokens(settings.server_dir, database)
        finally:
            database.close()
    return TokenFile(settings.server_dir)


def token_of(value: Mapping[str, Any]) -> Token:
    """A token that was kept.

    Raises:
        ValueError: it is not one.
    """
    made = Token(**{name: str(value[name]) for name in Token.__slots__})
    if len(bytes.fromhex(made.digest)) * 2 != _DIGEST:
        raise ValueError("a hash of another length")
    if made.expires:
        datetime.fromisoformat(made.expires)
    return made
