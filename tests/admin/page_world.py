"""Real processes behind a page: a log server, SQLite targets, and a player with an operator's token."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

from logplayer.demo.processes import Family
from logplayer.demo.world import World, free_ports

OPERATOR = "0perator"


class PageWorld:
    """Inside the block everything runs."""

    def __init__(self, folder: Path, shards: int, *engine: str) -> None:
        self.folder = folder
        self._family = Family(folder)
        self.world = World(self._family, "in-process")
        self._shards = shards
        self._engine = engine or ("--in-process",)
        self._sequence = 0

    def __enter__(self) -> PageWorld:
        (self.folder / "operator").write_text(OPERATOR)
        self.world.start_log("file")
        self.world.start_shards(self._shards)
        targets = [word for name, at in self.world.addresses.items() for word in ("--target", f"{name}={at}")]
        [port] = free_ports(1)  # The same after a restart.
        self.http = f"127.0.0.1:{port}"
        secure = ("--operator-token-file", str(self.folder / "operator"), "--http", self.http, "--json")
        self.player = self._family.add("player", "play", *self._engine, "--log", self.world.log, *targets, *secure)
        self.player.wait_for(r'"event": "playing"')
        return self

    def __exit__(self, *error: object) -> None:
        self._family.__exit__(*error)

    @property
    def url(self) -> str:
        return f"http://{self.http}/"

    def append(self, count: int, value: str = "v", key: str = "") -> int:
        """Append transactions over the command line; the last index."""
        lines = []
        for _ in range(count):
            self._sequence += 1
            changes = [{"key": key or f"k{self._sequence}", "value": value}]
            lines.append(json.dumps({"producer": "web-1", "sequence": self._sequence, "mutations": changes}))
        said = self.cli("log", "append", "--log", self.world.log, "--json", stdin="\n".join(lines) + "\n")
        return int(json.loads(said.strip().splitlines()[-1])["index"])

    def cli(self, *words: str, stdin: str = "", code: int = 0) -> str:
        """Run a command; what it printed."""
        command = [sys.executable, "-m", "logplayer.cli", *words]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout

    def refuse(self, shard: str, value: str) -> None:
        """From now on the shard's database takes no row with this value."""
        with sqlite3.connect(self.world.path(shard), timeout=60) as db:
            rule = f"new.value = x'{value.encode().hex()}' BEGIN SELECT raise(ABORT, 'no such account'); END"
            db.execute(f"CREATE TRIGGER refused BEFORE INSERT ON data WHEN {rule}")
        db.close()

    def accept(self, shard: str) -> None:
        """The rule goes."""
        with sqlite3.connect(self.world.path(shard), timeout=60) as db:
            db.execute("DROP TRIGGER refused")
        db.close()

    def value(self, shard: str, key: str) -> bytes | None:
        with sqlite3.connect(self.world.path(shard), timeout=60) as db:
            found = db.execute("SELECT value FROM data WHERE key = ?", (key.encode(),)).fetchone()
        db.close()
        return bytes(found[0]) if found else None
