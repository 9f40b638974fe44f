"""How a process logs: a line for people, or an object per line with the facts as fields (``--log-format json``)."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

FORMATS = ("text", "json")


_process: dict[str, Any] = {}


def process_is(**facts: Any) -> None:
    """What every line of this process is about, where the line does not say otherwise: for commands, not libraries."""
    _process.update(facts)


def about(**facts: Any) -> dict[str, Any]:
    """``extra`` of a line: what it is about, as fields."""
    return {"facts": facts}


class JsonLines(logging.Formatter):
    """``{"at": ..., "level": ..., "logger": ..., "text": ..., "target": ..., ...}``"""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        line = {"at": at, "level": record.levelname.lower(), "logger": record.name, "text": record.getMessage()}
        line |= {**_process, **getattr(record, "facts", {})}
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
