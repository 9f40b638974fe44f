"""Which transformations give the same each time: an entry that is computed again after a crash must not differ."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from logplayer.spark.real_time import connector as connector_module
from logplayer.spark.real_time import transform
from tests.spark.test_real_time import connector

__all__ = ["connector"]
KEY = "unhex(repeat('00', 16))"


def by_names(made: str) -> Callable[[DataFrame], DataFrame]:
    """A join with a static table."""

    def joined(rows: DataFrame) -> DataFrame:
        names = rows.sparkSession.sql(made)
        return rows.join(f.broadcast(names), f.expr("cast(key as string) = name"), "left_semi")

    return joined


def value_of(text: str) -> Callable[[DataFrame], DataFrame]:
    return lambda rows: rows.withColumn("value", f.expr(text))


ALLOWED: dict[str, Callable[[DataFrame], DataFrame]] = {
    "encryption with an IV": value_of(f"aes_encrypt(value, {KEY}, 'GCM', 'DEFAULT', substring(sha(key), 1, 12))"),
    "encryption in blocks": value_of(f"aes_encrypt(value, {KEY}, 'ECB')"),
    "a fixed time": lambda rows: rows.where("committed_at > '2026-01-01' or committed_at > to_timestamp('epoch')"),
    "a limit with an order": by_names("select string(id) name from range(9) order by id limit 3"),
    "a limit that cuts nothing": by_names("select cast(max(id) as string) name from range(9) limit 1"),
    "text that is no time": value_of("concat('now', cast(value as string))"),
}  # fmt: skip


@pytest.mark.parametrize("what", ALLOWED)
def test_what_gives_the_same_each_time_is_allowed(spark: SparkSession, what: str) -> None:
    jvm, _ = connector_module.load(spark)
    rows = spark.readStream.format(connector_module.SOURCE).option("plan", 0).load()
    assert transform.refusal(jvm, ALLOWED[what](rows)) == ""


DIFFERS: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "encryption": (value_of(f"aes_encrypt(value, {KEY})"), "aes_encrypt without an IV"),
    "encryption with an empty IV": (
        value_of(f"aes_encrypt(value, {KEY}, 'CBC', 'DEFAULT', x'')"), "aes_encrypt without an IV"),
    "now": (lambda rows: rows.where("committed_at < cast('now' as timestamp)"), "text 'now'"),
    "now by comparison": (lambda rows: rows.where("committed_at < ' Yesterday UTC'"), "text ' Yesterday UTC'"),
    "today": (lambda rows: rows.where("committed_at < cast(concat('to', 'day') as date)"), "text 'today'"),
    "a function of today": (lambda rows: rows.where("committed_at < to_date('today')"), "text 'today'"),
    "static today": (by_names("select 'n' name where cast('today' as date) > date'2020-01-01'"), "text 'today'"),
    "a sample": (by_names("select string(id) name from (select * from range(9)) tablesample (50 percent)"), "a sample"),
    "a limit": (by_names("select string(id) name from range(9) limit 3"), "a limit without an order"),
    "an offset": (by_names("select string(id) name from range(9) offset 3"), "a limit without an order"),
    "a limit in a subquery": (
        lambda rows: rows.where("log_index in (select id from range(9) limit 3)"), "a limit without an order"),
}  # fmt: skip


@pytest.mark.parametrize("what", DIFFERS)
def test_what_differs_from_time_to_time_is_refused(spark: SparkSession, what: str) -> None:
    change, said = DIFFERS[what]
    jvm, _ = connector_module.load(spark)
    rows = spark.readStream.format(connector_module.SOURCE).option("plan", 0).load()
    assert said in transform.refusal(jvm, change(rows))
