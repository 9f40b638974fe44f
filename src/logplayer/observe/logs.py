"""How a process logs: a line for people, or an object per line with the facts as fields (``--log-format json``)."""

from __future__ import annotations

import json
import logging
import sys
import time

FORMATS = ("text", "json")


class JsonLines(logging.Formatter):
    """``{"at": ..., "level": ..., "logger": ..., "text": ..., "target": ..., ...}``"""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        line = {"at": at, "level": record.levelname.lower(), "logger": record.name, "text": record.getMessage()}
        line |= getattr(record, "facts", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def log_to_stderr(form: str = "text") -> None:
    """Log from INFO on to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
