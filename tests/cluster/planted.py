"""A server with one bug in it, for the fault run to find: `PLANTED=early python -m tests.cluster.planted ...`.

The bugs are put in when this starts, and nowhere else.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress

from tools.skewed_server import move_clock

from cairn.engines import objects, postgres
from cairn.errors import CairnError
from cairn.seams.storage import journal_unit


def ignore_if_match() -> None:
    """Notes are written whatever is there."""
    objects.ObjectBackend._mode = lambda _self, _at, expect: "create" if expect == "" else "overwrite"


def drop_fencing() -> None:
    """An append no longer asks whether the log is as long as its writer believes."""
    postgres._APPEND_AT = postgres._APPEND_AT.replace(" AND size = %(expect)s", "")


def acknowledge_early() -> None:
    """An append answers first and is committed a second later."""
    append = postgres.PostgresJournals.append

    def early(self, at, lines, *, sync=True, expect=None):
        if not at.key.startswith("default_app/default_project/sessions/"):
            return append(self, at, lines, sync=sync, expect=expect)

        def later():
            time.sleep(1.0)
            with suppress(CairnError):
                append(self, at, lines, sync=sync, expect=expect)

        threading.Thread(target=later).start()
        return (expect or 0) + len(journal_unit(at, lines))

    postgres.PostgresJournals.append = early


BUGS = {"if-match": ignore_if_match, "fencing": drop_fencing, "early": acknowledge_early}

if __name__ == "__main__":
    from cairn.surfaces.cli import main

    BUGS[os.environ["PLANTED"]]()
    move_clock(float(os.environ.get("SKEW_SECONDS", "0")))
    sys.exit(main())
