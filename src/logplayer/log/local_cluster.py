"""Three real servers of one engine on this machine, for trying a replicated log and for tests.

    DIR/n1/  n2/  n3/     each with its server's process id, output and data
    DIR/cluster.json      which engine, and the first port

Node i listens on port + i for clients, and on other ports at fixed offsets from it, all on the loopback.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NamedTuple

from logplayer.errors import LogUnavailable, Unavailable, UserError
from logplayer.fsync import make_private_directory
from logplayer.wire.listening import cannot_listen

NODES = 3
START_SECONDS = 180.0  # Elections are slow where the disk or the processors are busy.
NOTICE_SECONDS = 10.0  # Then a line says what is being waited for.
KEPT = "cluster.json"
_PR_SET_PDEATHSIG = 1


def free_ports(bases: tuple[int, ...], lane: int = 0) -> int:
    """The first port of a cluster whose ports, at these offsets, are all free now.

    A port is free until its server listens: tests that start clusters side by side take different lanes
    (0, 1 or 2), which have no port in common.
    """
    offsets = [base + node for base in bases for node in range(NODES)]
    for _ in range(100):
        port = random.randrange(11_000, 22_000, 10) + lane * NODES
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for offset in offsets:
                stack.enter_context(socket.create_server(("127.0.0.1", port + offset)))
            return port
    raise Unavailable("no free ports for three servers were found; use --log file")


class NodeStatus(NamedTuple):
    """One server as it describes itself; ``syncs`` is None when it does not answer."""

    name: str
    port: int
    pid: int | None
    syncs: bool | None
    version: str
    ready: bool


class LocalCluster:
    """The three servers of one directory. Blocking; commands and tests use it, the log itself does not."""

    engine: ClassVar[str]
    default_port: ClassVar[int]
    offsets: ClassVar[tuple[int, ...]]
    """Of a node's ports from its first one, which is 0."""

    def __init__(self, directory: Path, port: int = 0, *, attached: bool = False) -> None:
        self.directory = directory.absolute()
        self.port = port or self.default_port
        self._attached = attached  # The servers die with this process, even if it is killed.

    @classmethod
    def find_server(cls) -> str:
        """The server's program; raises UserError if there is none, or only one that is too old."""
        raise NotImplementedError

    def command(self, node: int, server: str) -> list[str]:
        """How to start a server; its folder is there, and must be named in it."""
        raise NotImplementedError

    def status_of(self, node: int) -> NodeStatus:
        raise NotImplementedError

    def refuse(self, found: list[NodeStatus]) -> None:
        """Stop the servers and raise UserError if one of them would lose what it acknowledges."""

    def address(self, log: str) -> str:
        """The address of a log on this cluster."""
        return f"{self.engine}://{','.join(self.hosts)}/{log}"

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(f"127.0.0.1:{self.port + node}" for node in range(NODES))

    def folder(self, node: int) -> Path:
        return self.directory / f"n{node + 1}"

    def output(self, node: int) -> Path:
        """What the server says."""
        return self.folder(node) / f"{self.engine}.log"

    def up(self, notice: Callable[[str], None] = lambda line: None) -> list[NodeStatus]:
        """Start what does not run, and wait until the cluster takes writes; ``notice`` hears of a long wait."""
        server = self.find_server()
        self._keep()
        for node in range(NODES):
            if self.pid(node) is None:
                self.start(node, server)
        began = noticed = time.monotonic()
        while time.monotonic() < began + START_SECONDS:
            found = self.status()
            self.refuse(found)
            waiting = [status.name for status in found if not status.ready]
            if not waiting:
                return found
            if time.monotonic() > noticed + NOTICE_SECONDS:
                noticed = time.monotonic()
                notice(f"waiting for {', '.join(waiting)} since {noticed - began:.0f} s; see {self.output(0)}")
            for node in range(NODES):
                if self.pid(node) is None:
                    last = self.output(node).read_text().strip().splitlines()[-1:] or ["nothing"]
                    raise LogUnavailable(f"server n{node + 1} ended; its log {self.output(node)} says: {last[0]}")
            time.sleep(0.05)
        raise LogUnavailable(f"the cluster did not come up in {START_SECONDS:.0f} s; see {self.output(0)}")

    def _keep(self) -> None:
        """Note what the directory is for; another engine or port in it is a mistake."""
        make_private_directory(self.directory)
        kept = self.directory / KEPT
        if kept.exists():
            engine, port = read_kept(self.directory)
            if (engine, port) != (self.engine, self.port):
                raise UserError(f"the cluster in {self.directory} was made with --engine {engine} --port {port}")
        kept.write_text(json.dumps({"engine": self.engine, "port": self.port}))

    def start(self, node: int, server: str | None = None) -> None:
        """Start one server."""
        folder = self.folder(node)
        make_private_directory(folder)
        for offset in self.offsets:
            _require_free(self.port + node + offset)
        with open(self.output(node), "ab") as log:
            process = subprocess.Popen(
                self.command(node, server or self.find_server()),
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent if self._attached else None,
            )
        self._pid_file(node).write_text(str(process.pid))

    def _pid_file(self, node: int) -> Path:
        return self.folder(node) / f"{self.engine}.pid"

    def pid(self, node: int) -> int | None:
        """The process of a node, if it runs and is really ours."""
        with contextlib.suppress(OSError, ValueError):
            pid = int(self._pid_file(node).read_text())
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # Our own dead child would look alive.
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if state != "Z" and (not command or str(self.folder(node)).encode() in command):
                return pid  # No command line yet: it starts in this moment.
        return None

    def kill(self, node: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to one server and wait until it is gone."""
        pid = self.pid(node)
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + 15
        while self.pid(node) is not None:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def down(self) -> int:
        """Stop all servers; the number that ran. Their data stays."""
        running = [node for node in range(NODES) if self.pid(node) is not None]
        for node in running:
            pid = self.pid(node)
            if pid is not None:
                os.kill(pid, signal.SIGTERM)
        for node in running:
            self.kill(node, signal.SIGTERM)
        return len(running)

    def status(self) -> list[NodeStatus]:
        return [self.status_of(node) for node in range(NODES)]


def read_kept(directory: Path) -> tuple[str, int]:
    """Engine and port of the cluster that was made in ``directory``."""
    kept = directory / KEPT
    if not kept.exists():
        raise UserError(f"there is no cluster in {directory}; start one with `logplayer cluster up`")
    found = json.loads(kept.read_text())
    return found.get("engine", "nats"), found["port"]


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _require_free(port: int, patience_seconds: float = 2.0) -> None:
    """A killed server's threads may hold its ports for a moment longer than it seems to live."""
    deadline = time.monotonic() + patience_seconds
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return
            except OSError as error:
                if time.monotonic() >= deadline:
                    raise cannot_listen("127.0.0.1", port, "--port", error) from None
        time.sleep(0.05)
