"""From files through the log to shards: append a folder of JSON lines exactly once, and deliver it.

    python examples/spark_files_to_shards.py [--rows 2000]

The program starts everything itself: a log in a folder, servers for two SQLite shards, a streaming query from files
into the log, and the players as Spark tasks. At the end the audit compares the shards with the log.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from logplayer.spark.session import make_session  # First: the JVM starts before any channel.

# isort: split
from logplayer.config import Config
from logplayer.core.entry import HashMap
from logplayer.log.open import open_log
from logplayer.log.server import LogServer
from logplayer.spark import event_loop
from logplayer.spark.jobs.audit import audit
from logplayer.spark.resident.driver import Resident
from logplayer.target.client import wait_for
from logplayer.target.server import TargetServer
from logplayer.target.stores.sqlite import SqliteTarget

SHARDS = ("north", "south")


def write_files(folder: Path, rows: int) -> None:
    """Four files of orders."""
    folder.mkdir()
    for part in range(4):
        orders = ({"key": f"order:{n}", "value": json.dumps({"amount": n * 7 % 100})} for n in range(part, rows, 4))
        (folder / f"{part}.json").write_text("\n".join(map(json.dumps, orders)) + "\n")


def main(folder: Path, rows: int) -> None:
    spark = make_session("example: files to shards", "local[3]")
    log = event_loop.run(open_log(f"file://{folder}/wal"))
    server = LogServer(log)
    address = f"grpc://127.0.0.1:{event_loop.run(server.start())}"
    targets = {}
    servers = []
    for name in SHARDS:
        shard = TargetServer({name: SqliteTarget(folder / f"{name}.db", name)})
        [targets[name]] = event_loop.run(shard.start(grpc="127.0.0.1:0"))
        servers.append(shard)

    players = Resident(spark, Config(address, targets, HashMap(SHARDS)))
    players.start()
    write_files(folder / "in", rows)
    files = spark.readStream.schema("key STRING, value STRING").json(str(folder / "in"))
    query = files.writeStream.format("logplayer").options(log=address, checkpointLocation=f"{folder}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()

    last = event_loop.run(log.info()).last
    for name, where in targets.items():
        event_loop.run(wait_for(where, name, last, 120))
    print(f"{rows} rows are in the log and in the shards, up to index {last}")
    players.stop()
    stores = {name: f"sqlite:{folder}/{name}.db" for name in SHARDS}
    for verdict in audit(spark, address, stores=stores):
        print(f"{verdict.target}: {'right' if verdict.right else 'WRONG'}, {verdict.keys} keys")
    for shard in servers:
        event_loop.run(shard.stop())
    event_loop.run(server.stop())
    event_loop.run(log.close())
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2000)
    with tempfile.TemporaryDirectory() as own:
        main(Path(own), parser.parse_args().rows)
