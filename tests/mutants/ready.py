"""Many short runs of pytest from one process that has imported what they share, and forks.

To start Python and to import pytest, its plugins and other people's libraries takes more than most tests that catch a
mutant. Here it is done once. Nothing of this project is imported before the fork: each run imports the product from the
folder that it is given, and its own tests.

A request is a line of JSON on stdin, a :class:`Run`; the answer is a line with the exit code. :class:`Ready` is the
caller's side.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
from typing import NamedTuple

# What a missing one would cost is time: the run imports it then, or skips what needs it.
SHARED = (
    *("pytest", "_pytest.pytester", "_hypothesis_pytestplugin", "pytest_asyncio.plugin", "pytest_timeout"),
    *("anyio.pytest_plugin", "hypothesis.strategies", "hypothesis.stateful", "execnet", "pygments.lexers.python"),
    *("asyncio", "sqlite3", "ssl", "uuid", "xml.etree.ElementTree", "multiprocessing", "http.client", "unittest.mock"),
    *("click", "rich.console", "grpc.aio", "google.protobuf.json_format", "xxhash", "isal.isal_zlib", "h11", "uvloop"),
    *("starlette.applications", "uvicorn", "prometheus_client", "opentelemetry.trace", "opentelemetry.sdk.trace"),
    *("psycopg", "pymysql", "redis", "rocksdict", "nats", "confluent_kafka", "numpy"),
)
OURS = ("logplayer", "tests", "bench", "pyspark_logplayer")


class Run(NamedTuple):
    """One run of pytest."""

    words: list[str]
    environment: dict[str, str]
    source: str  # The folder that the product is imported from.
    output: str  # The file for stdout and stderr.
    seconds: float  # After this time it is killed.


class Ready:
    """The process that forks, as its caller has it."""

    def __init__(self) -> None:
        plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            env={**plain, "OPENBLAS_NUM_THREADS": "1"},  # Its threads would not survive a fork.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, run: Run) -> int:
        """The exit code of pytest; below 0 if a signal has ended it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(run._asdict()) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process that forks has ended; stderr says why"
        return int(answer)

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def import_shared() -> None:
    """Import what the runs share; forks must be safe afterwards."""
    for name in SHARED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    ours = [name for name in sys.modules if name.partition(".")[0] in OURS]
    assert not ours, f"imported before the fork, so no mutant of it would be seen: {ours}"
    assert len(os.listdir("/proc/self/task")) == 1, "a library has started a thread, and a fork would lose it"


def become(run: Run) -> int:
    """In the child: be a process that was started for this run."""
    os.environ.clear()
    os.environ.update(run.environment)
    sys.path.insert(0, run.source)
    output = os.open(run.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for fd, standard in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(fd, standard)
    os.close(output)
    os.close(nothing)
    sys.argv = ["pytest", *run.words]
    import pytest

    return int(pytest.main(run.words))


def wait(pid: int, seconds: float) -> int:
    """The exit code of the child; it is killed if it takes longer."""
    ended = os.pidfd_open(pid)
    if not select.select([ended], [], [], seconds)[0]:
        os.kill(pid, signal.SIGKILL)
    os.close(ended)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> int:
    """Serve until stdin ends; returns a second time in each child."""
    import_shared()
    gc.freeze()  # A collection in a child would copy every page.
    for line in sys.stdin.buffer:
        run = Run(**json.loads(line))
        pid = os.fork()
        if pid == 0:
            return become(run)
        print(wait(pid, run.seconds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
