"""Logs that a machine can read, with the object that each line is about.

The object is a context variable, set by the worker that reconciles it, so that every line below (the admin
client's, the descriptor store's) carries it without having to be told.
"""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime

OBJECT: ContextVar[str] = ContextVar("object", default="")
"""`Kind namespace/name` of what is being reconciled."""


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger, message, and the object and exception where there is one."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if about := OBJECT.get():
            line["object"] = about
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """The same for people."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The line with the object at its end; a traceback comes below."""
        about = OBJECT.get()
        text = super().formatMessage(record)
        return f"{text}  [{about}]" if about else text


def configure(log_format: str, level: str) -> None:
    """Replace whatever handlers there are, kopf's included."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter()
        if log_format == "json"
        else TextFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # kopf tells of every event that it sees, aiohttp of every probe: neither is news.
    for noisy in ("kopf", "aiohttp.access", "asyncio"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLevelName(level)))
