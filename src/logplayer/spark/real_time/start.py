"""``lp.spark.realtime``: the settings of a query in real time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from logplayer.config import HTTP_ADDRESS, Config
from logplayer.core.entry import ShardMap
from logplayer.errors import ConfigError
from logplayer.player.maps import parse_map
from logplayer.spark.real_time.query import Realtime
from logplayer.wire.addresses import parse_netloc
from logplayer.wire.security import Security

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GROUP = "realtime"
BATCH_SECONDS = 300  # Between two batches tasks end and others start, which costs the entries of that moment a delay.


def realtime(
    spark: SparkSession,
    *,
    log: str = "",
    targets: Mapping[str, str] | None = None,
    transform: Callable[[DataFrame], DataFrame] | None = None,
    map: ShardMap | str | None = None,
    security: Security | None = None,
    config: Config | None = None,
    group: str = "",
    groups: int = 1,
    batch_seconds: int = BATCH_SECONDS,
    http: str = "",
) -> Realtime:
    """A query in Spark's real-time mode between the log and its targets, delivered exactly once and in order.

    The transformation gets the rows of ``format("logplayer")`` and may filter them, change key, value and op, make
    several of one, and join them with a static table. It must keep ``log_index`` and ``target`` as they are, and give
    the same for the same row each time: after a crash an entry that no target has yet is computed again. What moves
    rows between tasks or holds them back, and Python functions, are refused.

    Args:
        spark: A session with a driver of its own, not one of Spark Connect.
        log: The log server, ``grpc://host:port``.
        targets: Name and address of each target. They become the log's first members if it has none yet; afterwards
            its own records decide, and this only says where a member is reached.
        transform: From the rows of the log to those of the targets; None delivers them as they are. It is called for
            each start, and before, with a batch without rows too, to see how Spark would run it.
        map: The log's first map, if it has none yet: a map, or text as in ``--map``.
        security: How log and targets are reached.
        config: All of this, and the limits, in place of the arguments above.
        group: The name under which this query takes over; a later one with the same name replaces it.
        groups: How many tasks deliver. Each reads the whole log, and needs a slot of its own.
        batch_seconds: How long a batch of Spark lasts, at least 5.
        http: Where the status page, ``/status`` and ``/metrics`` are served, ``HOST:PORT``, while the query runs.
            Empty: where ``config`` says, if it names another place than its default; else nowhere.

    Returns:
        The query; ``start()`` it.

    Raises:
        ConfigError: A setting is wrong.

    Example:
        >>> lp.spark.realtime(
        ...     spark,
        ...     log="grpc://127.0.0.1:7100",
        ...     targets={"a": "tcp://127.0.0.1:7201"},
        ...     transform=lambda rows: rows.where("key not like 'tmp/%'"),
        ... ).start()  # doctest: +SKIP
    """
    given = config or Config()
    shard_map = parse_map(map) if isinstance(map, str) else map
    made = replace(
        given,
        log=log or given.log,
        targets=dict(targets) if targets is not None else given.targets,
        map=shard_map or given.map,
        security=security or given.security,
        group=group or given.group or GROUP,
        http=http or (given.http if given.http != HTTP_ADDRESS else ""),
    )
    if made.http:
        parse_netloc(made.http)
    if not made.log:
        raise ConfigError('realtime needs log="grpc://HOST:PORT", the address of a log server')
    if groups < 1:
        raise ConfigError(f"groups={groups}: at least one task must deliver")
    return Realtime(spark, made, transform, groups, batch_seconds)
