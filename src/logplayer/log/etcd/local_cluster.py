"""Three real etcd servers on this machine, set up as the replicated log needs them.

Besides its client port a node listens on port + 2000 for its peers. The data of a node is in its folder. Options are
given on the command line; ``etcd.options`` in a node's folder may hold more of them, one on a line, which win.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import urllib.request
from pathlib import Path

from logplayer.errors import UserError
from logplayer.log.etcd.version import refuse_old, version_of
from logplayer.log.local_cluster import NODES, LocalCluster, NodeStatus, free_ports

PEER_OFFSET = 2000
SERVER = "LOGPLAYER_ETCD"
"""The environment variable that names the program, if it is not the one on the PATH."""
REQUEST_BYTES_MAX = 24 * 1024 * 1024  # Above the largest group; etcd's own default is 1.5 MiB.


def free_etcd_port(lane: int = 0) -> int:
    """The first port of a cluster whose six are free now; see ``free_ports``."""
    return free_ports(EtcdCluster.offsets, lane)


class EtcdCluster(LocalCluster):
    """Three etcd servers."""

    engine = "etcd"
    default_port = 2379
    offsets = (0, PEER_OFFSET)
    options: tuple[str, ...] = ()
    """For tests: more options of every server."""
    scheme = "http"

    @classmethod
    def find_server(cls) -> str:
        found = os.environ.get(SERVER) or shutil.which("etcd")
        if not found or not Path(found).exists():
            raise UserError(
                f"no etcd program found; install one, for example Debian's etcd-server, or name it in {SERVER}"
            )
        refuse_old(found, program_version(found))
        return found

    def command(self, node: int, server: str) -> list[str]:
        client, peer = (f"{self.scheme}://127.0.0.1:{self.port + node}", self._peer(node))
        members = ",".join(f"n{i + 1}={self._peer(i)}" for i in range(NODES))
        options = {
            "name": f"n{node + 1}",
            "data-dir": str(self.folder(node) / "data"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": members,
            "initial-cluster-token": f"logplayer-{self.port}",
            "heartbeat-interval": "50",
            "election-timeout": "500",
            "pre-vote": "true",  # A member that comes back does not end a leader that does its work.
            "quota-backend-bytes": str(8 * 1024**3),
            "max-request-bytes": str(REQUEST_BYTES_MAX),
            "snapshot-count": "1000",  # Commits that every member keeps in memory.
            "logger": "zap",
            "log-level": "warn",
        }
        if version_of(program_version(server)) >= (3, 6):
            options["snapshot-catchup-entries"] = "500"
        more = self.folder(node) / "etcd.options"
        lines = more.read_text().split("\n") if more.exists() else []
        for line in (*self.options, *lines):
            name, _, value = line.strip().removeprefix("--").partition("=")
            if name:
                options[name] = value
        return [server, *(f"--{name}={value}" for name, value in options.items())]

    def _peer(self, node: int) -> str:
        return f"http://127.0.0.1:{self.port + node + PEER_OFFSET}"

    def status_of(self, node: int) -> NodeStatus:
        """etcd syncs before it answers, unless an option on its command line says otherwise."""
        port, pid = self.port + node, self.pid(node)
        syncs, version, ready = None, "", False
        if pid is not None:
            with contextlib.suppress(OSError):
                syncs = b"unsafe-no-fsync=true" not in Path(f"/proc/{pid}/cmdline").read_bytes()
            version = str(_ask(port, "version").get("etcdserver", ""))
            ready = bool(version) and _ask(port, "health").get("health") == "true"
        return NodeStatus(f"n{node + 1}", port, pid, syncs, version, ready)

    def refuse(self, found: list[NodeStatus]) -> None:
        for status in found:
            if status.syncs is False:
                self.down()
                raise UserError(
                    f"server {status.name} would lose acknowledged entries in a power cut; remove unsafe-no-fsync from "
                    f"{self.directory / status.name / 'etcd.options'} and start it again"
                )


def program_version(server: str) -> str:
    said = subprocess.run([server, "--version"], capture_output=True, text=True).stdout
    return said.partition("\n")[0].rpartition(" ")[2]


def _ask(port: int, path: str) -> dict[str, str]:
    with (
        contextlib.suppress(OSError, ValueError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=2) as reply,
    ):
        found = json.loads(reply.read())
        return found if isinstance(found, dict) else {}
    return {}
