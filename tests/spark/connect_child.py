"""Every entry of ``format("logplayer")`` from a client of Spark Connect.

    python -m tests.spark.connect_child FOLDER SETTINGS

SETTINGS is JSON: the addresses of the server, of a log to read, of a log to write to, and of targets. What it wrote is
judged by the test that started it. Prints one line of JSON: for each entry "right", or what went wrong.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.test_sinks import forget_last_commit

ENTRIES = 40


class Client:
    """What the steps share."""

    def __init__(self, folder: str, given: dict[str, str]) -> None:
        self.folder, self.given = Path(folder), given
        self.spark = SparkSession.builder.remote(given["server"]).getOrCreate()

    def stream(self) -> DataFrame:
        return self.spark.readStream.format("logplayer").options(log=self.given["log"]).load()

    def run(self, writer: Any, name: str) -> None:
        writer = writer.option("checkpointLocation", str(self.folder / name / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        if query.exception() is not None:
            raise query.exception()

    def run_twice(self, writer: Callable[[], Any], name: str) -> None:
        """The second time as after a crash that lost the last commit."""
        self.run(writer(), name)
        forget_last_commit(self.folder / name / "checkpoint")
        self.run(writer(), name)


def source(client: Client) -> None:
    rows = client.spark.read.format("logplayer").options(log=client.given["log"]).load()
    assert rows.where("log_index > 30 and target = 'a'").count() == 5
    assert rows.agg({"log_index": "max"}).collect()[0][0] == ENTRIES


def sql_table(client: Client) -> None:
    sql, log = client.spark.sql, client.given["log"]
    sql(f"CREATE TABLE connect_t USING logplayer OPTIONS (log '{log}')")
    try:
        found = sql(f"SELECT count(*) FROM connect_t WITH (log = '{log}') WHERE target = 'b'").collect()
        assert found[0][0] == ENTRIES // 2
        given = f"log = '{client.given['other']}', staging = '{client.folder}/insert'"
        sql(f"INSERT INTO connect_t WITH ({given}) (key, value) SELECT binary('sql'), binary('1')").collect()
    finally:
        sql("DROP TABLE connect_t")


def log_sink(client: Client) -> None:
    def writer() -> Any:
        rows = client.stream().selectExpr("concat(cast('sink-' as binary), key) key", "value")
        return rows.writeStream.format("logplayer").options(log=client.given["other"])

    client.run_twice(writer, "log_sink")


def target_sink(client: Client) -> None:
    def writer() -> Any:
        rows = client.stream().select("target", "log_index", "key", "value", "op")
        return rows.writeStream.format("logplayer").options(to="targets", addresses=client.given["sink_targets"])

    client.run_twice(writer, "target_sink")


def once(client: Client) -> None:
    """The function runs on the server's machine; what it uses is pickled with it."""
    log, addresses, folder = client.given["other"], client.given["once_targets"], str(client.folder)

    def each(batch: DataFrame, batch_id: int) -> None:
        import logplayer as lp

        rows = batch.selectExpr("concat(cast('once-' as binary), key) key", "value")
        lp.spark.once(rows, batch_id, log=log, staging=f"{folder}/once-log")
        lp.spark.once(batch, batch_id, to="targets", addresses=addresses, staging=f"{folder}/once-targets")

    client.run_twice(lambda: client.stream().writeStream.foreachBatch(each), "once")


def errors(client: Client) -> None:
    with pytest.raises(PySparkException) as caught:
        client.spark.read.format("logplayer").option("logg", "file:///x").load().count()
    assert "no option 'logg'; did you mean log?" in str(caught.value).splitlines()[0], caught.value


def real_time(client: Client) -> None:
    import logplayer as lp

    running = lp.spark.realtime(client.spark, log=client.given["log"], targets={"a": "tcp://127.0.0.1:9"})
    with pytest.raises(lp.ConfigError, match="this session of Spark Connect has no driver"):
        running.start()


STEPS: tuple[Callable[[Client], None], ...] = (source, sql_table, log_sink, target_sink, once, errors, real_time)


def main(folder: str, settings: str) -> None:
    client = Client(folder, json.loads(settings))
    found = {}
    for step in STEPS:
        try:
            step(client)
            found[step.__name__] = "right"
        except Exception:  # noqa: BLE001 - The test shows it.
            found[step.__name__] = traceback.format_exc()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
