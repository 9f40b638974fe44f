"""What a user's transformation may do, and the rows that the sink gets of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logplayer.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ALLOW_LIST = "spark.sql.streaming.realTimeMode.allowlistCheck"
NEEDED = ("log_index", "target", "key", "value")


def sink_rows(jvm: Any, rows: DataFrame) -> DataFrame:
    """The rows in the form of the sink. Raises ConfigError for what cannot be delivered exactly once."""
    missing = [name for name in NEEDED if name not in rows.columns]
    if missing:
        raise ConfigError(
            f"the transformation leaves no column {', '.join(missing)}: targets get log_index, target, key and value "
            "(and op); keep them in every select"
        )
    if reason := refusal(jvm, rows):
        raise ConfigError(reason)
    op = "op" if "op" in rows.columns else "if(value is null, 'delete', 'put')"
    return rows.selectExpr(
        "cast(log_index as long) log_index",
        "cast(target as string) target",
        "cast(key as binary) key",
        "cast(value as binary) value",
        f"cast({op} as string) op",
    )


def refusal(jvm: Any, rows: DataFrame) -> str:
    """Why the rows cannot be delivered exactly once; empty if they can."""
    if rows.sparkSession.conf.get(ALLOW_LIST, "true") == "false":
        return (
            f"the session has {ALLOW_LIST}=false, so Spark would run operators that hold rows back (a sort before a "
            "join, say): set it to true"
        )
    reason: str = jvm.PlanCheck.refusal(rows._jdf)
    return reason
