"""Spark's Python daemon, with the player's modules loaded: a new worker is a fork that imports nothing.

An executor has one daemon, which forks a worker for each task. Spark's own daemon loads as little as it can, because
some modules start threads when they are imported, and threads do not survive a fork. So each new worker imports the
player, which is most of the time that a killed worker's successor needs. None of what is loaded here starts a thread
(a test holds that), and no channel of gRPC is opened before the fork.

``logplayer play`` names this module in ``spark.python.daemon.module``.
"""

from __future__ import annotations

import contextlib
import importlib

# What a task of a resident player imports, some of it on first use.
MODULES = (
    "pyspark.worker",
    "logplayer.spark.resident.driver",
    "logplayer.log.client",
    "logplayer.target.client",
    "uvloop",
)


def load() -> None:
    """Import what players need; what is not installed is left to the worker, whose error says more."""
    for name in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


if __name__ == "__main__":
    from pyspark.daemon import manager

    load()
    manager()  # type: ignore[no-untyped-call, unused-ignore]
