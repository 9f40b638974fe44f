"""Real Kafka brokers for tests: small, quick to start, thrown away at the end.

Their jars come through Maven. Where they were not fetched the tests are skipped with the reason; where CI=true they are
fetched first.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.servers import IN_CI, QUICK_JAVA, missing


def free_port(count: int) -> int:
    """A port below as many free ones as the brokers need."""
    from bench.rivals.brokers import CONTROLLER_OFFSET

    for _ in range(100):
        port = random.randrange(26000, 31000, 100)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for node in range(1, count + 1):
                for offset in (0, CONTROLLER_OFFSET):
                    stack.enter_context(socket.create_server(("127.0.0.1", port + node + offset)))
            return port
    raise RuntimeError("no free ports found")


@contextlib.contextmanager
def kafka_brokers(count: int) -> Iterator[object]:
    """Brokers in a folder of their own; they die with this process."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        missing("confluent-kafka is not installed")
    from bench.rivals import jars
    from bench.rivals.brokers import Brokers

    if not jars.fetched("kafka"):
        if not IN_CI:
            missing("Kafka's jars are not fetched; `tools/rivals fetch` does it")
        jars.fetch("kafka")
    folder = Path(tempfile.mkdtemp(prefix="lp-kafka-"))
    brokers = Brokers(
        folder,
        free_port(count),
        count=count,
        heap_mb=192,
        attached=True,
        java_options=QUICK_JAVA,
        settings="broker.session.timeout.ms=3000\nbroker.heartbeat.interval.ms=500",  # One that is killed is back soon.
    )
    try:
        brokers.up()
        yield brokers
    finally:
        for node in range(count):
            brokers.kill(node)
        shutil.rmtree(folder, ignore_errors=True)
