"""Logs as one JSON object a line, or as text; each carries the request_id where there is one."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any

from cairn.config import LoggingSettings

_PLAIN = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {
    "message",
    "asctime",
    "taskName",
}


# What a terminal obeys or takes for the end of a line: controls, line and paragraph separators, marks of direction.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_PLAIN_VALUE = re.compile(r"[^\s\"'=\\]+")


def _escaped(text: str) -> str:
    r"""`text` on one line, whatever a caller put into it: a line break is shown as \n, an escape as \x1b."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def _value(value: object) -> str:
    """A field's value; in quotes where it could pass for more fields than one."""
    text = str(value)
    return text if _PLAIN_VALUE.fullmatch(text) else json.dumps(text, ensure_ascii=False)


class JsonFormatter(logging.Formatter):
    """One line per record; extras become fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields.update({name: value for name, value in record.__dict__.items() if name not in _PLAIN})
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        line = json.dumps(fields, ensure_ascii=False, default=str)
        return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


class TextFormatter(logging.Formatter):
    """For a terminal: time, level, message, extras, one line each. A traceback follows, set in from the margin."""

    def format(self, record: logging.LogRecord) -> str:
        extras = " ".join(
            f"{name}={_value(value)}" for name, value in record.__dict__.items() if name not in _PLAIN
        )
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        line = _escaped(
            f"{at} {record.levelname.lower():7} {record.name}: {record.getMessage()} {extras}".rstrip()
        )
        if not record.exc_info:
            return line
        told = self.formatException(record.exc_info).split("\n")
        return "\n".join([line, *(f"  {_escaped(part)}" for part in told)])


def configure(settings: LoggingSettings) -> None:
    """Send Cairn's and the server's logs to standard error in the chosen form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in ("cairn", "uvicorn"):
        logging.getLogger(name).setLevel(settings.level.upper())
