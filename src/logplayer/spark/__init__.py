"""The pipeline on Spark: source, sinks, resident players, queries in real time, bulk jobs. docs/spark.md tells how."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logplayer.spark.real_time.start import realtime
    from logplayer.spark.sinks.once import once

__all__ = ["once", "realtime"]

_WHERE = {"once": "logplayer.spark.sinks.once", "realtime": "logplayer.spark.real_time.start"}


def __getattr__(name: str) -> Any:
    """These load PySpark, which nobody else who imports this package needs."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)
