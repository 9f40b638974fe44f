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


# What shares the Spark session, and takes longest; leases first, which find their players again while the session has
# no other idle workers.
ON_SPARK = (
    "tests/spark/test_lease.py",
    "tests/spark/test_sinks.py",
    "tests/spark/test_source.py",
    "tests/spark/test_bulk.py",
    "tests/spark/test_resident.py",
    "tests/spark/test_examples.py",
    "tests/spark/test_verbs.py",
    "tests/bench/test_results.py",
)
LONG = (
    *ON_SPARK,
    "tests/docs/test_documents.py",
    "tests/log/test_kafka.py",
    "tests/log/test_kit_nats.py",
    "tests/spark/test_processes.py",
    "tests/spec/test_spec_trace.py",
    "tests/process/test_campaign.py",
    "tests/target/test_store_contract.py",
    "tests/sim/test_sim_mutants.py",
)


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, so that the workers end together."""
    turns = {file: turn for turn, file in enumerate(LONG)}
    items.sort(key=lambda item: turns.get(file_of(item.nodeid), len(turns)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """A worker takes a whole file, or everything that shares the Spark session."""
    from xdist.scheduler import LoadFileScheduling

    class BySession(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = file_of(nodeid)
            return "spark" if file in ON_SPARK else file

    return BySession(config, log)
