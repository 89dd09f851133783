"""What the operations on tokens and the audit log answer."""

from __future__ import annotations

from typing import Annotated, Literal

from cairn.operations.table import says


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
