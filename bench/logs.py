"""The logs that the benchmark plays: a file log with a log server, or three NATS or etcd servers that sync."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Protocol

from logplayer.errors import LogUnavailable
from logplayer.log.etcd.local_cluster import EtcdCluster, free_etcd_port
from logplayer.log.local_cluster import LocalCluster
from logplayer.log.nats.local_cluster import Cluster, free_cluster_port

KINDS = ("nats", "etcd", "file")


class LogHost(Protocol):
    """Makes fresh logs."""

    kind: str

    def open(self) -> None:
        """Start the servers."""

    def fresh(self) -> str:
        """The address of a new, empty log."""

    def drop(self, address: str) -> None:
        """Forget a log and its disk space."""

    def close(self) -> None:
        """Stop everything; safe to call twice."""


class LogServers:
    """Processes ``logplayer log serve``, by the address that they serve at."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[str]] = {}

    def start(self, log: str) -> str:
        command = [sys.executable, "-m", "logplayer.cli", "log", "serve", "--log", log, "--listen", "127.0.0.1:0"]
        server = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert server.stdout is not None
        line = server.stdout.readline()
        if not line:
            raise LogUnavailable(f"the log server ended at its start (exit code {server.wait()})")
        address = str(json.loads(line)["address"])
        self._running[address] = server
        return address

    def stop(self, address: str) -> None:
        server = self._running.pop(address)
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()

    def stop_all(self) -> None:
        for address in list(self._running):
            self.stop(address)


class FileHost:
    """Each log is a directory that a log server serves."""

    kind = "file"

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._servers = LogServers()
        self._made = 0

    def open(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lp-bench-")

    def fresh(self) -> str:
        assert self._folder is not None
        self._made += 1
        return self._servers.start(f"file://{self._folder.name}/log{self._made}")

    def drop(self, address: str) -> None:
        self._servers.stop(address)

    def close(self) -> None:
        self._servers.stop_all()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


class NatsHost:
    """Three real servers with ``sync_interval: always``; each log is a stream of three replicas."""

    kind = "nats"

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.cluster: LocalCluster
        self._made = 0

    def open(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lp-bench-")
        self.cluster = self._cluster(Path(self._folder.name))
        self.cluster.up()

    def _cluster(self, folder: Path) -> LocalCluster:
        return Cluster(folder, free_cluster_port(), attached=True)

    def fresh(self) -> str:
        self._made += 1
        address = self.cluster.address(f"bench{self._made}")
        asyncio.run(_make(address))
        return address

    def drop(self, address: str) -> None:
        asyncio.run(_delete(address))

    def close(self) -> None:
        if self._folder is not None:
            self.cluster.down()
            self._folder.cleanup()
            self._folder = None


class EtcdHost(NatsHost):
    """Three real etcd servers. A log is left in them until they end."""

    kind = "etcd"

    def _cluster(self, folder: Path) -> LocalCluster:
        return EtcdCluster(folder, free_etcd_port(), attached=True)

    def drop(self, address: str) -> None:
        pass


class ServedHost(NatsHost):
    """The same with a log server, which is then the only writer: for several applications, and for a player that
    takes over while they write."""

    kind = "served"

    def __init__(self) -> None:
        super().__init__()
        self._servers = LogServers()
        self.behind: dict[str, str] = {}  # The log that each server serves.

    def fresh(self) -> str:
        log = super().fresh()
        address = self._servers.start(log)
        self.behind[address] = log
        return address

    def drop(self, address: str) -> None:
        self._servers.stop(address)
        super().drop(self.behind.pop(address))

    def close(self) -> None:
        self._servers.stop_all()
        super().close()


async def _make(address: str) -> None:
    from logplayer.log.open import open_log

    log = await open_log(address)
    await log.info()
    await log.close()


async def _delete(address: str) -> None:
    from logplayer.log.nats.log import NatsLog
    from logplayer.log.open import parse

    parsed = parse(address)
    log = await NatsLog.open(parsed.hosts, parsed.name)
    for stream in (log.link.stream, log.link.map_stream):
        await log.link.js.delete_stream(stream)
    await log.close()


def make_host(kind: str) -> FileHost | NatsHost:
    """The host for ``--log``, and ``served`` for NATS with a log server."""
    hosts: dict[str, type[FileHost] | type[NatsHost]] = {
        "file": FileHost,
        "nats": NatsHost,
        "etcd": EtcdHost,
        "served": ServedHost,
    }
    return hosts[kind]()
