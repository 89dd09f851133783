"""Settings files taken apart with their line numbers, and laid over their defaults by one reader, `laid_over`.

It takes `cairn.toml`, `.env` and variables, `ome.toml` and a repository's `config.json` alike: every name is known, and a
value is checked against the kind of its default, in tables within tables, too. The last two travel with what they are
for, so their rooms fetch the text through the seam.

A `.env` in the working directory may have come with somebody else's repository. It may tune capture and search; an
address, a key, a root or a token of it would send a user's words to its author, so those count only when the user
has set `CAIRN_DOTENV=1`, in the environment or in the `.env` of their own.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import re
import stat
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from cairn.errors import Misconfigured

ENV_PREFIX = "CAIRN_"
TRUST = "CAIRN_DOTENV"
SWITCHES = frozenset({TRUST, "CAIRN_DISABLE"})
"""Variables that are no settings: they say whose word counts, and that agents are left alone."""
SECRET_KEYS = frozenset({"api_key", "proxy", "tokens"})  # a proxy's address may hold a password
# What anybody's folder may set: how talk is cut, how answers are chosen, how time and logs look.
_HARMLESS = re.compile(r"(capture|search)\.\w+|memory\.timezone|logging\.(level|format)")
_MAX_BYTES = 1024 * 1024
_ON, _OFF = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_MOST = 2**53
_KINDS = {
    bool: "true or false",
    int: "a whole number of 0 or more",
    float: "a number of 0 or more",
    str: "a text",
    tuple: "a list of texts",
}
# A secret in a comment, with the lines of its list; the empty value of the starter is none.
_SWITCHED_OFF = re.compile(
    rf"""^[ \t]*\#[ \t]*(?:{"|".join(sorted(SECRET_KEYS))})[ \t]*=(?![ \t]*(?:""|\[\])[ \t]*$)
        [ \t]*(?:\[[^\]\n]*\n(?:[ \t]*\#[^\]\n]*\n)*[^\n]*|[^\n]*)\n?""",
    re.MULTILINE | re.VERBOSE,
)

_log = logging.getLogger("cairn.settings")

Found = dict[str, tuple[Any, str]]
T = TypeVar("T")


def text_of(path: Path) -> str:
    """The text of a settings file. `OSError` for a pipe, a device, or one that is far too large."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if found.st_size > _MAX_BYTES:
            raise OSError(errno.EFBIG, f"it is larger than {_MAX_BYTES} bytes")
        with os.fdopen(file, encoding="utf-8", closefd=False) as handle:
            return handle.read()
    finally:
        os.close(file)


def read_toml(path: Path, sections: Collection[str]) -> Found:
    """Every value of a `cairn.toml` as "section.key", with its line; nothing where there is no such file.

    Raises:
        Misconfigured: it cannot be read, is no TOML, or a value stands under no section.
    """
    try:
        text = text_of(path)
    except FileNotFoundError:
        return {}
    except NotADirectoryError:
        raise Misconfigured(
            f"The memory root {path.parent} is not a folder: name another with --root or CAIRN_MEMORY__ROOT.",
            setting="memory.root",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        trouble = error.strerror if isinstance(error, OSError) else error
        raise Misconfigured(
            f"{path.name} cannot be read: {trouble} ({path}). Check the path and who owns it, or name another root with "
            "--root or CAIRN_MEMORY__ROOT.",
            setting=path.name,
        ) from None
    out: Found = {}
    for section, table in parse_toml(text, path.name).items():
        if not isinstance(table, dict):
            raise Misconfigured(
                f'{path.name}, line {line_of(text, "", section)}: "{section}" must stand under a [section].',
                setting=section,
            )
        for key, value in table.items():
            out[f"{section}.{key}"] = (value, f"{path.name}, line {line_of(text, section, key)}")
        if not table and section not in sections:
            out[f"{section}."] = (None, f"{path.name}, line {line_of(text, '', '[' + section)}")
    return out


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """The tables of a file called `name`. Raises `Misconfigured` where it is no TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"{name}: {error}.", setting=name) from None
    except RecursionError:
        raise Misconfigured(
            f"{name}: it is nested too deeply; write one value a line.", setting=name
        ) from None


def laid_over(
    base: T,
    given: Mapping[str, Any],
    section: str,
    origin: Callable[[str, str], str],
    *,
    known: Collection[str] = (),
    spelled: bool = False,
) -> T:
    """The defaults `base`, a dataclass or a dictionary, with the values of a section and of the tables in it.

    `origin` says where a key of a section stands. A default of None takes anything; see `fitted` for the others. What
    a dictionary holds comes from JSON, which knows no whole numbers, and stays as it was written.

    Raises:
        Misconfigured: a name that is not `known` (those of `base` unless given), or a value of the wrong kind.
    """
    there = base if isinstance(base, dict) else {one.name: getattr(base, one.name) for one in fields(base)}  # type: ignore[arg-type]
    updates: dict[str, Any] = {}
    for key, value in given.items():
        dotted, where = f"{section}.{key}".lstrip("."), origin(section, key)
        if key not in (known or there):
            inside = f"[{section}] has" if section else "there is"
            raise Misconfigured(
                f'{where}: {inside} no setting "{key}". It has: {", ".join(known or there)}.', setting=dotted
            )
        default = there[key]
        if isinstance(default, dict) or is_dataclass(default):
            if not isinstance(value, dict):
                raise Misconfigured(f'{where}: "{dotted}" must be a table: write [{dotted}].', setting=dotted)
            updates[key] = laid_over(default, value, dotted, origin, spelled=spelled)
        elif default is None:
            updates[key] = value
        elif isinstance(base, dict):
            fitted(value, float if type(default) is int else type(default), dotted, where)
            updates[key] = value
        else:
            updates[key] = fitted(value, type(default), dotted, where, spelled=spelled)
    return {**base, **updates} if isinstance(base, dict) else replace(base, **updates)  # type: ignore[return-value, type-var]


def fitted(value: Any, kind: type, dotted: str, origin: str, *, spelled: bool = False) -> Any:
    """`value` as a `kind`: `bool`, `int`, `float`, `str` or a `tuple` of texts. Numbers are 0 or more, and finite.

    With `spelled` a text may stand for any of them, as in a variable: "yes", "8000", "one; two". Raises
    `Misconfigured` for anything else.
    """
    read = _read_text(value, kind) if spelled and isinstance(value, str) else value
    if kind in {int, float} and isinstance(read, int | float) and not isinstance(read, bool):
        if 0 <= read < _MOST and (kind is float or read == int(read)):
            return kind(read)
    elif kind is tuple:
        if isinstance(read, list | tuple) and all(isinstance(part, str) for part in read):
            return tuple(read)
    elif isinstance(read, kind) and kind not in {int, float}:
        return read
    raise Misconfigured(f"{origin}: {dotted} = {value!r} is not {_KINDS[kind]}.", setting=dotted)


def _read_text(text: str, kind: type) -> Any:
    """What a text stands for where a `kind` is wanted; itself where it stands for none."""
    if kind is bool:
        return text.lower() in _ON if text.lower() in {*_ON, *_OFF} else text
    if kind is tuple:
        return [part.strip() for part in text.split(";") if part.strip()]
    try:
        return text if kind is str else kind(text)
    except ValueError:
        return text


def check_choice(value: object, allowed: Sequence[str], dotted: str, origin: str) -> None:
    """Raise `Misconfigured` where `value` is not one of `allowed`."""
    if value not in allowed:
        raise Misconfigured(
            f'{origin}: {dotted} = "{value}" is not one of {", ".join(allowed)}.', setting=dotted
        )


def without_secrets(text: str) -> tuple[str, list[str]] | None:
    """The text of a `cairn.toml` without its keys and tokens, and the names of those that were taken out.

    The statements go as a whole, switched off ones too; every other line stays. None where that cannot be done
    with certainty: the text is no TOML, or a secret stands in a form that is not a line of its own.
    """
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    lines = text.splitlines(keepends=True)
    taken = []
    for section, table in data.items():
        for key in [key for key in table if key in SECRET_KEYS] if isinstance(table, dict) else ():
            if table.pop(key):
                taken.append(f"{section}.{key}")
            start = line_of("".join(lines), section, key) - 1
            rest = (lines[:start] + lines[end:] for end in range(start + 1, len(lines) + 1))
            shorter = next((kept for kept in rest if _means("".join(kept), data)), None)
            if shorter is None:
                return None
            lines = shorter
    return _SWITCHED_OFF.sub("", "".join(lines)), taken


def _means(text: str, data: Mapping[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == data
    except (tomllib.TOMLDecodeError, RecursionError):
        return False


def line_of(text: str, section: str, key: str) -> int:
    """The line on which a key of a section stands; without a section, on which something begins that way."""
    inside = not section
    for number, line in enumerate(text.splitlines(), start=1):
        bare = line.strip()
        if section and bare.startswith("["):
            inside = bare.strip("[] \t") == section
        elif inside and (bare.startswith((key, f'"{key}"'))):
            return number
    return 1


def read_dotenv(env: Mapping[str, str]) -> Found:
    """The settings in `.env` files, as "section.key".

    The user's own is the first found of `$XDG_CONFIG_HOME/cairn/.env` and `~/.cairn/.env`. Over it lies `./.env`:
    alone and as a whole where the user trusts it, otherwise its harmless lines, and a warning names the others.
    """
    home = Path(env.get("HOME") or "~").expanduser()
    config_home = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    own = next(
        (
            lines
            for path in (config_home / "cairn" / ".env", home / ".cairn" / ".env")
            if (lines := _lines(path)) is not None
        ),
        {},
    )
    asked = own.pop(TRUST, ("", ""))
    is_trusted = _is_on(*((env[TRUST], f"environment {TRUST}") if TRUST in env else asked))
    here = _lines(Path(".env"))
    if here is None or _is_one_of(Path(".env"), config_home / "cairn" / ".env", home / ".cairn" / ".env"):
        return _named(own)
    if is_trusted:
        return _named({name: value for name, value in here.items() if name != TRUST})
    harmless = {
        name: value for name, value in here.items() if _HARMLESS.fullmatch(_dotted(name)) and name.isascii()
    }
    ignored = tuple(_printable(name, here[name][1]) for name in here if name not in harmless)
    if ignored:
        _say_ignored(str(Path(".env").absolute()), ignored)
    return {**_named(own), **_named(harmless)}


@functools.cache  # once per process, however often settings are loaded
def _say_ignored(path: str, names: tuple[str, ...]) -> None:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    _log.warning(
        "%s: %s%s not taken: a .env of the working directory may have come with somebody else's files and sets no "
        "address, key, root or token. If it is yours, set %s=1 in your environment.",
        path, ", ".join(names[:10]), more, TRUST,
    )  # fmt: skip


_OTHERS_PREFIX = "EVEROS_"


def say_of_others(env: Mapping[str, str]) -> None:
    """Name the variables of another program in the environment, each with the one of ours that does the same."""
    names = tuple(sorted(name for name in env if name.startswith(_OTHERS_PREFIX)))
    if names:
        _say_others(names)


@functools.cache  # once per process, however often settings are loaded
def _say_others(names: tuple[str, ...]) -> None:
    _log.warning(
        "%s not read here: the settings of the same meaning are %s.",
        ", ".join(_safe(name) for name in names[:10]),
        ", ".join(_safe(ENV_PREFIX + name.removeprefix(_OTHERS_PREFIX)) for name in names[:10]),
    )


def _lines(path: Path) -> dict[str, tuple[str, str]] | None:
    """Our variables in a file, each with where it stands; None where no such file can be read."""
    try:
        text = text_of(path)
    except (OSError, UnicodeDecodeError):
        return None
    out: dict[str, tuple[str, str]] = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip().removeprefix("export ").strip()
        name, equals, value = line.partition("=")
        if not equals or not name.strip().startswith(ENV_PREFIX):
            continue
        bare = value.strip()
        if len(bare) >= 2 and bare[0] == bare[-1] and bare[0] in "'\"":
            bare = bare[1:-1]
        out[name.strip()] = (bare, f"{path}, line {number}")
    return out


def _is_one_of(path: Path, *others: Path) -> bool:
    return any(other.exists() and path.samefile(other) for other in others)


def _is_on(value: str, origin: str) -> bool:
    if value.lower() in _ON:
        return True
    if value.lower() in {"", *_OFF}:
        return False
    raise Misconfigured(f"{origin}: {TRUST} = {value!r} is not 1 or 0.", setting=TRUST)


def _printable(name: str, origin: str) -> str:
    """A name as it may be shown: whoever wrote it may have put anything there."""
    return f"{_safe(name)} (line {origin.rpartition(' ')[2]})"


def _safe(name: str) -> str:
    return name if re.fullmatch(r"\w{1,80}", name, re.ASCII) else repr(name[:80])


def _named(lines: Mapping[str, tuple[str, str]]) -> Found:
    return {from_env_name(name, origin): (value, origin) for name, (value, origin) in lines.items()}


def _dotted(name: str) -> str:
    return name.removeprefix(ENV_PREFIX).lower().replace("__", ".", 1)


def from_env_name(name: str, origin: str) -> str:
    """`CAIRN_SECTION__KEY` as "section.key". Raises `Misconfigured` for another form."""
    if "__" not in name.removeprefix(ENV_PREFIX):
        raise Misconfigured(
            f"{origin}: settings are written {ENV_PREFIX}SECTION__KEY, for example CAIRN_MEMORY__ROOT.",
            setting=name,
        )
    return _dotted(name)
