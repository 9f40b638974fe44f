"""A standalone Spark cluster: a master, and workers that have a network namespace and an address of their own.

Runs inside a namespace of its own (tests/namespaces.py): :data:`HOST` is this machine, with the master, the drivers,
the log and the targets; each worker is another machine on the network 10.77.0.0/24. Everything shares the file system
and the process ids, so a process is killed by its number.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.namespaces import HOST
from tests.servers import QUICK_JAVA, Authority
from tests.spark.entries import TOKEN
from tests.spark.spark_support import until

PORT = 7077
IDLE_SECONDS = 50.0
PASSED = ("PATH", "HOME", "JAVA_HOME", "PYTHONPYCACHEPREFIX")  # Executors get nothing else from the environment.
MASTER = f"spark://{HOST}:{PORT}"
EXECUTOR, WORKER = "org.apache.spark.executor.CoarseGrainedExecutorBackend", "org.apache.spark.deploy.worker.Worker"

LOG4J = """rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""  # With milliseconds: a recovery is told by them, step by step.


def prepare(folder: Path) -> None:
    """The certificates and the token of the log, the targets and the drivers; outside of the namespace."""
    authority = Authority(folder)
    authority.issue("server", f"IP:{HOST},DNS:log,DNS:shard-a,DNS:shard-b")
    for name in ("client", "driver"):
        authority.issue(name, f"IP:{HOST}")
    (folder / "token").write_text(TOKEN + "\n")


def words_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def above(pid: int, main_class: str) -> int:
    """The process with this main class that ``pid`` descends from; 0 if there is none."""
    while pid > 1 and main_class not in words_of(pid):
        pid = parent(pid)
    return pid if pid > 1 else 0


def age(pid: int) -> float:
    """For how many seconds it has lived; 0 if it does not."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def kill(pid: int) -> bool:
    """Whether there was something to kill."""
    with contextlib.suppress(ProcessLookupError):
        if pid > 1:
            os.kill(pid, signal.SIGKILL)
            return True
    return False


class Cluster:
    """The daemons. Use as a context: they are killed at its end."""

    def __init__(self, folder: Path, workers: int = 2, cores: int = 4, host: str = HOST) -> None:
        """``host`` is the master's name in its address, if /etc/hosts has one."""
        import pyspark

        from logplayer.spark.session import prepare_java

        prepare_java(quiet=True)
        self.folder, self.cores = folder, cores
        self._host, self.master = host, f"spark://{host}:{PORT}"
        self._home = Path(pyspark.__file__).parent
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.workers = [f"10.77.0.{11 + n}" for n in range(workers)]

    def __enter__(self) -> Cluster:
        with contextlib.suppress(OSError):  # Where it cannot be set, executors do not reach each other.
            Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        self._start("master", "org.apache.spark.deploy.master.Master", "--host", self._host, "--port", str(PORT))
        until(lambda: f"Starting Spark master at {self.master}" in self.output("master"))
        for address in self.workers:
            self.start_worker(address)
        until(lambda: self.output("master").count("Registering worker") >= len(self.workers))
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in self._daemons.values():
            kill(daemon.pid)
            daemon.wait()

    def output(self, name: str) -> str:
        return (self.folder / f"{name}.out").read_text()

    def start_worker(self, address: str) -> None:
        """Start the machine's daemon; again, if it was killed."""
        link = "w" + address.rpartition(".")[2]
        network = (
            "while ! ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done; ip link set lo up; "
            f"ip addr add {address}/32 dev eth0; ip link set eth0 up; ip route add {HOST}/32 dev eth0; "
            f'ip route add default via {HOST}; exec "$@"'
        )
        options = ("--host", address, "--cores", str(self.cores), "--memory", "3g", "-d", str(self.folder / address))
        within = ("unshare", "--net", "sh", "-c", network, "sh")
        daemon = self._start(address, WORKER, *options, self.master, within=within)
        here = os.readlink("/proc/self/ns/net")
        until(lambda: os.readlink(f"/proc/{daemon.pid}/ns/net") != here)  # unshare has made the namespace.
        # What still runs on the machine that was here before is cut off: it is gone.
        subprocess.run(["ip", "link", "del", link], capture_output=True, check=False)
        for command in (
            f"ip link add {link} type veth peer name eth0 netns {daemon.pid}",
            f"ip link set {link} up",
            f"ip route replace {address}/32 dev {link} src {HOST}",
        ):
            subprocess.run(command.split(), check=True)

    def address_of(self, pid: int) -> str:
        """Where the process ``pid`` runs."""
        daemon = above(pid, WORKER)
        return next((name for name, process in self._daemons.items() if process.pid == daemon), "")

    def settled(self) -> bool:
        """Whether every executor has run a Python task: the groups of a lost one start there by a fork."""
        parents = {int(name): parent(int(name)) for name in os.listdir("/proc") if name.isdigit()}
        running = {pid for pid in parents if EXECUTOR in words_of(pid) and self.address_of(pid)}
        forkers = {pid for pid, above_it in parents.items() if above_it in running}
        # A worker that has had nothing to do for a minute is ended; its daemon stays.
        ready = {pid for pid in forkers if pid in parents.values() or age(pid) > IDLE_SECONDS}
        return bool(running) and running == {parents[pid] for pid in ready}

    def kill_worker(self, address: str) -> None:
        """Kill the machine's Worker daemon."""
        kill(self._daemons[address].pid)
        self._daemons[address].wait()

    def retire_worker(self, address: str) -> None:
        """Ask the machine's Worker daemon to leave, and wait until the master knows."""
        before = self.output("master").count("Decommissioning worker")
        os.kill(self._daemons[address].pid, signal.SIGPWR)
        until(lambda: self.output("master").count("Decommissioning worker") > before)

    def _start(
        self, name: str, main_class: str, *options: str, within: tuple[str, ...] = ()
    ) -> subprocess.Popen[bytes]:
        environment = {
            **{name: os.environ[name] for name in PASSED if name in os.environ},
            "SPARK_HOME": str(self._home),
            "SPARK_CONF_DIR": str(self.folder / "daemons"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join(QUICK_JAVA),
            "PYSPARK_PYTHON": sys.executable,
        }
        (self.folder / "daemons").mkdir(exist_ok=True)
        # Executors that are killed again and again must not end their application; Workers may be asked to leave.
        settings = "spark.deploy.maxExecutorRetries -1\nspark.decommission.enabled true\n"
        (self.folder / "daemons" / "spark-defaults.conf").write_text(settings)
        (self.folder / "daemons" / "log4j2.properties").write_text(LOG4J)
        with (self.folder / f"{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                [*within, str(self._home / "bin" / "spark-class"), main_class, *options],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        return self._daemons[name]
