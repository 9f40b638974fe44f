"""The pipeline on Spark: source, sinks, resident players, bulk jobs. docs/spark.md tells how to use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logplayer.spark.sinks.once import once

__all__ = ["once"]


def __getattr__(name: str) -> Any:
    """``once`` loads PySpark, which nobody else who imports this package needs."""
    if name != "once":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from logplayer.spark.sinks.once import once

    return once
