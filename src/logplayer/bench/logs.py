"""The logs that the benchmark plays: a file log behind a log server, or three NATS servers that sync every write."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Protocol

from logplayer.demo.world import free_cluster_port
from logplayer.errors import LogUnavailable
from logplayer.log.cluster import Cluster

KINDS = ("nats", "file")


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


class FileHost:
    """Each log is a directory and a process ``logplayer log serve``."""

    kind = "file"

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._servers: dict[str, subprocess.Popen[str]] = {}
        self._made = 0

    def open(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lp-bench-")

    def fresh(self) -> str:
        assert self._folder is not None
        self._made += 1
        log = f"file://{self._folder.name}/log{self._made}"
        command = [sys.executable, "-m", "logplayer.cli", "log", "serve", "--log", log, "--listen", "127.0.0.1:0"]
        server = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert server.stdout is not None
        line = server.stdout.readline()
        if not line:
            raise LogUnavailable(f"the log server ended at its start (exit code {server.wait()})")
        address = str(json.loads(line)["address"])
        self._servers[address] = server
        return address

    def drop(self, address: str) -> None:
        server = self._servers.pop(address)
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()

    def close(self) -> None:
        for address in list(self._servers):
            self.drop(address)
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


class NatsHost:
    """Three real servers with ``sync_interval: always``; each log is a stream of three replicas."""

    kind = "nats"

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.cluster: Cluster
        self._made = 0

    def open(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lp-bench-")
        self.cluster = Cluster(Path(self._folder.name), free_cluster_port(), attached=True)
        self.cluster.up()

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


async def _make(address: str) -> None:
    from logplayer.log.address import open_log

    log = await open_log(address)
    await log.info()
    await log.close()


async def _delete(address: str) -> None:
    from logplayer.log.address import parse
    from logplayer.log.nats_log import NatsLog

    parsed = parse(address)
    log = await NatsLog.open(parsed.hosts, parsed.name)
    for stream in (log.link.stream, log.link.map_stream):
        await log.link.js.delete_stream(stream)
    await log.close()


def make_host(kind: str) -> FileHost | NatsHost:
    """The host for ``--log``."""
    return NatsHost() if kind == "nats" else FileHost()
