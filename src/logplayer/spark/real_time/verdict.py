"""What the end of a query means, by what Spark, the targets and the log say."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from logplayer.config import Config
from logplayer.core.entry import Takeover
from logplayer.errors import ConfigError, LogError, LogPlayerError
from logplayer.log import control_chain as chain
from logplayer.log.protocol import Log
from logplayer.spark import event_loop
from logplayer.spark.real_time.plan import Decided
from logplayer.wire.entries import decode_control

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def spark_says(query: StreamingQuery) -> str:
    """Why Spark has ended the query. Raises ConfigError for a plan that it will never run in real time."""
    error = query.exception()
    said = str(error).splitlines()[0] if error is not None else "Spark has ended the query"
    condition = ""
    with contextlib.suppress(Exception):  # Not every error of the JVM has one.
        condition = str(query._jsq.exception().get().cause().getCondition())
    if condition.startswith("STREAMING_REAL_TIME_MODE"):
        raise ConfigError(f"Spark does not run this transformation in real time: {said}")
    return said


def is_superseded(log: Log, config: Config, own: int, epoch: int) -> bool:
    """Whether the log has a takeover of this group at the epoch that a target refused us for."""
    try:
        record = event_loop.run(chain.first_record(log, epoch, epoch))
        taken = decode_control(record.payload)
    except LogPlayerError:
        return False
    return epoch > own and isinstance(taken, Takeover) and taken.group == config.group


def has_news(log: Log, decided: Decided) -> bool:
    """Whether the log has decided something since then; not while it is away."""
    try:
        return event_loop.run(log.info()).control > decided.through
    except LogError:
        return False
