"""The log as a change feed into a lakehouse: two Delta tables that follow the log, and an audit of both.

    pip install "pyspark==4.2.0"
    mvn -f examples/delta-pom.xml dependency:copy-dependencies -DoutputDirectory=/tmp/delta-jars
    python examples/spark_lakehouse.py --jars /tmp/delta-jars [--log ADDRESS] [--to FOLDER]

``current`` has the newest value of each key (SCD1), ``history`` every value with the indexes and times between which it
held (SCD2). A batch that Spark runs again changes nothing: each row is written under its ``log_index``, and only if it
is newer than what is there. Without --log it creates a log and appends to it, in two runs of the query.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logplayer.log.open import open_log
from logplayer.log.protocol import Kind, NewEntry
from logplayer.spark.session import make_session
from logplayer.wire.entries import decode_transaction, encode_mutation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

CREATE = """
CREATE TABLE IF NOT EXISTS {current} (key BINARY, value BINARY, log_index BIGINT, changed_at TIMESTAMP) USING delta;
CREATE TABLE IF NOT EXISTS {history} (key BINARY, value BINARY, from_index BIGINT, from_time TIMESTAMP,
  to_index BIGINT, to_time TIMESTAMP) USING delta
"""

# One change for each key and entry: if an entry changes a key twice, the later change counts. The rows of an entry are
# in one partition in their order, so that a number that rises within a partition tells them apart.
CHANGES = """
SELECT key, log_index, committed_at, max_by(named_struct('op', op, 'value', value), nth) AS last
FROM (SELECT *, monotonically_increasing_id() AS nth FROM {batch})
WHERE op IN ('put', 'delete') GROUP BY key, log_index, committed_at
"""

CURRENT = """
MERGE INTO {current} t
USING (SELECT key, max_by(struct(*), log_index) AS new FROM {changes} GROUP BY key) s
ON t.key = s.key
WHEN MATCHED AND s.new.log_index >= t.log_index AND s.new.last.op = 'delete' THEN DELETE
WHEN MATCHED AND s.new.log_index >= t.log_index THEN UPDATE SET
  value = s.new.last.value, log_index = s.new.log_index, changed_at = s.new.committed_at
WHEN NOT MATCHED AND s.new.last.op = 'put' THEN INSERT (key, value, log_index, changed_at)
  VALUES (s.key, s.new.last.value, s.new.log_index, s.new.committed_at)
"""

CLOSE = """
MERGE INTO {history} t
USING (SELECT key, min_by(struct(log_index, committed_at), log_index) AS next FROM {changes} GROUP BY key) s
ON t.key = s.key AND t.to_index IS NULL AND t.from_index < s.next.log_index
WHEN MATCHED THEN UPDATE SET to_index = s.next.log_index, to_time = s.next.committed_at
"""

VERSIONS = """
MERGE INTO {history} t
USING (
  SELECT *, lead(log_index) OVER (PARTITION BY key ORDER BY log_index) AS to_index,
    lead(committed_at) OVER (PARTITION BY key ORDER BY log_index) AS to_time FROM {changes}
) s
ON t.key = s.key AND t.from_index = s.log_index
WHEN NOT MATCHED AND s.last.op = 'put' THEN INSERT (key, value, from_index, from_time, to_index, to_time)
  VALUES (s.key, s.last.value, s.log_index, s.committed_at, s.to_index, s.to_time)
"""


def follow(spark: SparkSession, log: str, folder: str) -> None:
    """Bring both tables up to the end of the log, from where the checkpoint has them."""
    tables = {"current": f"delta.`{folder}/current`", "history": f"delta.`{folder}/history`"}
    for statement in CREATE.format(**tables).split(";"):
        spark.sql(statement)

    def each(batch: DataFrame, batch_id: int) -> None:
        session = batch.sparkSession
        batch.createOrReplaceTempView("lakehouse_batch")
        changes = session.sql(CHANGES.format(batch="lakehouse_batch")).persist()  # Read the log once, not three times.
        changes.createOrReplaceTempView("lakehouse_changes")
        for statement in (CURRENT, CLOSE, VERSIONS):
            session.sql(statement.format(changes="lakehouse_changes", **tables))
        changes.unpersist()

    stream = spark.readStream.format("logplayer").options(log=log, maxEntriesPerTrigger="2000").load()
    query = stream.writeStream.foreachBatch(each).option("checkpointLocation", f"{folder}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()


# --- The audit: the log, read and folded without Spark ---


async def fold(log: str) -> tuple[dict[bytes, bytes], dict[tuple[bytes, int], tuple[bytes, int | None]]]:
    """What the tables must have: each key's value; and by key and index each value that held, and where it ended."""
    current: dict[bytes, bytes] = {}
    history: dict[tuple[bytes, int], tuple[bytes, int | None]] = {}
    began: dict[bytes, int] = {}
    opened = await open_log(log, readonly=True)
    info = await opened.info()
    async for records in opened.read(info.first, info.last):
        for record in records:
            changed = dict(decode_transaction(record.payload)) if record.kind == Kind.DATA else {}
            for key, value in changed.items():
                if key in began:
                    history[key, began[key]] = (current.pop(key), record.index)
                    del began[key]
                if value is not None:
                    current[key], began[key] = value, record.index
                    history[key, record.index] = (value, None)
    await opened.close()
    return current, history


def audit(spark: SparkSession, log: str, folder: str) -> bool:
    """Compare both tables with the log; print and return whether they are right."""
    current, history = asyncio.run(fold(log))
    rows = spark.read.format("delta").load(f"{folder}/current").collect()
    versions = spark.read.format("delta").load(f"{folder}/history").collect()
    right = {
        "current": len(rows) == len(current) and {bytes(r.key): bytes(r.value) for r in rows} == current,
        "history": len(versions) == len(history)
        and {(bytes(r.key), r.from_index): (bytes(r.value), r.to_index) for r in versions} == history,
    }
    for table, count in (("current", len(rows)), ("history", len(versions))):
        print(f"{table}: {'right' if right[table] else 'WRONG'}, {count} rows")
    return all(right.values())


# --- An example log ---


def fill(log: str, first: int, count: int) -> None:
    """Append transactions that put, overwrite and delete."""

    async def append() -> None:
        opened = await open_log(log)
        for n in range(first, first + count):
            changes = [encode_mutation(b"user:%d" % (n % 40), b"visit %d" % n, "all")]
            if n % 5 == 0:
                changes.append(encode_mutation(b"user:%d" % (n % 30), None, "all"))
            if n % 7 == 0:  # The same key twice in one entry: the later change counts.
                changes.append(encode_mutation(b"user:%d" % (n % 40), b"visit %d, again" % n, "all"))
            await opened.append([NewEntry("example", n, b"".join(change.encoded for change in changes))])
        await opened.close()

    asyncio.run(append())


@contextmanager
def session(jars: str) -> Iterator[Any]:
    """A Spark session with Delta Lake from the jars in a folder."""
    found = ",".join(map(str, sorted(Path(jars).glob("*.jar"))))
    spark = make_session("example: lakehouse", "local[2]", {**SETTINGS, "spark.jars": found})
    try:
        yield spark
    finally:
        spark.stop()


def main(jars: str, log: str, folder: str) -> int:
    with session(jars) as spark:
        if log:
            follow(spark, log, folder)
        else:
            log = f"file://{folder}/wal"
            for first in (1, 301):
                fill(log, first, 300)
                follow(spark, log, folder)
        return 0 if audit(spark, log, folder) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jars", required=True, help="a folder with Delta Lake's jars")
    parser.add_argument("--log", default="")
    parser.add_argument("--to", default="", help="where the tables and the checkpoint are")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as own:
        raise SystemExit(main(chosen.jars, chosen.log, chosen.to or own))
