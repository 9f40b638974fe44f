"""What every folder of tests may use."""

from __future__ import annotations

import gc
import os
import sys

import hypothesis
import pytest

from logplayer.testing.orphans import end_with_this_process
from tests import ROOT
from tests.servers import QUICK_JAVA, mysql_url, postgres_url, redis_url
from tests.spark_session import spark
from tests.sync_layer import sync_layer, sync_library

__all__ = ["mysql_url", "postgres_url", "redis_url", "spark", "sync_layer", "sync_library"]

end_with_this_process()  # Also by SIGKILL: servers of a test run never outlive it.

# Hundreds of processes are started here. Whatever the user's environment says, each finds its modules compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.pycache_prefix = os.environ.setdefault("PYTHONPYCACHEPREFIX", str(ROOT / ".cache" / "pycache"))
sys.dont_write_bytecode = False

hypothesis.settings.register_profile("house", deadline=None)  # A machine that is busy is not a broken promise.
hypothesis.settings.load_profile("house")
# The hunt for mutants asks whether a test fails; to shrink the example that it fails with may take minutes.
_SHRINK = {hypothesis.Phase.shrink, hypothesis.Phase.explain}
hypothesis.settings.register_profile("hunt", deadline=None, phases=tuple(set(hypothesis.Phase) - _SHRINK))

# Spark's JVMs live for a minute or two here: the optimising compiler and parallel collection cost more than they give.
for _name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(_name, " ".join(QUICK_JAVA))


@pytest.fixture(scope="module")
def no_garbage() -> None:
    """For tests that parse source: a finalizer that runs inside ast.parse breaks it in Python 3.11."""
    gc.collect()


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
    "tests/spark/test_seen.py",
    "tests/spark/test_examples.py",
    "tests/spark/test_verbs.py",
    "tests/bench/test_results.py",
)
LONG = (
    *ON_SPARK,
    "tests/docs/test_documents.py",
    "tests/log/test_kafka.py",
    "tests/log/test_kit_nats.py",
    "tests/log/test_kit_etcd.py",
    "tests/spark/test_processes.py",
    "tests/spec/test_spec_trace.py",
    "tests/process/test_campaign.py",
    "tests/target/test_store_contract.py",
    "tests/sim/test_sim_hunt.py",
    "tests/mutants/test_mutants.py",
)
ALONE = ("tests/mutants/test_mutants.py", "tests/sim/test_sim_hunt.py")  # Each test of these may go to any worker.

# Why a file, folder or test is not part of the quick half; it may have several reasons. `pytest -m quick` is the rest.
MARKS = {
    "spark": (
        *("tests/spark/", "tests/bench/test_results.py", "tests/bench/test_rivals_spark.py"),
        "tests/bench/test_spark_bench.py",
    ),
    "servers": (
        *("tests/log/test_kafka.py", "tests/log/test_nats.py", "tests/log/test_kit_nats.py"),
        *("tests/log/test_etcd.py", "tests/log/test_kit_etcd.py", "tests/log/test_replicated.py"),
        "tests/log/test_etcd_rights.py",
        *("tests/log/test_standby.py", "tests/log/test_partition.py", "tests/log/test_cluster_security.py"),
        *("tests/log/test_cluster_cli.py", "tests/bench/test_rivals_kafka.py", "tests/bench/test_rivals_postgres.py"),
        *("tests/capture/test_capture_trouble.py", "tests/capture/test_standby.py"),
        *("tests/log/test_frozen_server.py", "tests/log/test_kafka_trims.py"),
    ),
    "mutants": ("tests/mutants/test_mutants.py", "tests/sim/test_sim_hunt.py"),
    "cluster": (
        *("tests/spark/test_standalone.py", "tests/spark/test_beyond_loopback.py", "tests/spark/test_connect.py"),
        "tests/spark/test_processes.py",
        "tests/spark/test_lease.py::test_receipts_and_delivery_through_kills_and_a_restart",
    ),
    "realtime": ("tests/spark/test_real_time",),
    "kits": (
        *("tests/log/test_kafka.py", "tests/log/test_kit_nats.py", "tests/log/test_kit_etcd.py"),
        *("tests/log/test_etcd_full.py::test_another_process_trims[closed]", "tests/contract/test_target_go.py"),
        "tests/log/test_etcd_full.py::test_another_process_trims[killed]",
        "tests/process/test_orphans.py::test_a_killed_run_leaves_no_brokers",
    ),
    "packaging": ("tests/packaging/test_wheel.py",),
    "bench": (
        *("tests/bench/test_ours.py", "tests/bench/test_bench_cli.py", "tests/bench/test_append_bench.py"),
        "tests/bench/test_http_bench.py",
        "tests/bench/test_chain_bench.py",
        *("tests/bench/test_rivals_kafka.py", "tests/bench/test_rivals_postgres.py"),
        *("tests/bench/test_log_bench.py", "tests/bench/test_spark_bench.py"),
    ),
    "browser": (
        "tests/admin/test_page.py",
        "tests/admin/test_page_shows.py",
        "tests/admin/test_page_many.py",
        "tests/admin/test_page_demo.py",
        "tests/admin/test_page_spark.py",
    ),
    "slow": (
        *("tests/bench/", "tests/demo/", "tests/docs/test_documents.py", "tests/packaging/", "tests/process/"),
        *("tests/api/test_prefork.py", "tests/api/test_sync.py", "tests/test_cli.py"),
        *("tests/log/test_server_hangs.py", "tests/log/test_log_security.py", "tests/target/test_tables.py"),
        *("tests/player/test_delivery.py", "tests/player/test_liar.py", "tests/player/test_stuck.py"),
        *("tests/player/test_security.py", "tests/admin/test_events.py"),
        *("tests/contract/", "tests/spec/", "tests/sim/test_sim_mutants.py", "tests/target/test_store_contract.py"),
        *("tests/log/test_crash_steps.py", "tests/log/test_kit_server.py", "tests/log/test_strangers.py"),
        *("tests/log/test_log_cli.py", "tests/target/test_target_cli.py", "tests/target/test_store_crash_steps.py"),
        *("tests/player/test_many.py", "tests/player/test_promises.py", "tests/player/test_start.py"),
        *("tests/sim/test_sim_replay.py", "tests/sim/test_sim_trace.py", "tests/test_exit_codes.py"),
    ),
}
SERVERS = {"mysql_url", "postgres_url", "redis_url", "nats_cluster", "etcd_cluster", "source_server"}  # They start one.


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def marks_of(item: pytest.Item) -> set[str]:
    """By where it is, and by the servers that it asks for."""
    found = {mark for mark, places in MARKS.items() if item.nodeid.startswith(places)}
    if SERVERS & set(getattr(item, "fixturenames", ())):
        found.add("servers")
    if item.get_closest_marker("soak") is None:
        found = found or {"quick"}
    return found


@pytest.hookimpl(tryfirst=True)  # Before -m chooses.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test, and let what takes longest begin first, so that the workers end together."""
    for item in items:
        for mark in marks_of(item):
            item.add_marker(mark)
    turns = {file: turn for turn, file in enumerate(LONG)}
    items.sort(key=lambda item: turns.get(file_of(item.nodeid), len(turns)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """A worker takes a whole file, everything that shares the Spark session, or one test that stands alone."""
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class BySession(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = file_of(nodeid)
            if file in ALONE:
                return nodeid
            return "spark" if file in ON_SPARK else file

    return BySession(config, log)
