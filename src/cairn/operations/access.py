"""Operations on the server's tokens and its audit log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from cairn.operations import rules
from cairn.operations.answers import Answers
from cairn.operations.fields import moment_told
from cairn.operations.table import Room, operation, says

if TYPE_CHECKING:
    from cairn.engines.audit import AuditLog
    from cairn.engines.tokens import Token, TokenFile

answers = Answers("access")

TokenName = Annotated[str, says("the token's name", "ci", low=1, high=64)]


class Access(Room):
    """Tokens and the audit log of the HTTP server."""

    @operation("GET /tokens", answers.TokensData, rules.admin)
    def tokens(self) -> list[dict[str, Any]]:
        """The tokens made by `add_token`, those that ended or were revoked included; none has its secret any more."""
        now = self.parts.clock.now().astimezone(UTC)
        return [_told(one, now) for one in self._token_file().read()]

    @operation("POST /tokens", answers.NewToken, rules.admin)
    def add_token(
        self,
        name: TokenName,
        rights: Annotated[
            str | None,
            says(
                "what it may do, in the words of server.tokens; all but admin without",
                "r owner=alice",
                high=2000,
            ),
        ] = None,
        *,
        expires: Annotated[
            str | None,
            says("when it ends: a day, a time with its zone, or a span (90d, 12h)", "90d", high=40),
        ] = None,
    ) -> dict[str, Any]:
        """Make a token for the HTTP server; running servers take it from the next call on.

        Its secret is in this answer and nowhere else: a hash of it is kept. From the first token on, the server of this
        root answers nobody without one.

        Raises:
            Invalid: a name, a word or an end that cannot be.
            Conflict: a token of that name is active.
        """
        made, secret = self._token_file().add(
            name, rights, expires, locks=self.parts.locks, clock=self.parts.clock
        )
        return {**_told(made, self.parts.clock.now().astimezone(UTC)), "secret": secret}

    @operation("DELETE /tokens/{name}", answers.TokenData, rules.admin)
    def revoke_token(self, name: TokenName) -> dict[str, Any]:
        """End a token at once, on running servers, too. It stays in the list, so that the audit log can be read.

        Raises:
            NotFound: there is none of that name.
        """
        gone = self._token_file().revoke(name, locks=self.parts.locks, clock=self.parts.clock)
        return _told(gone, self.parts.clock.now().astimezone(UTC))

    @operation("GET /audit", answers.AuditData, rules.admin, apart=True)
    def audit(
        self,
        *,
        token: Annotated[str, says("only calls of this token", "ci", high=64)] = "",
        operation: Annotated[str, says("only calls of this operation", "search", high=200)] = "",
        about: Annotated[
            str, says("only calls about this owner, session, app or entry", "alice", high=200)
        ] = "",
        refused: Annotated[bool, says("only calls that were not done", True)] = False,
        since: Annotated[str, says("only calls from this day or time on", "2026-06-01", high=40)] = "",
        limit: Annotated[int, says("how many at most", 100, low=1, high=10_000)] = 100,
    ) -> list[dict[str, Any]]:
        """Calls of the HTTP server, newest first: when, whose token, which operation, about whom, and how it ended.

        What was said or asked is not in it. The oldest lines make room: see `server.audit_bytes`.

        Raises:
            Invalid: `since` is no day and no time.
        """
        start = moment_told(since, UTC, "since").isoformat(timespec="milliseconds") if since else ""
        found = (
            line
            for line in self._audit_log().read()
            if (not token or line.get("token") == token)
            and (not operation or line.get("operation") == operation)
            and (not about or about in _about(line).values())
            and (not refused or line.get("outcome") != "done")
            and line["at"] >= start
        )
        return [_call(line) for line in islice(found, limit)]

    def _token_file(self) -> TokenFile:
        # What is written in the place of a root that is gone goes with it.
        self.parts.storage.info(self.parts.root.root)
        return self.parts.token_file()

    def _audit_log(self) -> AuditLog:
        from cairn.engines.audit import AuditLog

        return AuditLog(self.settings.server_dir, self.settings.server.audit_bytes)


def _about(line: Mapping[str, Any]) -> dict[str, str]:
    found = line.get("about")
    return found if isinstance(found, dict) else {}


def _call(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of the log as an answer, whatever a hand has made of it."""
    return {
        "at": line["at"],
        "token": str(line.get("token", "")),
        "operation": str(line.get("operation", "")),
        "about": {str(name): str(value) for name, value in _about(line).items()},
        "status": line["status"] if isinstance(line.get("status"), int) else 0,
        "outcome": str(line.get("outcome", "")),
        "ms": line["ms"] if isinstance(line.get("ms"), int | float) else 0.0,
        "request_id": str(line.get("request_id", "")),
        "unlogged": line["unlogged"] if isinstance(line.get("unlogged"), int) else 0,
    }


def _told(one: Token, now: datetime) -> dict[str, Any]:
    return {
        "name": one.name,
        "state": one.state(now),
        "rights": one.rights,
        "made": one.made,
        "expires": one.expires or None,
        "revoked": one.revoked or None,
    }
