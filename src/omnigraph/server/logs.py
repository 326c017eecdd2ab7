"""Structured logs on stderr: one JSON object per line, without secrets."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Final

import orjson

from omnigraph.texts import shown

LEVEL: Final = "OMNIGRAPH_LOG"
_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "taskName"}


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON: time, level, logger, message, and what was added."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": shown(record.getMessage()),
        }
        line |= {k: v for k, v in vars(record).items() if k not in _PLAIN}
        if record.exc_info:
            line["exception"] = shown(self.formatException(record.exc_info))
        return orjson.dumps(line, default=str).decode()


def log_to_stderr(environ: Mapping[str, str]) -> None:
    """Send logs to stderr; `OMNIGRAPH_LOG` or `RUST_LOG` names the level, by default `info`."""
    text = (environ.get(LEVEL) or environ.get("RUST_LOG") or "info").strip().upper()
    known = logging.getLevelNamesMapping()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(known.get(text, logging.INFO))
    for noisy in ("uvicorn", "asyncio"):
        logging.getLogger(noisy).setLevel(max(known.get(text, logging.INFO), logging.WARNING))
