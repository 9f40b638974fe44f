"""Real Kafka brokers on this machine, as durable as the replicated log that they are measured against.

    DIR/b1/server.properties  broker.pid  broker.log  data/      and the same for b2 and b3

Each node is broker and controller (KRaft). A write is answered when at least two of three replicas have it, and every
replica syncs each batch before it goes on (``flush.messages=1``), the transaction and offset topics too. Everything
else is Kafka's default or chosen for a low delay.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any, NamedTuple

from bench.rivals.jars import JAVA_MIN, class_path, home
from logplayer.errors import LogUnavailable, UserError
from logplayer.java import find_java

DEFAULT_PORT = 19190
COUNT = 3
CONTROLLER_OFFSET = 50
START_SECONDS = 90.0
STOP_SECONDS = 20.0
SERVER_JAVA = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
"""As Kafka's own start script has it."""
_PR_SET_PDEATHSIG = 1

_CONFIG = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=BROKER://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=BROKER://127.0.0.1:{port}
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=BROKER
controller.listener.names=CONTROLLER
log.dirs={data}

# As durable as the replicated log: a majority has it on disk before the answer.
default.replication.factor={replicas}
min.insync.replicas={in_sync}
log.flush.interval.messages=1
offsets.topic.replication.factor={replicas}
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={in_sync}
unclean.leader.election.enable=false

# Our largest entry is 4 MiB.
message.max.bytes=6000000
replica.fetch.max.bytes=8000000
auto.create.topics.enable=false

# A small machine: few internal partitions, no waiting for group members.
offsets.topic.num.partitions=3
transaction.state.log.num.partitions=3
group.initial.rebalance.delay.ms=0
num.replica.fetchers=2
log.cleaner.dedupe.buffer.size=16777216
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr={in_sync}
"""


class BrokerStatus(NamedTuple):
    """One broker. ``ready`` when it takes connections of clients."""

    name: str
    port: int
    pid: int | None
    ready: bool
    frozen: bool = False


class Brokers:
    """The brokers of one directory. Blocking."""

    def __init__(
        self,
        directory: Path | None = None,
        port: int = DEFAULT_PORT,
        *,
        count: int = COUNT,
        heap_mb: int = 512,
        attached: bool = False,
        java_options: tuple[str, ...] = SERVER_JAVA,
        settings: str = "",
    ) -> None:
        self.directory = (directory or home() / "kafka" / "cluster").absolute()
        self.port = port
        self.count = count
        self._attached = attached  # The brokers die with this process, even if it is killed.
        self._settings = settings  # More lines for the configuration.
        self._java_options = (f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m", *java_options)

    @property
    def bootstrap(self) -> str:
        """What a client is given as ``bootstrap.servers``."""
        return ",".join(f"127.0.0.1:{self.port + node + 1}" for node in range(self.count))

    def folder(self, node: int) -> Path:
        return self.directory / f"b{node + 1}"

    def up(self) -> list[BrokerStatus]:
        """Start what does not run, and wait until every broker is known to the cluster."""
        self._prepare()
        self.resume()
        for node in range(self.count):
            if self.pid(node) is None:
                self.start(node)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._complete():
                return self.status()
            for node in range(self.count):
                if self.pid(node) is None:
                    raise LogUnavailable(f"broker b{node + 1} ended; {self._last_words(node)}")
            time.sleep(0.1)
        raise LogUnavailable(f"the brokers did not come up in {START_SECONDS:.0f} s; see {self.folder(0)}/broker.log")

    def start(self, node: int) -> None:
        """Start one broker."""
        for port in self._ports(node):
            _require_free(port)
        folder = self.folder(node)
        command = [*self._java(*self._java_options), "kafka.Kafka", str(folder / "server.properties")]
        with open(folder / "broker.log", "ab") as log:
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=folder,
                start_new_session=True,
                preexec_fn=_die_with_parent if self._attached else None,
            )
        (folder / "broker.pid").write_text(str(process.pid))

    def down(self) -> int:
        """Stop all brokers; the number that ran. Their data stays."""
        self.resume()
        running = self._signal(signal.SIGTERM)
        for node in running:
            self.kill(node, signal.SIGTERM)
        return len(running)

    def pause(self) -> None:
        """Freeze them: they take nothing from the others then, and stay as compiled as they are. ``up`` thaws them."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Thaw them, without waiting until they are ready."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> list[int]:
        """Send a signal to every broker that runs; their nodes."""
        running = []
        for node in range(self.count):
            pid = self.pid(node)
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                    running.append(node)
        return running

    def kill(self, node: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to one broker and wait until it is gone."""
        pid = self.pid(node)
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + STOP_SECONDS
        while self.pid(node) is not None:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)  # Without its peers a controller waits for long.
            time.sleep(0.02)

    def pid(self, node: int) -> int | None:
        """The process of a node, if it runs and is really ours."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.folder(node) / "broker.pid").read_text())
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # Our own dead child would look alive.
            state = _state(pid)
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if state != "Z" and (not command or str(self.folder(node)).encode() in command):
                return pid  # No command line yet: it starts in this moment.
        return None

    def status(self) -> list[BrokerStatus]:
        return [self._status(node) for node in range(self.count)]

    def compiling_seconds(self) -> float:
        """What the brokers' just-in-time compilers have used of the processors so far."""
        return sum(_compiling_ticks(pid) for pid in map(self.pid, range(self.count)) if pid) / os.sysconf("SC_CLK_TCK")

    def _status(self, node: int) -> BrokerStatus:
        pid, port = self.pid(node), self.port + node + 1
        frozen = pid is not None and _state(pid) == "T"
        ready = pid is not None and not frozen and _listens(port)
        return BrokerStatus(f"b{node + 1}", port, pid, ready, frozen)

    def _complete(self) -> bool:
        """Whether every broker is up and every replica in sync."""
        return all(status.ready for status in self.status()) and _in_sync(self.bootstrap, self.count)

    def _prepare(self) -> None:
        """Configurations and formatted directories, made once; they may then be changed by hand."""
        kept = self.directory / "cluster.json"
        wanted = {"port": self.port, "count": self.count}
        if kept.exists():
            made = json.loads(kept.read_text())
            if made != wanted:
                raise UserError(
                    f"the brokers in {self.directory} were made with {made}, not {wanted}: remove that folder"
                )
            return
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
        formatting = []
        for node in range(self.count):
            folder = self.folder(node)
            folder.mkdir(parents=True, exist_ok=True)
            config = folder / "server.properties"
            config.write_text(self._config(node))
            command = [*self._java("-XX:TieredStopAtLevel=1"), "kafka.tools.StorageTool", "format"]
            command += ["--ignore-formatted", "-t", identity, "-c", str(config)]
            formatting.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        for process in formatting:
            said, _ = process.communicate(timeout=START_SECONDS)
            if process.returncode:
                raise UserError(f"Kafka could not format {self.directory}: {said.strip()[-300:]}")
        kept.write_text(json.dumps(wanted))

    def _config(self, node: int) -> str:
        voters = (f"{n + 1}@127.0.0.1:{self._ports(n)[1]}" for n in range(self.count))
        port, controller = self._ports(node)
        return (
            _CONFIG.format(
                node=node + 1,
                voters=",".join(voters),
                port=port,
                controller=controller,
                data=self.folder(node) / "data",
                replicas=self.count,
                in_sync=in_sync(self.count),
            ).rstrip()
            + f"\n{self._settings}\n"
        )

    def _ports(self, node: int) -> tuple[int, int]:
        return self.port + node + 1, self.port + node + 1 + CONTROLLER_OFFSET

    def _java(self, *options: str) -> list[str]:
        java = find_java(JAVA_MIN)
        quiet = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Djava.awt.headless=true")
        return [str(java.path), *options, *quiet, "-cp", class_path("kafka")]

    def _last_words(self, node: int) -> str:
        log = self.folder(node) / "broker.log"
        lines = log.read_text(errors="replace").strip().splitlines()
        telling = [line for line in lines if "ERROR" in line or "Exception" in line or "Error:" in line] or lines[-1:]
        return f"its log {log} says: {(telling or ['nothing'])[-1][:300]}"


def in_sync(count: int) -> int:
    """How many replicas must have a write before it is answered: a majority."""
    return count // 2 + 1


def _in_sync(bootstrap: str, count: int) -> bool:
    """Whether the cluster knows of so many brokers and no partition lacks a replica."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    quiet: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": lambda error: None}
    try:
        found = AdminClient(quiet).list_topics(timeout=5)
    except KafkaException:
        return False
    partitions = [partition for topic in found.topics.values() for partition in topic.partitions.values()]
    return len(found.brokers) == count and all(len(p.isrs) == len(p.replicas) for p in partitions)


def _compiling_ticks(pid: int) -> int:
    ticks = 0
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # A thread may end meanwhile.
            name, _, fields = stat.read_text().partition("(")[2].rpartition(")")
            if name.startswith(("C1 Compiler", "C2 Compiler")):
                ticks += sum(map(int, fields.split()[11:13]))
    return ticks


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _require_free(port: int, patience_seconds: float = 15.0) -> None:
    """A killed broker's threads may hold its ports for a moment longer than it seems to live."""
    deadline = time.monotonic() + patience_seconds
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return
            except OSError as error:
                if time.monotonic() >= deadline:
                    text = f"port {port} cannot be used ({error.strerror}); choose others with --port"
                    raise UserError(text) from None
        time.sleep(0.05)
