"""What the server logs: one line of JSON for each request and each fault, and never what was said."""

from __future__ import annotations

import logging
import time
from typing import Final

import msgspec

OURS: Final = ("antiphon", "uvicorn")


class Lines(logging.Formatter):
    """Writes a record as one line; the text of an exception stays out, as it may hold content."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{when}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage().strip(),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
        line.update(getattr(record, "fields", {}))
        return msgspec.json.encode(line, enc_hook=str).decode()


class _Expected(logging.Filter):
    """Leaves out what uvicorn says of connections that we cut on purpose."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether the record is news."""
        kind = record.exc_info[0] if record.exc_info else None
        return kind is None or kind.__name__ != "Broken"


def configure(level: int = logging.INFO) -> None:
    """Send what the server has to say to standard error, as lines."""
    handler = logging.StreamHandler()
    handler.setFormatter(Lines())
    handler.addFilter(_Expected())
    for name in OURS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
    logging.getLogger("antiphon").setLevel(level)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
