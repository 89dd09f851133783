"""Settings: defaults, then `cairn.toml` in the root, `.env`, the environment, and arguments.

This is the one reader of all five (the files' text is taken apart in `settings_files.py`). Each value remembers
where it came from, so that `config show` can say so. Unknown names and bad values are errors that name the file
and line; nothing is guessed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, get_type_hints
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cairn.errors import Invalid, Misconfigured
from cairn.settings_files import (
    ENV_PREFIX,
    SECRET_KEYS,
    SWITCHES,
    check_choice,
    from_env_name,
    laid_over,
    read_dotenv,
    read_toml,
    say_of_others,
)
from cairn.types import checked_id


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Where the memory is, how it shows time, and whose it is where nobody is named."""

    root: str = "~/.cairn"
    timezone: str = "UTC"
    person: str = "me"


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Which storage engine carries the truth: "device-local", "vault" for a synced folder, or "s3" for a bucket.

    `cache` is this machine's own folder for what must not travel with a vault: its locks and its index. A bucket is
    named by `url` ("s3://bucket/prefix") and, where it is not Amazon's, by the `endpoint` that serves it; its
    credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. `memory.root` is then this machine's own
    folder, for its index. `database` ("postgresql://user@host/name") keeps session logs, journals and locks for
    several machines on one bucket; what is silent for `keep_days` leaves it and is read from its copy in the bucket (0: never).
    The `queue` of changes that wait for this machine's index lies beside it ("local") or in that database ("database").
    A file of more than `max_note_bytes` is neither read nor written, an entry of more than `max_entry_bytes` is not
    indexed, and an archive that unpacks to more than `max_import_bytes` is not brought in; each is named. 0 means no limit.
    """

    backend: str = "device-local"
    cache: str = "~/.cache/cairn"
    url: str = ""
    endpoint: str = ""
    region: str = ""
    timeout_seconds: float = 10.0
    database: str = ""
    keep_days: float = 7.0
    queue: str = "local"
    max_note_bytes: int = 32 * 1024 * 1024
    max_entry_bytes: int = 1024 * 1024
    max_import_bytes: int = 4 * 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """When a stretch of talk is closed. A limit or gap of 0 and `topic_shift = false` switch those cuts off.

    A session to which nothing was added for `idle_minutes` is closed by a process that runs in the background.

    `mode` ("chat" or "agent") is noted with each cell. `topic_threshold` is the share of words two windows of
    `topic_window` messages must have in common to count as one topic.
    """

    mode: str = "chat"
    max_tokens: int = 65536
    max_messages: int = 500
    gap_minutes: float = 60.0
    idle_minutes: float = 30.0
    topic_shift: bool = True
    topic_window: int = 8
    topic_threshold: float = 0.03


@dataclass(frozen=True, slots=True)
class LlmSettings:
    """An OpenAI-compatible chat endpoint; without `base_url` and `model` no model is ever called.

    `timeout_seconds` covers all attempts of one request together. A proxy is used only where `proxy` names one; those
    of the environment are not. `daily_token_cap` counts per UTC day over
    everything that asks the model; 0 allows nothing.
    """

    base_url: str = ""
    api_key: str = ""
    model: str = ""
    proxy: str = ""
    timeout_seconds: float = 60.0
    max_attempts: int = 3
    daily_token_cap: int = 1_000_000


@dataclass(frozen=True, slots=True)
class EmbeddingSettings:
    """Which embedder makes vectors: "auto" (the local English model where installed), "minilm" (that or nothing),
    "multilingual" (16 languages, from the extra `multilingual`), "onnx" (`model` names a folder with an ONNX model and its
    `tokenizer.json`), "openai" (`model` at an endpoint), "hashing", "none".
    """

    provider: str = "auto"
    base_url: str = ""
    api_key: str = ""
    model: str = ""
    proxy: str = ""
    dimensions: int = 0
    timeout_seconds: float = 30.0
    threads: int = 2
    model_dir: str = ""


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """The derived index. `dir` is `<root>/.index` unless set (a synced root keeps it in a local cache).

    `engine` says who answers: `memory` holds an owner's rows as arrays, `lancedb` asks the tables in `.index/lancedb`,
    and `auto` takes memory for owners of up to `memory_rows` rows and LanceDB for larger ones.

    `token_vectors` keeps a vector for each word piece, too, about 2 KB for a message: answers are ordered better for it.
    """

    dir: str = ""
    scan_seconds: float = 30.0
    watch: bool = True
    engine: str = "auto"
    memory_rows: int = 120_000
    token_vectors: bool = True


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How answers are chosen."""

    top_k: int = 10
    max_query_terms: int = 64
    injection_min_score: float = 0.35


@dataclass(frozen=True, slots=True)
class StrategiesSettings:
    """The offline engine as a whole; single strategies are switched in `ome.toml`."""

    enabled: bool = True


@dataclass(frozen=True, slots=True)
class KeepingSettings:
    """Governed memories: decay, limits and the sweep."""

    half_life_days: float = 30.0
    limit_project: int = 2000
    limit_agent: int = 500
    limit_user: int = 500
    limit_mission: int = 200
    secrets: str = "redact"
    sweep_hours: float = 24.0


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The HTTP server. Binding beyond loopback requires `tokens`.

    A token is "SECRET [r|rw] [app=a,b] [project=p] [owner=o] [share] [promote] [pin] [admin] [rate=N] [expires=DATE]
    [name=NAME]"; what is left out is not limited. A token with owners may share, promote and pin only where that is named;
    to another it is denied by a minus (`-promote`). `rate` is calls a minute. Further tokens are made by `cairn token add`.
    The audit log of calls takes at most `audit_bytes` (0: none is kept). A connection that brings no complete request within `header_timeout_seconds`, or takes nothing of its answer for as long, is closed; of
    more than `max_connections` the longest idle makes room. The repositories below `project_roots` may be asked about over HTTP; none may without it.
    The page at / changes nothing unless `page_writes` says so (`cairn server start --write`) or `cairn open` opened it.
    Told to end (SIGTERM), it says for `drain_seconds` that it is not ready and still takes calls, so that a balancer turns away
    first; told twice, it ends at once. Where several servers share a root, each sends calls about an owner to the one that is
    home to that owner, at the address that one tells: `advertise` ("host:port"; "" finds it out, "none" leaves the server out).
    """

    host: str = "127.0.0.1"
    port: int = 8000
    tokens: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    project_roots: tuple[str, ...] = ()
    page_writes: bool = False
    max_body_bytes: int = 32 * 1024 * 1024
    max_query_chars: int = 65536
    max_concurrency: int = 64
    max_connections: int = 512
    header_timeout_seconds: float = 10.0
    body_timeout_seconds: float = 20.0
    drain_seconds: float = 0.0
    advertise: str = ""
    audit_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LoggingSettings:
    """What is logged: from which level on, and as "json" or "text"."""

    level: str = "warning"
    format: str = "text"


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, typed. `origins` maps "section.key" to where its value came from."""

    memory: MemorySettings = field(default_factory=MemorySettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    capture: CaptureSettings = field(default_factory=CaptureSettings)
    llm: LlmSettings = field(default_factory=LlmSettings)
    embedding: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    index: IndexSettings = field(default_factory=IndexSettings)
    search: SearchSettings = field(default_factory=SearchSettings)
    strategies: StrategiesSettings = field(default_factory=StrategiesSettings)
    keeping: KeepingSettings = field(default_factory=KeepingSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    logging: LoggingSettings = field(default_factory=LoggingSettings)
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def root(self) -> Path:
        return Path(self.memory.root).expanduser().absolute()

    @property
    def index_dir(self) -> Path:
        if self.index.dir:
            return Path(self.index.dir).expanduser().absolute()
        # A database must not lie in a synced folder: copies made halfway through a write are broken.
        return self._own_folder("index")

    @property
    def server_dir(self) -> Path:
        """Where a server keeps its tokens and its audit log: of this machine, also where the root is synced."""
        return self._own_folder("server")

    def _own_folder(self, name: str) -> Path:
        """A hidden folder of the root; where the root is synced, one of this machine's cache."""
        if self.storage.backend != "vault":
            return self.root / f".{name}"
        return self.cache_dir / name / hashlib.sha256(os.fsencode(self.root.resolve())).hexdigest()

    @property
    def cache_dir(self) -> Path:
        return Path(self.storage.cache).expanduser().absolute()

    @property
    def models_dir(self) -> Path:
        """Where the local embedding model is kept: one place per user, shared by all roots."""
        chosen = self.embedding.model_dir
        return Path(chosen).expanduser().absolute() if chosen else models_dir()

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.memory.timezone)


def models_dir(environ: Mapping[str, str] | None = None) -> Path:
    """The user's cache folder for models: `$XDG_CACHE_HOME/cairn/models`, `~/.cache/cairn/models` without it."""
    env = os.environ if environ is None else environ
    cache = env.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "cairn" / "models"


def inherited(*, without: str, but: Collection[str] = ()) -> dict[str, str]:
    """The environment for a child process: this one's, less what begins with `without` and is not in `but`."""
    return {k: v for k, v in os.environ.items() if not k.startswith(without) or k in but}


SECTIONS: dict[str, type[Any]] = {
    name: kind for name, kind in get_type_hints(Settings).items() if name != "origins"
}


def load(
    root: str | os.PathLike[str] | None = None, *, environ: Mapping[str, str] | None = None, **overrides: Any
) -> Settings:
    """Read all sources and return one checked value.

    Args:
        root: The memory root; wins over every other source.
        environ: The environment to read (the process's own by default).
        overrides: "section__key" arguments; they win over files and environment.

    Raises:
        Misconfigured: an unknown name or a bad value, with its file and line.
    """
    env = os.environ if environ is None else environ
    found: dict[str, tuple[Any, str]] = {}
    say_of_others(env)
    environment = read_dotenv(env)
    for name, value in env.items():
        if name.startswith(ENV_PREFIX) and name not in SWITCHES:
            origin = f"environment {name}"
            environment[from_env_name(name, origin)] = (value, origin)
    arguments = {
        name.replace("__", ".", 1): (value, "argument")
        for name, value in overrides.items()
        if value is not None
    }
    if root is not None:
        named = os.fspath(root) if isinstance(root, os.PathLike) else root
        if not isinstance(named, str) or "\0" in named:
            raise Misconfigured(
                f"argument: memory.root = {named!r:.200} is no folder's name: give a text or a path."
            )
        arguments["memory.root"] = (named, "argument")
    conventions = _conventions(env, root_is_given="memory.root" in {**environment, **arguments})
    chosen_root = next(
        source["memory.root"][0]
        for source in (arguments, environment, conventions)
        if "memory.root" in source
    )
    toml_path = Path(str(chosen_root)).expanduser() / "cairn.toml"
    for source in (conventions, read_toml(toml_path, SECTIONS), environment, arguments):
        found.update({name: value for name, value in source.items() if value[1] != "default"})
    settings = _build(found)
    _check(settings)
    return settings


def root_named(root: str | None = None, *, environ: Mapping[str, str] | None = None) -> Path:
    """The memory root that the argument or the environment names, whatever else is wrong with the settings."""
    env = os.environ if environ is None else environ
    try:
        found = read_dotenv(env)
    except Misconfigured:
        found = {}
    named = root or env.get(f"{ENV_PREFIX}MEMORY__ROOT") or found.get("memory.root", ("",))[0]
    given = named or _conventions(env, root_is_given=False)["memory.root"][0]
    return Path(str(given)).expanduser().absolute()


def _conventions(env: Mapping[str, str], *, root_is_given: bool) -> dict[str, tuple[Any, str]]:
    """Names that other programs share, weaker than any of ours: XDG_CACHE_HOME and MEMORY_VAULT_PATH."""
    out: dict[str, tuple[Any, str]] = {"memory.root": (MemorySettings().root, "default")}
    if cache := env.get("XDG_CACHE_HOME"):
        out["storage.cache"] = (os.path.join(cache, "cairn"), "environment XDG_CACHE_HOME")
    if (path := env.get("MEMORY_VAULT_PATH")) and not root_is_given:
        origin = "environment MEMORY_VAULT_PATH"
        out |= {"memory.root": (path, origin), "storage.backend": ("vault", origin)}
    return out


def shown(settings: Settings) -> list[tuple[str, str, str]]:
    """Every setting as (name, value, where it came from), secrets masked."""
    rows = []
    for section in SECTIONS:
        values = getattr(settings, section)
        for key in get_type_hints(type(values)):
            value = getattr(values, key)
            text = "; ".join(value) if isinstance(value, tuple) else str(value)
            if key in SECRET_KEYS and value:
                text = "(set, not shown)"
            elif isinstance(value, bool):
                text = text.lower()
            rows.append((f"{section}.{key}", text, settings.origins.get(f"{section}.{key}", "default")))
    return rows


def _build(found: Mapping[str, tuple[Any, str]]) -> Settings:
    given: dict[str, dict[str, Any]] = {}
    for dotted, (value, origin) in found.items():
        section, _, key = dotted.partition(".")
        if section not in SECTIONS or not key:
            raise Misconfigured(
                f"{origin}: there is no setting [{section}] {key or ''}. Sections are: {', '.join(sorted(SECTIONS))}.",
                setting=dotted,
            )
        given.setdefault(section, {})[key] = value
    origins = {dotted: origin for dotted, (_, origin) in found.items()}
    base = Settings(origins=origins)
    return laid_over(
        base, given, "", lambda at, key: origins.get(f"{at}.{key}", ""), known=SECTIONS, spelled=True
    )


_CHOICES: Mapping[str, Sequence[str]] = {
    "capture.mode": ("chat", "agent"),
    "embedding.provider": ("auto", "minilm", "multilingual", "onnx", "openai", "hashing", "none"),
    "index.engine": ("auto", "memory", "lancedb"),
    "keeping.secrets": ("redact", "refuse", "allow"),
    "logging.format": ("text", "json"),
    "logging.level": ("debug", "info", "warning", "error"),
    "storage.queue": ("local", "database"),
}
_SENSIBLE: Sequence[tuple[str, float, float]] = (
    ("search.top_k", 1, inf),
    ("search.max_query_terms", 1, inf),
    ("search.injection_min_score", 0, 1),
)
"""Settings with which nothing would ever be found outside of these bounds."""


def _check(settings: Settings) -> None:
    def value_of(dotted: str) -> Any:
        section, _, key = dotted.partition(".")
        return getattr(getattr(settings, section), key)

    def wrong(dotted: str, told: str) -> Misconfigured:
        return Misconfigured(f"{settings.origins.get(dotted, 'default')}: {told}", setting=dotted)

    for dotted, allowed in _CHOICES.items():
        check_choice(value_of(dotted), allowed, dotted, settings.origins.get(dotted, "default"))
    if not settings.memory.root.strip():
        raise wrong("memory.root", "memory.root is empty; name a folder.")
    if str(settings.root) != str(settings.root).encode("utf-8", "replace").decode():
        raise wrong(
            "memory.root",
            f"memory.root = {str(settings.root)!a:.200} is no UTF-8 text, which the index needs: choose another name, or, where "
            "it is one, set a locale such as C.UTF-8 (LC_ALL).",
        )
    if (port := settings.server.port) > 65535:
        raise wrong("server.port", f"server.port = {port} is not a port; use 0 to 65535.")
    for dotted in ("server.max_connections", "server.header_timeout_seconds"):
        if (value := value_of(dotted)) <= 0:
            raise wrong(dotted, f"{dotted} = {value} lets nobody in; use more than 0.")
    for dotted, least, most in _SENSIBLE:
        if not least <= (value := value_of(dotted)) <= most:
            told = f"use {least} to {most:g}" if most < inf else f"use {least} or more"
            raise wrong(dotted, f"{dotted} = {value} would let nothing be found; {told}.")
    try:
        checked_id(settings.memory.person, "memory.person")
    except Invalid as error:
        raise wrong("memory.person", str(error)) from None
    try:
        _ = settings.zone
    except (ZoneInfoNotFoundError, ValueError, OSError):
        told = f'memory.timezone = "{settings.memory.timezone}" is not a time zone; use a name like Europe/Berlin.'
        raise wrong("memory.timezone", told) from None
    storage = settings.storage
    if storage.queue == "database" and not (storage.backend == "s3" and storage.database):
        raise wrong(
            "storage.queue",
            'storage.queue = "database" needs the database of a bucket: set storage.backend = "s3" and storage.database, '
            'or leave the queue "local".',
        )
    if storage.backend == "vault":
        inside = settings.root.resolve()
        for dotted, place in (("index.dir", settings.index_dir), ("storage.cache", settings.cache_dir)):
            if place.resolve().is_relative_to(inside):
                raise wrong(
                    dotted,
                    f"{dotted} lies inside the synced folder; it must stay on this machine. Choose a place outside the "
                    "memory root.",
                )
    if bool(settings.llm.base_url) != bool(settings.llm.model):
        missing = "model" if settings.llm.base_url else "base_url"
        raise Misconfigured(
            f"[llm] needs base_url and model together: {missing} is missing.", setting=f"llm.{missing}"
        )


# ---------------------------------------------------------------- the commented file that `cairn init` writes

# For whoever keeps a memory in git: what is the system's own, and the file that keys and tokens are written to.
_IGNORED = "/.index/\n/.tmp/\n/.server/\n/.hooks/\n/cairn.toml\n"


def starter_text() -> str:
    """Every section and setting, each line commented out, so that the file changes nothing until edited."""
    import inspect
    import textwrap

    parts = [
        "# Cairn settings. Each line shows a default; remove the # to change it.",
        "# Order: these lines < .env < CAIRN_SECTION__KEY in the environment < command-line arguments.",
    ]
    defaults = Settings()
    for section, cls in SECTIONS.items():
        words = " ".join((inspect.getdoc(cls) or "").split())
        parts += ["", *textwrap.wrap(words, 100, initial_indent="# ", subsequent_indent="# "), f"[{section}]"]
        for key in get_type_hints(cls):
            if (section, key) != ("memory", "root"):
                parts.append(f"# {key} = {_toml(getattr(getattr(defaults, section), key))}")
    return "\n".join(parts) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def write_starter(root: Path, *, force: bool = False) -> bool:
    """Put the starter into `root` unless one is there, and a `.gitignore`; True if it was written.

    Keys and tokens will be written there: the files are their owner's alone, and so is a root that is made.
    """
    target = root / "cairn.toml"
    if target.exists() and not force:
        return False
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as handle:
        os.chmod(target, 0o600)  # one that was there keeps its mode otherwise
        handle.write(starter_text())
    with suppress(FileExistsError):
        file = os.open(root / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "w", encoding="utf-8") as handle:
            handle.write(_IGNORED)
    return True
