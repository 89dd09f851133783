"""What every way of forgetting does beside the notes: waits for running writers, then clears spool, history
and index.

`while_quiet` pauses the strategies around it; `purgers` are the places that `governed.forget` cannot see, by name; and
`every_file` is what its last look goes through.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from cairn import governed
from cairn.errors import CairnError, NotFound, Unavailable
from cairn.seams import Locator
from cairn.seams.storage import StorageBackend, iterate_files
from cairn.types import Scope

if TYPE_CHECKING:
    from cairn.governed.unfinished import ForgetAgain
    from cairn.governed.wanted import Beside, Wanted
    from cairn.parts import Parts

_log = logging.getLogger(__name__)
_WRITE_SECONDS = 60.0  # no write that lives takes so long
T = TypeVar("T")
Purgers = Mapping[str, Callable[[Any], int]]


def while_quiet(
    parts: Parts,
    run: Callable[[Beside], T],
    purge: Purgers,
    *,
    call: Mapping[str, Any],
    **more: Callable[[Any], int],
) -> T:
    """Run what forgets, with no strategy beside it; it is given what it needs beside the notes.

    A dry run changes nothing and stops nobody. `call` is what was asked, by which it is taken up if it is cut off.
    """
    from cairn.strategies.profile import without_items

    asked = {name: value for name, value in call.items() if value and value != "default"}
    dry_run = asked.pop("dry_run", False)
    left_by_killed = {"unfinished writes": lambda _: parts.storage.sweep(_WRITE_SECONDS)}
    with nullcontext(True) if dry_run else parts.engine.paused() as paused:
        done = run(
            governed.wanted.Beside(
                settle=lambda: _unsettled(parts, paused=paused), purgers={**left_by_killed, **purge}, profile=without_items,
                files=lambda: every_file(parts), begun=governed.unfinished.Begun(parts.storage, asked), **more,
            )
        )  # fmt: skip
    if not dry_run and parts.daemon is None:
        parts.folder.if_many()  # or the next questions about a very large scope read all of it
    return done


def left_behind(parts: Parts) -> list[dict[str, Any]]:
    """What was begun to be forgotten and not finished, by a process that was killed or a call that was refused."""
    return list(governed.unfinished.calls(parts.storage))


def finish(memory: Any, begun: Sequence[Mapping[str, Any]]) -> None:
    """Take up each of `left_behind`."""
    for one in begun:
        asked = dict(one)
        name = asked.pop("call", "")
        room = memory.memories if name == "forget" else memory
        try:
            getattr(room, name)(**asked)
        except CairnError as error:
            _log.warning("a forgetting that was begun is not finished: %s", error)


def _unsettled(parts: Parts, *, paused: bool) -> list[tuple[str, ForgetAgain]]:
    """Wait for writers that may have read the words before they were forgotten; return those still running at the deadline."""
    again, left = governed.unfinished.ForgetAgain, []
    if not paused:
        why = "one has been running for a minute and may write what it read; forget again"
        left.append(("strategies", again(why)))
    if not parts.capture.settle():
        why = "a model has been telling one for a minute; forget again once it is written"
        left.append(("episodes", again(why)))
    return left


def purgers(parts: Parts) -> Purgers:
    """What `forget` cannot see from the notes: former texts of entries, and the index to its last byte."""
    return {
        "waiting events": lambda wanted: _purge_spool(parts, wanted),
        "history texts": lambda wanted: purge_history(parts, wanted),
        "index": lambda wanted: purge_index(parts, wanted.paths),
    }


def _purge_spool(parts: Parts, wanted: Wanted) -> int:
    """The words in what hooks of agents have left and nobody has taken in yet; all of it is one person's."""
    from cairn.engines import spool
    from cairn.projects import space_at

    def change(event: dict[str, Any]) -> dict[str, Any] | None:
        if "text" in event or "trouble" in event:
            return None if wanted.found_in(str(event.get("text") or event.get("trouble"))) else event
        if space_at(str(event.get("folder", ""))) != wanted.space:
            return event
        return {
            name: wanted.without(value) if name in {"prompt", "reply"} and isinstance(value, str) else value
            for name, value in event.items()
        }

    if not wanted.reaches(Scope(wanted.space, "user", parts.settings.memory.person)):
        return 0
    with parts.local_locks.hold(spool.LOCK):
        return spool.clean(parts.settings.root, change)


def purge_history(parts: Parts, wanted: Wanted) -> int:
    """Former texts of the forgotten entries, and every text with the words."""
    from cairn.strategies.profile import without_items

    parts.observer.settle()
    named = []
    for scope, entry in wanted.entries:
        folder = parts.root.scope(scope).key + "/"
        named += [f"{path}#{entry}" for path in wanted.paths if path.startswith(folder)]
    return parts.observer.of(wanted.space).purge(
        entries=named,
        clean=lambda path, text: governed.removal.cleaned_block(wanted, path, text, without_items),
    )


def every_file(parts: Parts) -> Iterator[tuple[str, bytes | None]]:
    """All that is kept of this root: on this machine, an index or scratch space beside it, and what lies elsewhere."""
    from cairn.engines.bytescan import pieces

    root = parts.settings.root
    beside = [(".index", parts.settings.index_dir), *((".local", at) for at in parts.local_folders)]
    outside = [(name, at) for name, at in beside if root != at and root not in at.parents]
    begun = f"{governed.unfinished.FOLDER}/"
    shared = _shared_files(parts.storage) if parts.storage.is_shared else ()
    return (one for one in chain(pieces([("", root), *outside]), shared) if not one[0].startswith(begun))


def _shared_files(storage: StorageBackend) -> Iterator[tuple[str, bytes | None]]:
    """The notes, logs and journals of a storage that is not on this machine."""
    for at in iterate_files(storage, Locator()):
        try:
            yield at.key, storage.read(at).encode("utf-8", "surrogatepass")
        except NotFound:
            continue
        except CairnError:
            yield at.key, None


def purge_index(parts: Parts, touched: Sequence[str], names: Sequence[str] = ()) -> int:
    """Index the cleaned files, then write the databases anew, so that no byte of the old rows remains; other machines
    are told to do so, and of whose ids, in `names`, nothing is to stay.
    """
    paths = sorted(set(touched))
    parts.indexer.note_change(
        [(at, "modified" if parts.storage.exists(at) else "deleted") for at in map(Locator, paths)]
    )
    # Up to here and no further: on a busy root something else always waits.
    if not parts.waits.wait(parts.indexer.scan().lsn, 60.0):
        raise Unavailable("the cleaned notes are not indexed yet; forget again in a moment")
    parts.state.forget([path for path in paths if not parts.storage.exists(Locator(path))])
    parts.folder.stop()
    scrubs = (
        ("rows and vectors", parts.index.scrub),
        ("the tables of LanceDB", lambda: parts.lance.scrub(parts.index)),
        ("the change queue", parts.state.scrub),
        ("vectors for other machines", lambda: parts.storage.scrub(names)),
    )
    left = [name for name, scrub in scrubs if not scrub()]
    if left:
        told = f"{', '.join(left)}: in use just now; forget again to remove the freed bytes"
        raise Unavailable(told)
    return len(paths)
