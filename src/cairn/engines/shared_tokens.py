"""Server tokens as rows in PostgreSQL, copied into each machine's token file.

A server goes on looking at its own file, so a call costs no question to the database, and while that is away the tokens
of before hold. A token that is in the file alone, since it was made before there were several machines or the database
was lost since, is brought to the others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from cairn.canonical import from_json
from cairn.engines.postgres import Postgres
from cairn.engines.tokens import Token, TokenFile, token_of, token_row

_ALL = "SELECT data FROM cairn_tokens WHERE root = %(root)s"
_BRING = """
INSERT INTO cairn_tokens SELECT %(root)s, name, data FROM unnest(%(names)s::text[], %(data)s::text[]) AS one(name, data)
ON CONFLICT (root, name) DO
"""
_KEEP, _REPLACE = "NOTHING RETURNING true", "UPDATE SET data = excluded.data RETURNING true"


class SharedTokens(TokenFile):
    """The tokens of a root in `database`, and in `folder` as this machine knows them."""

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
            data = [json.dumps(token_row(one)) for one in tokens]
            self._database.ask(_BRING + what, names=[one.name for one in tokens], data=data)
