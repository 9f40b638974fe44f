"""The process that drives players on Spark: one resident task for each of them."""

from __future__ import annotations

from typing import Any

from bench.actor import usage


class SparkPlayers:
    """An actor: see ``bench.actor``. The JVM starts here before any gRPC channel does."""

    def __init__(self) -> None:
        self._spark: Any = None
        self._resident: Any = None

    def open(self, slots: int) -> None:
        from logplayer.spark.session import make_session

        self._spark = make_session("bench", f"local[{slots}]", quiet=True)
        self._spark.range(10).rdd.map(str).count()  # The first Python worker takes a second.

    def play(self, log: str, targets: dict[str, str], groups: int) -> None:
        from logplayer.config import Config, SparkSettings
        from logplayer.core.entry import HashMap
        from logplayer.spark.resident.driver import Resident

        config = Config(log, targets, HashMap(tuple(targets)), group="bench", spark=SparkSettings(groups=groups))
        self._resident = Resident(self._spark, config)
        self._resident.start()

    def usage(self) -> dict[str, float]:
        return usage()

    async def close(self) -> None:
        if self._resident is not None:
            self._resident.stop()
        if self._spark is not None:
            self._spark.stop()
