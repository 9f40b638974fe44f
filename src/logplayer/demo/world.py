"""The demo's world: a log, shards, a player, and everything that is done to them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logplayer.admin.http_client import ask
from logplayer.demo.journal import install
from logplayer.demo.processes import DemoProcess, Family, descendants
from logplayer.errors import LogPlayerError
from logplayer.log.nats.local_cluster import free_cluster_port

Narrate = Callable[[str], None]
_GIVEN: set[int] = set()  # A port is free until its process listens; two must not get the same one.


@dataclass(slots=True)
class World:
    """Everything that runs."""

    family: Family
    engine: str
    log: str = ""
    http: str = ""
    shards: dict[str, DemoProcess] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    watch_addresses: dict[str, str] = field(default_factory=dict)
    player: DemoProcess | None = None

    def path(self, shard: str) -> Path:
        return self.family.folder / f"{shard}.db"

    def start_log(self, kind: str) -> None:
        """A file log with a log server, or three NATS servers with a replicated log."""
        folder = self.family.folder
        source = f"file://{folder}/log"
        if kind == "nats":
            where = ("--dir", str(folder / "nats"), "--port", str(free_cluster_port()))
            cluster = self.family.add("cluster", "cluster", "up", *where, "--foreground")
            source = cluster.wait_for(r"(nats://\S+)").group(1)
        server = self.family.add("log", "log", "serve", "--log", source, "--listen", "127.0.0.1:0")
        self.log = server.wait_for(r"(grpc://[\d.]+:\d+)").group(1)

    def start_shards(self, count: int) -> None:
        """SQLite shards, each a process of its own with a witness in its database."""
        for number in range(1, count + 1):
            name = f"shard{number}"
            grpc_port, tcp_port = free_ports(2)
            listen = ("--listen", f"127.0.0.1:{grpc_port}", "--listen-tcp", f"127.0.0.1:{tcp_port}")
            store = ("--store", "sqlite", "--path", str(self.path(name)), "--id", name)
            self.shards[name] = self.family.add(name, "target", "serve", *store, *listen)
            self.addresses[name] = f"grpc://127.0.0.1:{grpc_port}"
            self.watch_addresses[name] = f"tcp://127.0.0.1:{tcp_port}"
        for name, child in self.shards.items():
            child.wait_for(r"listens at")
            install(self.path(name))

    def start_player(self) -> None:
        """The resident player, on Spark or in a process of its own."""
        [port] = free_ports(1)
        self.http = f"127.0.0.1:{port}"
        engine = ("--in-process",) if self.engine == "in-process" else ()
        self.player = self.family.add("player", "play", *engine, "--http", self.http, *self._play_options())
        self.player.wait_for(r"playing")

    def _play_options(self) -> list[str]:
        options = ["--log", self.log]
        for name, address in self.addresses.items():
            options += ["--target", f"{name}={address}"]
        return options

    async def ask_player(self) -> dict[str, Any] | None:
        """The player's status, or None while it is away."""
        try:
            answer: dict[str, Any] = await ask(self.http, "/status", timeout=2.0)
        except LogPlayerError:
            return None
        return answer

    def keep_player(self) -> bool:
        """Start the player again if it has ended; returns whether it had."""
        if self.player is None or self.player.running:
            return False
        self.player.start()
        return True

    def audit(self) -> tuple[bool, str]:
        """``logplayer audit`` over all shards, once the player has ended; whether all is right, and what it says."""
        if self.player is not None:
            self.player.stop()
        stores = [word for name in self.shards for word in ("--store", f"{name}=sqlite:{self.path(name)}")]
        auditor = self.family.add("audit", "audit", "--log", self.log, *stores)
        code = auditor.wait_for_end()
        said = auditor.output.read_text(errors="replace").splitlines()
        return code == 0, "\n".join(line for line in said if line.startswith(("shard", "  ", "logplayer:")))

    # --- What is done to them ---

    async def kill_shard(self, name: str, say: Narrate) -> None:
        """``kill -9``, two seconds of nothing, and back."""
        self.shards[name].kill()
        say(f"killed {name} (kill -9)")
        await asyncio.sleep(2.0)
        self.shards[name].start()
        say(f"{name} is back")

    async def freeze_shard(self, name: str, say: Narrate) -> None:
        """SIGSTOP: the process lives, the connection stays open, and nothing answers."""
        self.shards[name].signal(signal.SIGSTOP)
        say(f"froze {name} (SIGSTOP)")
        await asyncio.sleep(6.0)
        self.shards[name].signal(signal.SIGCONT)
        say(f"{name} goes on")

    async def kill_player(self, say: Narrate) -> None:
        """The player's Spark task loses its Python worker; a player of its own loses its process."""
        if self.player is None:
            return
        workers = [pid for pid, line in descendants(self.player.pid) if "pyspark.daemon" in line]
        if self.engine == "spark" and workers:
            os.kill(workers[-1], signal.SIGKILL)  # The youngest: a worker, not the daemon that forks them.
            say("killed the Python worker of the player's task")
            return
        self.player.kill()
        say("killed the player (kill -9)")
        self.player.start()

    async def second_player(self, say: Narrate) -> None:
        """A second player takes over while the first lives, and leaves again."""
        [port] = free_ports(1)
        options = ["play", "--in-process", "--take-over", "--http", f"127.0.0.1:{port}", *self._play_options()]
        second = self.family.add("second-player", *options)
        second.wait_for(r"took over")
        say("a second player took over while the first lives")
        await asyncio.sleep(3.0)
        second.stop()
        say("the second player left")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at now, below those that the system gives to outgoing connections."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(26_100, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            if port not in _GIVEN:
                found.append(port)
                _GIVEN.add(port)
    return found
