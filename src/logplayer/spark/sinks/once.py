"""``lp.spark.once``: a micro-batch into the log or into targets exactly once, inside the user's ``foreachBatch``.

The steps are those of the sinks (``staging``), but the code runs in the driver program, which can start Spark jobs:

1. If the batch has an intent, it is run again: whatever its rows are now, the intent is carried out. Go to 4.
2. A job stages the rows: each task writes files of its own. Attempts that failed leave orphans that nobody names.
3. The intent, with the list of files, is made if none is there: from here on the batch is decided.
4. It is carried out. Into the log: this process appends, because a log has one writer. Into targets: a second job
   delivers, one task for each group of targets.
5. The state is kept, and the files of earlier batches are removed.

A crash anywhere is followed by Spark running the batch again, which begins with 1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle

from logplayer.errors import ConfigError, LogPlayerError
from logplayer.spark.arrow import column
from logplayer.spark.folders import Folder
from logplayer.spark.options import SparkOptions, parse_options, require_log
from logplayer.spark.progress import attempt, checked
from logplayer.spark.shipped import ShippedFunction
from logplayer.spark.sinks.deliver import Destination
from logplayer.spark.sinks.delivery import deliver_to, destinations, first_target_state
from logplayer.spark.sinks.log import append_intent, first_log_state, partition_id
from logplayer.spark.sinks.parts import Part, PartsStage, StagedParts
from logplayer.spark.sinks.rows import PAYLOADS, check_columns, payload_batch
from logplayer.spark.sinks.staging import Intent, RowsStage, Staged, Staging
from logplayer.spark.sinks.targets import check_target_rows, highest_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS_MAX = 64
_OF_TABLES = ("table", "key_columns", "columns")
_COLUMNS = ("target", "log_index", "payload", "key", "value", "op", *_OF_TABLES, "mutations", "headers")


def once(batch: DataFrame, batch_id: int, **options: str) -> int:
    """Append a micro-batch to the log, or deliver it to targets, exactly once; for use in ``foreachBatch``.

    It holds for what this call does, through failed tasks, a killed driver and a batch that is run again, with other
    rows too. It does not hold for other effects of your function: those happen again when the batch does.

    Args:
        batch: The rows, as for the sinks: ``payload``, or ``key`` and ``value``, and for targets ``log_index``.
        batch_id: The number that ``foreachBatch`` gives.
        options: Those of the sink: ``log``, or ``to="targets"`` with ``addresses``; and ``staging``, a directory of
            this query and this call alone, which lives as long as the query's checkpoint.

    Returns:
        The number of rows that the batch has, or had when it was decided.

    Raises:
        ConfigError: An option is wrong or missing.
        LogPlayerError: The staging directory belongs to another query, or the query went back more than one batch.

    Example:
        >>> def each(batch, batch_id):
        ...     lp.spark.once(batch, batch_id, log="grpc://127.0.0.1:7100", staging="/var/lib/orders-sink")
        ...     batch.write.mode("append").parquet("/var/lib/orders")  # At least once: Spark may run the batch again.
        >>> orders.writeStream.foreachBatch(each).option("checkpointLocation", "/var/lib/c").start()  # doctest: +SKIP
    """
    parsed = parse_options(options)
    if not parsed.staging:
        raise ConfigError("once needs staging=PLACE, a directory of its own that lives as long as the checkpoint")
    to_targets = parsed.to == "targets"
    if to_targets:
        check_target_rows(parsed, batch.schema)
    else:
        require_log(parsed)
        check_columns(batch.schema)
    staging = Staging(parsed.staging)
    query = _query_id(batch.sparkSession)
    intent = staging.newest()
    if intent is None or intent.batch != batch_id:
        intent = _decide(parsed, staging, batch, batch_id, query)
    _require_same_query(staging, intent, query)
    if to_targets:
        highest = highest_of(parsed, staging, intent)
        _deliver(batch.sparkSession, destinations(parsed, intent), staging.folder, intent.parts, highest)
        staging.finish(intent, {**intent.state, "high": highest})
    else:
        append_intent(require_log(parsed), staging, intent)
    return intent.rows


def _decide(options: SparkOptions, staging: Staging, batch: DataFrame, batch_id: int, query: str) -> Intent:
    """Stage the rows, and make the batch's intent."""
    state = staging.state()
    if state is not None and query and state.get("query", query) != query:
        raise LogPlayerError(_other_query(staging, state["query"], query))
    to_targets = options.to == "targets"
    stage = _staged(batch, partial(_stage_parts if to_targets else _stage_rows, staging))
    if to_targets:
        messages = [StagedParts(part, [Part(*one) for one in parts]) for part, parts in stage]
        first_state = {**first_target_state(options, staging), "query": query}
        return staging.intend(batch_id, messages, first_state, partial(highest_of, options, staging))
    rows = [Staged(*one) for one in stage]
    return staging.intend(batch_id, rows, {**first_log_state(options), "query": query})


# --- The job that stages ---


def _staged(batch: DataFrame, stage: Callable[[Iterator[pa.Array]], Iterator[pa.Array]]) -> list[Any]:
    """Run ``stage`` over the rows; what it says for each partition, which is in the partition's last value.

    An Arrow UDF and not ``mapInArrow``: that needs pandas, which takes each new worker two seconds to import.
    """
    from pyspark.sql import functions

    udf = _arrow_udf(stage, "string").asNondeterministic()  # Evaluated once, before the filter.
    columns = functions.struct(*(name for name in _COLUMNS if name in batch.columns))
    rows = batch.select(udf(columns).alias("staged")).where("staged is not null").collect()
    return [json.loads(row[0]) for row in rows]


def _arrow_udf(function: Callable[[Iterator[pa.Array]], Iterator[pa.Array]], kind: str) -> Any:
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # Its stubs do not have it yet.

    shipped = ShippedFunction(function)

    def apply(arrays: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return shipped(arrays)

    # Spark reads the hints to find out what kind of function it is; here they are text.
    apply.__annotations__ = {"arrays": Iterator[pa.Array], "return": Iterator[pa.Array]}
    return arrow_udf(apply, kind)


def _stage_rows(staging: Staging, arrays: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """In a task: rows for the log."""

    def finish() -> Any:
        staged = stage.finish()
        return staged.partition, staged.file, staged.rows

    with RowsStage(staging.folder, partition_id(), PAYLOADS) as stage:
        yield from _values(arrays, lambda batch: stage.add(payload_batch(batch)), finish)


def _stage_parts(staging: Staging, arrays: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """In a task: rows for targets."""

    def finish() -> Any:
        staged = stage.finish()
        return staged.partition, staged.parts

    with PartsStage(staging.folder, partition_id()) as stage:
        yield from _values(arrays, stage.add, finish)


def _values(
    arrays: Iterator[pa.Array], add: Callable[[pa.RecordBatch], None], finish: Callable[[], Any]
) -> Iterator[pa.Array]:
    """A value for each row: null, but for the last row what ``finish`` says. A partition without rows says nothing."""
    owed = 0
    for array in arrays:
        if owed:
            yield pa.nulls(owed, pa.string())
        add(pa.RecordBatch.from_struct_array(array))
        owed = len(array)
    said = finish()
    if owed:
        yield column([None] * (owed - 1) + [json.dumps(said)], pa.string())


# --- The job that delivers ---


def _deliver(
    spark: SparkSession, where: Sequence[Destination], folder: Folder, parts: Sequence[Part], highest: int
) -> None:
    """One task for each group of targets; each target is in one of them."""
    if not highest:
        return
    count = min(len(where), TASKS_MAX)
    groups = [where[nth::count] for nth in range(count)]
    work = _arrow_udf(partial(_deliver_groups, groups, folder, parts, highest), "binary")
    # A DataFrame, and not an RDD, which Spark Connect does not have.
    rows = spark.range(0, count, 1, count).select(work("id")).collect()
    checked([_error_of(row[0]) for row in rows])


def _deliver_groups(
    groups: Sequence[Sequence[Destination]],
    folder: Folder,
    parts: Sequence[Part],
    highest: int,
    arrays: Iterator[pa.Array],
) -> Iterator[pa.Array]:
    """In a task: an error that another try does not change is a value, so that the driver raises it as it is."""
    for array in arrays:
        found = []
        for nth in array.to_pylist():
            names = {where.target for where in groups[nth]}
            mine = [part for part in parts if part.target in names]
            said = attempt(partial(deliver_to, groups[nth], folder, mine), highest)
            found.append(cloudpickle.dumps(said))  # type: ignore[no-untyped-call]
        yield column(found, pa.binary())


def _error_of(packed: bytes) -> Any:
    return cloudpickle.loads(bytes(packed))


def _query_id(spark: SparkSession) -> str:
    """The id of the streaming query that calls, as its checkpoint has it; empty if Spark does not tell."""
    context = getattr(spark, "_sc", None)  # Spark Connect has no context.
    found = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    return found or ""


def _require_same_query(staging: Staging, intent: Intent, query: str) -> None:
    """The number of a batch says nothing in another query: there it would be taken for one that is run again."""
    known = intent.state.get("query", "")
    if known and query and known != query:
        raise LogPlayerError(_other_query(staging, known, query))


def _other_query(staging: Staging, known: str, query: str) -> str:
    return (
        f"{staging.folder} belongs to query {known}, and this is query {query}: a new checkpoint needs a new staging "
        "directory, and each call of once its own"
    )
