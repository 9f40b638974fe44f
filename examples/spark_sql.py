"""Streaming SQL over the log: count what each shard gets.

    python examples/spark_sql.py [--log ADDRESS] [--seconds 5]

Without --log it creates a log and appends to it. A query over the stream counts puts and deletes by target; the counts
are in a table that you can query with SQL.
"""

from __future__ import annotations

import argparse
import tempfile
import time

from logplayer.spark.session import make_session


def main(log: str, seconds: float) -> None:
    spark = make_session("example: SQL over the log", "local[2]")
    stream = spark.readStream.format("logplayer").options(log=log, map="hash:north,south").load()
    stream.createOrReplaceTempView("wal")
    counts = spark.sql("SELECT target, op, count(*) AS rows, max(log_index) AS last FROM wal GROUP BY target, op")
    query = counts.writeStream.outputMode("complete").format("memory").queryName("counts").start()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline or not spark.table("counts").count():
        query.processAllAvailable()
    spark.sql("SELECT * FROM counts ORDER BY target, op").show()
    query.stop()
    spark.stop()


def make_log(folder: str) -> str:
    """A log with a few hundred transactions."""
    import asyncio

    from logplayer.log.open import open_log
    from logplayer.log.protocol import NewEntry
    from logplayer.wire.entries import encode_mutation

    async def fill() -> None:
        log = await open_log(f"file://{folder}/wal")
        for n in range(1, 301):
            put = encode_mutation(b"user:%d" % (n % 40), b"visit %d" % n)
            gone = encode_mutation(b"cart:%d" % n, None)
            await log.append([NewEntry("example", n, put.encoded + (gone.encoded if n % 5 == 0 else b""))])
        await log.close()

    asyncio.run(fill())
    return f"file://{folder}/wal"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", default="")
    parser.add_argument("--seconds", type=float, default=5.0)
    chosen = parser.parse_args()
    if chosen.log:
        main(chosen.log, chosen.seconds)
    else:
        with tempfile.TemporaryDirectory() as own:
            main(make_log(own), chosen.seconds)
