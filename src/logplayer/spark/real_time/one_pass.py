"""Whether Spark would pass each row of the log to the sink in one go: its physical plan, before the query takes over.

The analysed plan does not show how a join is run: Spark decides that later, by the sizes of tables that it knows. So
the transformation is planned here once more, over a batch with the columns of the log and of unknown size, as a stream
is. Between the log and the sink there may be only operators that hand each row on. Nothing is executed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from logplayer.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPERATORS = "org.apache.spark.sql.execution."
PASSES = frozenset({"ProjectExec", "FilterExec", "GenerateExec", "CollectMetricsExec", "joins.BroadcastHashJoinExec"})
BY_SIZE = frozenset({"joins.SortMergeJoinExec", "joins.ShuffledHashJoinExec"})
UNEQUAL = frozenset({"joins.BroadcastNestedLoopJoinExec", "joins.CartesianProductExec"})


def require_one_pass(log: DataFrame, transform: Callable[[DataFrame], DataFrame] | None) -> None:
    """Raises ConfigError if Spark would run the transformation of ``log``, the stream, in another way."""
    if transform is None:
        return
    spark = log.sparkSession
    batch = spark.createDataFrame(spark.sparkContext.emptyRDD(), log.schema)
    own = _columns(batch._jdf.queryExecution().analyzed())
    plan = transform(batch)._jdf.queryExecution().sparkPlan()
    for operator in _above(plan, own) or ():
        if reason := _refusal(operator, own):
            raise ConfigError(reason)


def _refusal(operator: Any, own: frozenset[int]) -> str:
    name = operator.getClass().getName().removeprefix(OPERATORS)
    word = str(operator.nodeName())
    if name in BY_SIZE:
        return (
            f"Spark would run a join or subquery of the transformation as {word}, which moves the log's rows between "
            "tasks or sorts them, because it does not know that the static table is small: mark it with "
            "broadcast(table), or the hint /*+ BROADCAST(table) */"
        )
    if name in UNEQUAL:
        return (
            f"Spark would run a join or subquery of the transformation as {word}, because nothing in its condition is "
            "equal on both sides: join by equal columns, with a filter after it"
        )
    if name not in PASSES:
        return (
            f"Spark would run the operator {word} between the log and the targets, which does not hand each row on at "
            "once: use filters, projections, generators and joins with small static tables"
        )
    if name == "joins.BroadcastHashJoinExec":
        side = operator.left() if str(operator.buildSide().toString()) == "BuildLeft" else operator.right()
        if _above(side, own) is not None:
            return (
                "Spark would send the log's rows to every task, to join them there: put the hint (broadcast) at the "
                "static table, not at the log, or have the log on the left"
            )
    return ""


def _above(plan: Any, own: frozenset[int]) -> list[Any] | None:
    """The operators between the top of the plan and the log, from the top; None if it does not read the log."""
    children = _list(plan.children())
    if not children:
        return [] if own & _columns(plan) else None
    for child in children:
        if (found := _above(child, own)) is not None:
            return [plan, *found]
    return None


def _columns(plan: Any) -> frozenset[int]:
    """Spark's numbers of the columns that it gives."""
    return frozenset(column.exprId().id() for column in _list(plan.output()))


def _list(items: Any) -> list[Any]:
    return [items.apply(nth) for nth in range(items.size())]
