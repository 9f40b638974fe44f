"""The rivals: competing systems that deliver the same workload to the same kind of targets, each in its own file.

Every one is a ``Contestant`` (see ``bench.contest``). What a rival needs beyond PyPI comes through Maven into
``.cache/rivals``: ``tools/rivals fetch`` gets it, ``tools/rivals up`` starts the Kafka brokers, ``tools/rivals down``
stops them. The settings of each rival are those that an expert would choose for a low delay; they stand in its file.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from bench.contest import Contestant

CLASSES = {
    "kafka_eos": "KafkaEos",
    "kafka_plain": "KafkaPlain",
    "kafka_two_level": "KafkaTwoLevel",
    "postgres_outbox": "PostgresOutbox",
    "spark_micro_batch": "SparkMicroBatch",
    "flink": "Flink",
}


def rivals() -> dict[str, Callable[[], Contestant]]:
    """How to make each rival; what it needs is imported when it is made."""
    return {name: lambda name=name: _make(name) for name in CLASSES}  # type: ignore[misc]


def _make(name: str) -> Contestant:
    module = importlib.import_module(f"{__name__}.{name}")
    made: Contestant = getattr(module, CLASSES[name])()
    return made
