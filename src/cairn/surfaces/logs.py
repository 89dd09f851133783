"""Logs as one JSON object a line, or as text; each carries the request_id where there is one."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from cairn.config import LoggingSettings

_PLAIN = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {
    "message",
    "asctime",
    "taskName",
}


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
        return json.dumps(fields, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """For a terminal: time, level, message, extras."""

    def format(self, record: logging.LogRecord) -> str:
        extras = " ".join(f"{name}={value}" for name, value in record.__dict__.items() if name not in _PLAIN)
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        line = f"{at} {record.levelname.lower():7} {record.name}: {record.getMessage()} {extras}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure(settings: LoggingSettings) -> None:
    """Send Cairn's and the server's logs to standard error in the chosen form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in ("cairn", "uvicorn"):
        logging.getLogger(name).setLevel(settings.level.upper())
