"""The truth on an object store that speaks the S3 protocol: one object per file, conditional writes for `expect`.

    read_version ──> GET: the text and the object's tag
    write(expect) ──> PUT with If-Match (the tag) or If-None-Match (nothing there); refused ──> Conflict

An object store has no folders: a folder is there when something is below it, and one that was asked for while empty
is marked by an object that nobody else sees. A store that ignores the conditions would lose writes without a word,
so it is tried at the start and refused by name.
"""

from __future__ import annotations

import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from cairn.engines.outages import Outage
from cairn.engines.refusals import (
    check_beside,
    check_expected,
    encoded,
    folder_at,
    nothing_at,
    written_meanwhile,
)
from cairn.errors import (
    CairnError,
    Conflict,
    Invalid,
    InvalidLocatorError,
    Misconfigured,
    NotFound,
    StorageFailed,
    StorageSelectionError,
    Unavailable,
)
from cairn.seams import Capabilities, Info, Locator, StorageBackend, checked_new_name, content_hash, registry

if TYPE_CHECKING:
    from cairn.config import Settings, StorageSettings

PROTOCOL = "s3"
_FOLDER = ".cairn-folder"
INDEX = ".index"
ARCHIVED = ".cairn-archived.json"
TAG = "tag:"
_MEANINGS = {
    "RequestTimeTooSkewed": "the clock of this machine differs too much from the store's: set it right",
    "SignatureDoesNotMatch": "the secret key is wrong",
    "InvalidAccessKeyId": "the access key is unknown to it",
    "NoSuchBucket": "there is no such bucket: make it, or correct storage.url",
    "AccessDenied": "the credentials may not do this",
    "ExpiredToken": "the session token has run out: get new credentials, and restart",
    "PermanentRedirect": "the bucket is elsewhere: correct storage.region, or storage.endpoint",
    "AuthorizationHeaderMalformed": "the bucket is in another region: correct storage.region",
    "QuotaExceeded": "it has no room left: make room, or raise its limit",
    "XMinioStorageFull": "it has no room left: make room",
}
_REFUSED = "it refuses this machine: check the keys, what they may do, and this machine's clock"
_THROTTLING = frozenset(
    {"SlowDown", "TooManyRequests", "Throttling", "ThrottlingException", "RequestLimitExceeded"}
)
_LATER = frozenset({"RequestTimeout", "InternalError", "ServiceUnavailable", "OperationAborted"})
_NOT_ALLOWED, _TOO_MANY, _SERVERS_OWN = (401, 403), 429, 500
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")


class ObjectBackend(StorageBackend):
    """Text at keys below a prefix of a bucket.

    Args:
        store: An `obstore` store.
        name: What messages call it, without credentials.
    """

    extensions = frozenset({"expect", "remove"})
    is_shared = True

    def __init__(self, store: Any, name: str = "the object store") -> None:
        self._store = store
        self._name = name
        self.outage = Outage()
        self._folders: set[str] = {""}
        self._guard = threading.Lock()

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Open the bucket of `storage.url`, and see that it honours conditional writes.

        With `storage.database`, its journals are in PostgreSQL.
        """
        if settings.storage.database:
            from cairn.engines.cluster import ClusterBackend

            return ClusterBackend.from_settings(settings)  # type: ignore[return-value]
        made = cls(opened_store(settings.storage), settings.storage.url)
        made.probe()
        return made

    def probe(self) -> None:
        """Try what everything here rests on: a second creation and a stale tag must be refused.

        Raises:
            StorageSelectionError: the store takes such writes; two writers would lose each other's words.
        """
        import obstore

        key = f".cairn-probe-{uuid.uuid4().hex}"
        with self._told(key):
            first = obstore.put(self._store, key, b"1", mode="create")
            try:
                twice = not _refuses(lambda: obstore.put(self._store, key, b"2", mode="create"))
                obstore.put(self._store, key, b"3", mode={"e_tag": first["e_tag"]})
                stale = not _refuses(
                    lambda: obstore.put(self._store, key, b"4", mode={"e_tag": first["e_tag"]})
                )
            finally:
                with suppress(Exception):
                    obstore.delete(self._store, key)
        if twice or stale:
            ignored = "If-None-Match" if twice else "If-Match"
            raise StorageSelectionError(
                f"{self._name}: the store ignores conditional writes ({ignored}), so two writers would lose each "
                "other's words. Use one that honours them (AWS S3, SeaweedFS, MinIO, Ceph, R2).",
                backend=PROTOCOL,
            )

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(concurrent_writers=True)

    @property
    def conflict_strategy(self) -> str:
        return "whole-file"

    # ------------------------------------------------------------ reading

    def read(self, locator: Locator) -> str:
        return self._get(locator)[0]

    def read_version(self, locator: Locator) -> tuple[str, str]:
        text, tag = self._get(locator)
        return text, TAG + tag

    def _get(self, locator: Locator) -> tuple[str, str]:
        import obstore

        self._refuse_root(locator)
        try:
            with self._told(locator.key):
                found = obstore.get(self._store, locator.key)
                data, tag = bytes(found.bytes()), str(found.meta["e_tag"])
        except NotFound:
            if self._is_folder(locator.key):
                raise folder_at(locator.key) from None
            raise
        try:
            return data.decode("utf-8"), tag
        except UnicodeDecodeError as error:
            raise Invalid(
                f"{locator}: byte {error.start} is not UTF-8; it is left as it is.", key=locator.key
            ) from None

    def list(self, locator: Locator) -> list[Locator]:
        import obstore

        with self._told(locator.key):
            found = obstore.list_with_delimiter(self._store, locator.key or None)
        below = {str(at).rstrip("/") for at in found["common_prefixes"]}
        below |= {str(one["path"]) for one in found["objects"]}
        base = f"{locator.key}/" if locator.key else ""
        names = sorted(at for at in below if at.startswith(base) and not _is_ours(at))
        return [Locator(at) for at in names if at != locator.key]

    def exists(self, locator: Locator) -> bool:
        return not locator.key or self._head(locator.key) is not None or self._is_folder(locator.key)

    def info(self, locator: Locator) -> Info:
        if locator.key and (meta := self._head(locator.key)) is not None:
            return Info(locator, is_dir=False, size=meta["size"], mtime=_moment(meta) / 1e9)
        if self._is_folder(locator.key):
            return Info(locator, is_dir=True, size=0, mtime=0.0)
        raise nothing_at(locator.key)

    def scan(
        self,
        locator: Locator = Locator(),  # noqa: B008 -- frozen
        passed_over: Callable[[Locator, CairnError], object] | None = None,  # noqa: ARG002 -- nothing is unreadable
    ) -> Iterator[tuple[str, int, int]]:
        """One listing by pages. The tag stands in for the part of a second that a store's times do not have."""
        import obstore

        with self._told(locator.key):
            for page in obstore.list(self._store, locator.key or None):
                for one in page:
                    if not _is_ours(one["path"]):
                        yield one["path"], one["size"], _moment(one)

    # ------------------------------------------------------------ writing

    def write(self, locator: Locator, content: str, *, expect: str | None = None) -> Locator:
        import obstore

        self._refuse_root(locator)
        data = encoded(locator.key, content)
        mode = self._mode(locator, expect)
        if mode == "create" or self._head(locator.key) is None:
            if self._is_folder(locator.key):
                raise folder_at(locator.key)
            self._check_new(locator)
        try:
            with self._told(locator.key):
                obstore.put(self._store, locator.key, data, mode=mode, use_multipart=False)
        except Conflict:
            # An answer that got lost is asked for again, and then meets what it wrote itself.
            if expect is None or self._bytes(locator.key) != data:
                raise
        self._know_folder(locator.parent.key)
        return locator

    def _mode(self, locator: Locator, expect: str | None) -> Any:
        """The condition of a write: none, nothing there, or this tag."""
        if expect is None:
            return "overwrite"
        if not expect:
            return "create"
        if expect.startswith(TAG):
            return {"e_tag": expect.removeprefix(TAG)}
        try:
            text, version = self.read_version(locator)
        except NotFound:
            text, version = None, ""
        check_expected(locator.key, expect, text)
        return {"e_tag": version.removeprefix(TAG)}

    def mkdir(self, locator: Locator) -> Locator:
        import obstore

        if not self._is_folder(locator.key):
            self._check_new(locator)  # another machine may make the same folder meanwhile, and that is well
            with self._told(locator.key):
                obstore.put(self._store, f"{locator.key}/{_FOLDER}", b"")
            self._know_folder(locator.key)
        return locator

    def remove(self, locator: Locator) -> None:
        import obstore

        self._refuse_root(locator)
        if self._head(locator.key) is None:
            if self._is_folder(locator.key):
                raise folder_at(locator.key)
            raise nothing_at(locator.key)
        with self._told(locator.key):
            obstore.delete(self._store, locator.key)
        with self._guard:
            self._folders = {""}  # one of them may have gone with its last file

    def prune(self, locator: Locator) -> int:
        """As the seam says: a folder with nothing in it is but its mark."""
        import obstore

        with self._told(locator.key):
            there = [str(one["path"]) for page in obstore.list(self._store, locator.key) for one in page]
        folders = {key.removesuffix(f"/{_FOLDER}") for key in there if key.endswith(f"/{_FOLDER}")}
        files = [key for key in there if key.removesuffix(f"/{_FOLDER}") not in folders]
        empty = [one for one in folders if not any(key.startswith(f"{one}/") for key in files)]
        for one in empty:
            with self._told(one):
                obstore.delete(self._store, f"{one}/{_FOLDER}")
        with self._guard:
            self._folders = {""}
        return len(empty)

    # ------------------------------------------------------------ the store

    def _head(self, key: str) -> Any:
        import obstore

        try:
            with self._told(key):
                return obstore.head(self._store, key)
        except NotFound:
            return None

    def _bytes(self, key: str) -> bytes | None:
        import obstore

        try:
            with self._told(key):
                return bytes(obstore.get(self._store, key).bytes())
        except NotFound:
            return None

    def _is_folder(self, key: str) -> bool:
        import obstore

        if key in self._folders:
            return True
        with self._told(key):
            page = next(iter(obstore.list(self._store, key, chunk_size=1)), [])
        if page:
            self._know_folder(key)
        return bool(page)

    def _know_folder(self, key: str) -> None:
        with self._guard:
            while key:
                self._folders.add(key)
                key = key.rpartition("/")[0]

    def _check_new(self, locator: Locator) -> None:
        """Refuse a new place where a file is in the way, or whose name other systems could not carry."""
        checked_new_name(locator.name, locator.key)
        above = locator.parent
        while above.key and above.key not in self._folders:
            if self._head(above.key) is not None:
                raise Invalid(f"{locator}: a file is in the way, at {above}.", key=locator.key)
            above = above.parent
        check_beside(locator, self.list(locator.parent))

    def _refuse_root(self, locator: Locator) -> None:
        if not locator.key:
            raise Invalid("The root is a folder, not a file.", key="")
        if _is_ours(locator.key):
            raise InvalidLocatorError(
                f"{locator}: the name is kept for what Cairn itself puts into the store.", key=locator.key
            )

    @contextmanager
    def _told(self, key: str) -> Iterator[None]:
        with self.outage.watched(), storing(self._name, key):
            yield

    def trouble(self) -> str:
        return f"{self._name} does not answer: notes cannot be read or written" if self.outage.words else ""


@contextmanager
def storing(store: str, key: str) -> Iterator[None]:
    """Errors of the store in our words: what is missing, refused, busy, or not allowed."""
    from obstore import exceptions

    try:
        yield
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
        raise written_meanwhile(key) from None
    except (exceptions.BaseError, OSError) as error:
        raise _in_our_words(store, key, error) from error


def _in_our_words(store: str, key: str, error: Exception) -> CairnError:
    """What an error of the store means: by the code it gave, else by the status; without either it did not answer."""
    from obstore import exceptions

    words = str(error)
    code = found[1] if (found := _CODE.search(words)) else ""
    status = int(found[1]) if (found := _STATUS.search(words)) else 0
    if code in _MEANINGS:
        return StorageFailed(f"{store}: {_MEANINGS[code]}.", key=key)
    if isinstance(error, (exceptions.NotFoundError, FileNotFoundError)):
        return NotFound(f"{key}: nothing is there.", key=key)
    if code in _THROTTLING or status == _TOO_MANY:
        return Unavailable(
            f"{store} wants fewer requests just now ({code or status}); nothing was changed by this. Try again in a moment.",
            key=key,
        )
    if (
        code in _LATER
        or status >= _SERVERS_OWN
        or (not status and isinstance(error, (exceptions.GenericError, OSError)))
    ):
        return Unavailable(
            f"{store} does not answer or is busy; nothing was changed by this. Try again in a moment.",
            key=key,
        )
    if status in _NOT_ALLOWED and not code:
        return StorageFailed(f"{store}: {_REFUSED}.", key=key)
    shown = f"{code or type(error).__name__} ({status})" if status else type(error).__name__
    return StorageFailed(f"{store}: {shown}: {words.partition(chr(10))[0][:300]}", key=key)


def opened_store(place: StorageSettings) -> Any:
    """The `obstore` store of `storage.url`."""
    try:
        from obstore.store import S3Store
    except ImportError:
        raise Misconfigured(
            "obstore is not installed: pip install 'cairn-memory[cluster]'", setting="storage.backend"
        ) from None
    url = urlsplit(place.url)
    if url.scheme != "s3" or not url.netloc:
        raise Misconfigured(
            f'storage.url = "{place.url}" names no bucket: write s3://bucket/prefix.',
            setting="storage.url",
        )
    if url.username or url.password:
        raise Misconfigured(
            "storage.url carries credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead.",
            setting="storage.url",
        )
    if place.endpoint and not os.environ.get("AWS_ACCESS_KEY_ID"):
        # Without keys the library would ask Amazon's metadata address for some: nobody asked for that.
        raise Misconfigured(
            f"{place.endpoint} wants keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
            setting="storage.endpoint",
        )
    options: dict[str, Any] = {"timeout": f"{place.timeout_seconds:g}s"}
    named: dict[str, Any] = {}
    if place.endpoint:
        named["endpoint"] = place.endpoint
        options["allow_http"] = place.endpoint.startswith("http://")
    if place.region or not os.environ.get("AWS_REGION"):
        named["region"] = place.region or "us-east-1"
    return S3Store(
        url.netloc,
        prefix=url.path.strip("/") or None,
        client_options=options,  # type: ignore[arg-type]
        # Tried again with jitter for half the time that one request may take: a store that refuses is given up after
        # that, one that is silent after one request.
        retry_config={"max_retries": 4, "retry_timeout": timedelta(seconds=place.timeout_seconds / 2)},
        **named,
    )


def _refuses(write: Callable[[], object]) -> bool:
    from obstore import exceptions

    try:
        write()
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
        return True
    return False


def _is_ours(key: str) -> bool:
    """Whether a key is none of the tree: a mark of ours, or a table of the index."""
    if key == INDEX or key.startswith(f"{INDEX}/"):
        return True
    name = key.rpartition("/")[2]
    return name == _FOLDER or key == ARCHIVED or name.startswith(".cairn-probe-")


def _moment(one: Any) -> int:
    """An object's time in nanoseconds, with digits of its tag below the second: two versions never share one."""
    tag = str(one["e_tag"] or "")
    return int(one["last_modified"].timestamp()) * 10**9 + int(content_hash(tag)[:12], 16) % 10**9


registry.register(PROTOCOL, ObjectBackend, clobber=True)
