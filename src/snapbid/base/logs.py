"""Log lines on stderr: text, or one JSON object per line for a log collector.

Messages take named fields, which both formats share: `logger.info("settled %(notices)d notices from
the spool", {"notices": 3})`.
"""

import json
import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

VARIABLE: Final = "SNAPBID_LOG"
FORMS: Final = ("text", "json")

GRANIAN: Final = {"handlers": {}, "loggers": {"_granian": {"propagate": True}}}
"""A logging configuration for Granian that leaves its lines to our handler."""


class JsonFormatter(logging.Formatter):
    """Formats log records as JSON objects: the common fields, then the message's fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields = record.args if isinstance(record.args, Mapping) else {}
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps({**line, **fields, **line}, default=str)


def log_to_stderr() -> None:
    """Log to stderr in the format set by SNAPBID_LOG; every process of the product calls this.

    The variable is read directly, since a child process may have no other setting.
    """
    handler = logging.StreamHandler()
    if os.environ.get(VARIABLE) == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
