"""What every folder of tests may use."""

from __future__ import annotations

import os

import pytest

from servers import QUICK_JAVA, postgres_url, redis_url
from spark_session import spark

__all__ = ["postgres_url", "redis_url", "spark"]

# Spark's JVMs live for a minute or two here: the optimising compiler and parallel collection cost more than they give.
for _name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(_name, " ".join(QUICK_JAVA))


class TellAtOnce:
    """Tells a failure when it happens: a run that is ended from outside still says what failed."""

    def __init__(self, config: pytest.Config) -> None:
        self.plugins = config.pluginmanager

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A line per failed test, with the last lines of the reason."""
        terminal = self.plugins.getplugin("terminalreporter")
        if report.failed and terminal is not None:
            reason = report.longreprtext.strip().splitlines()[-3:]
            terminal.write_line("")
            terminal.write_line(f"failed: {report.nodeid} ({report.when}): " + " | ".join(reason), red=True)


def pytest_configure(config: pytest.Config) -> None:
    """Only the process that prints."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(TellAtOnce(config))


# What takes longest begins first, so that the workers end together.
LONG = (
    "spark",
    "tests/docs/test_documents.py",
    "tests/log/test_kafka.py",
    "tests/log/test_kit_nats.py",
    "tests/spark/test_processes.py",
    "tests/spec/test_spec_trace.py",
    "tests/process/test_campaign.py",
    "tests/target/test_store_contract.py",
    "tests/sim/test_sim_mutants.py",
)
FIRST = "tests/spark/test_lease.py"  # Leases find their players again while the session has no other idle workers.


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A worker takes a whole file, or everything that shares the Spark session."""
    groups = {}
    for item in items:
        uses_spark = "spark" in getattr(item, "fixturenames", ())
        groups[item] = "spark" if uses_spark else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(groups[item]))

    def turn(item: pytest.Item) -> tuple[int, bool]:
        return LONG.index(groups[item]) if groups[item] in LONG else len(LONG), not item.nodeid.startswith(FIRST)

    items.sort(key=turn)
