"""A bank captured from one PostgreSQL into three shards while everything is killed:
``python -m tests.campaign.capture --kills 200``.

pgbench with four clients moves money in a PostgreSQL. A capture brings it into a log server, a player plays it into two
PostgreSQL shards and a MariaDB, all with foreign keys and checks on, and trims the log as it goes. First the capture is
killed in its snapshot. Then capture, log, player, targets and databases are killed, and after each kill the totals of
every branch are compared in every replica: each must be some state that the source has had. At the end every row is
compared, by code of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import shutil
import subprocess
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

import psycopg

from logplayer.testing.orphans import end_with_this_process
from tests.campaign.databases import MariadbServer, PostgresServer
from tests.campaign.world import Child, free_port

BRANCHES = 12
SCHEMA = """
CREATE TABLE branches (bid int PRIMARY KEY, bbalance bigint NOT NULL, note varchar(80));
CREATE TABLE tellers (bid int NOT NULL, tid int NOT NULL, tbalance bigint NOT NULL, PRIMARY KEY (bid, tid),
  FOREIGN KEY (bid) REFERENCES branches (bid));
CREATE TABLE accounts (bid int NOT NULL, aid int NOT NULL, abalance bigint NOT NULL CHECK (abalance > -100000000),
  PRIMARY KEY (bid, aid), FOREIGN KEY (bid) REFERENCES branches (bid));
CREATE TABLE history (bid int NOT NULL, id bigint NOT NULL, tid int NOT NULL, aid int NOT NULL, delta int NOT NULL,
  at timestamp(6) NOT NULL, PRIMARY KEY (bid, id), FOREIGN KEY (bid, tid) REFERENCES tellers (bid, tid),
  FOREIGN KEY (bid, aid) REFERENCES accounts (bid, aid));
"""
FILL = f"""
CREATE SEQUENCE ids;
INSERT INTO branches SELECT b, 0, 'branch ' || b FROM generate_series(1, {BRANCHES}) b;
INSERT INTO tellers SELECT b, t, 0 FROM generate_series(1, {BRANCHES}) b, generate_series(1, 3) t;
INSERT INTO accounts SELECT b, a, 0 FROM generate_series(1, {BRANCHES}) b, generate_series(1, 500) a;
"""
SCRIPT = f"""
\\set bid random(1, {BRANCHES})
\\set aid random(1, 500)
\\set tid random(1, 3)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE accounts SET abalance = abalance + :delta WHERE bid = :bid AND aid = :aid;
UPDATE tellers SET tbalance = tbalance + :delta WHERE bid = :bid AND tid = :tid;
UPDATE branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO history VALUES (:bid, nextval('ids'), :tid, :aid, :delta, localtimestamp);
END;
"""
TABLES = {
    "branches": "bid, bbalance, note",
    "tellers": "bid, tid, tbalance",
    "accounts": "bid, aid, abalance",
    "history": "bid, id, tid, aid, delta, at",
}
ROWS = [f"SELECT {columns} FROM {table} ORDER BY 1, 2" for table, columns in TABLES.items()]
TOTALS = [
    "SELECT bid, bbalance FROM branches",
    "SELECT bid, sum(tbalance) FROM tellers GROUP BY bid",
    "SELECT bid, sum(abalance) FROM accounts GROUP BY bid",
    "SELECT bid, sum(delta) FROM history GROUP BY bid",
]
SNAPSHOT_KILLS = 4
SHARDS = ("east", "west", "maria")


class Bank:
    """All databases and processes."""

    def __init__(self, directory: Path, rate: int) -> None:
        directory.chmod(0o755)
        self.directory = directory
        self.rate = rate
        self.source = PostgresServer(directory / "source", "wal_level=logical")
        self.shards = PostgresServer(directory / "shards")
        self.maria = MariadbServer(directory / "maria")
        self._fill()
        log_port, ports = free_port(), {name: free_port() for name in SHARDS}
        self.log_address = f"grpc://127.0.0.1:{log_port}"
        self.children = {
            "log": Child("log", directory, *f"log serve --log file://{directory}/wal".split(), *_listen(log_port))
        }
        for name, port in ports.items():
            store, url = ("mysql-tables", self.maria.url) if name == "maria" else ("postgres-tables", self._shard(name))
            words = ("target", "serve", "--store", store, "--url", url, "--id", name)
            self.children[name] = Child(name, directory, *words, *_listen(port))
        self._configure(ports)
        config = ("--config", str(directory / "logplayer.toml"))
        self.children["player"] = Child("player", directory, "play", "--in-process", "--take-over", *config)
        source = ("--url", self.source.url("bank"), "--tables", ",".join(TABLES), "--log", self.log_address)
        self.capture_words = ("capture", "postgres", *source, "--place", "bid")
        self.children["capture"] = Child("capture", directory, *self.capture_words)
        self._pgbench: subprocess.Popen[bytes] | None = None

    def _shard(self, name: str) -> str:
        return self.shards.url(name)

    def _fill(self) -> None:
        for server, database in ((self.source, "bank"), (self.shards, "east"), (self.shards, "west")):
            with psycopg.connect(server.url("postgres"), autocommit=True) as db:
                db.execute(f"CREATE DATABASE {database}".encode())
            with psycopg.connect(server.url(database)) as db:
                db.execute(SCHEMA.encode())
        with psycopg.connect(self.source.url("bank")) as db:
            db.execute(FILL.encode())
        with self.maria.connect() as db, db.cursor() as cursor:
            for statement in SCHEMA.strip().rstrip(";").split(";\n"):
                cursor.execute(statement)
            db.commit()

    def _configure(self, ports: dict[str, int]) -> None:
        targets = "".join(f'[targets.{name}]\naddress = "grpc://127.0.0.1:{port}"\n' for name, port in ports.items())
        names = ", ".join(f'"{name}"' for name in SHARDS)
        text = (
            f'[log]\naddress = "{self.log_address}"\n[player]\nhttp = "127.0.0.1:0"\n[limits]\ntrim_entries_min = 50\n'
            f'blocked_ms = 1000\nbackoff_ms_max = 500\n{targets}[map]\nkind = "hash"\nby = "tag"\ntargets = [{names}]\n'
        )
        (self.directory / "logplayer.toml").write_text(text)

    # --- Load ---

    def load(self) -> None:
        """pgbench runs, unless it does."""
        if self._pgbench is None or self._pgbench.poll() is not None:
            script = self.directory / "script.sql"
            script.write_text(SCRIPT)
            words = ["pgbench", "-n", "-c", "4", "-T", "3600", "-R", str(self.rate), "-f", str(script)]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            self._pgbench = subprocess.Popen([*words, self.source.url("bank")], **quiet)  # type: ignore[call-overload]

    def end_load(self) -> None:
        if self._pgbench is not None:
            self._pgbench.terminate()
            self._pgbench.wait()

    # --- Faults ---

    async def kill(self, victim: str) -> None:
        servers: dict[str, PostgresServer | MariadbServer] = {"source": self.source, "shards": self.shards}
        server = (servers | {"mariadb": self.maria}).get(victim)
        if server is None:
            await self.children[victim].kill()
        else:
            await asyncio.to_thread(server.crash)
            await asyncio.to_thread(server.start)
        self.load()
        await self.repair()

    async def repair(self) -> None:
        """Start what does not run; what may come back ends with 1, and nothing here is a mistake of a user's."""
        for child in self.children.values():
            assert child.alive or child.exit_code != 2, f"{child.name} gave up: {child.said()[-2000:]}"
            await child.start()

    # --- Checks ---

    async def totals(self) -> int:
        """In each replica every branch has the same total in all four tables. How many replicas could be asked."""
        asked = 0
        for name in SHARDS:
            try:
                found = await asyncio.to_thread(self._rows, name, TOTALS)
            except Exception as error:  # noqa: BLE001 - It is starting; a wrong total is not an exception.
                print(f"{name} could not be asked: {error!r:.100}", flush=True)
                continue
            branches, tellers, accounts, history = (dict(rows) for rows in found)
            for branch, total in branches.items():
                assert tellers[branch] == accounts[branch] == total == history.get(branch, 0), (name, branch)
            asked += 1
        return asked

    async def settled(self) -> None:
        """The snapshot is complete in every replica: from now on each is a state of the source at every moment."""
        end = time.monotonic() + 300
        while time.monotonic() < end:
            await self.repair()
            with contextlib.suppress(AssertionError, KeyError):
                if "capturing" in self.children["capture"].said() and await self.totals() == len(SHARDS):
                    found = [await asyncio.to_thread(self._rows, name, TOTALS[:1]) for name in SHARDS]
                    if sum(len(branches) for [branches] in found) == BRANCHES:
                        return
            await asyncio.sleep(0.5)
        raise AssertionError(f"the snapshot did not arrive; see {self.directory}")

    def _rows(self, name: str, queries: list[str]) -> list[list[tuple[Any, ...]]]:
        return self.maria.rows(*queries) if name == "maria" else self.shards.rows(name, *queries)

    async def compare(self) -> dict[str, int]:
        """Wait until the shards have all of the source, and compare every row. How many each has."""
        expected = await asyncio.to_thread(self.source.rows, "bank", *ROWS)
        end = time.monotonic() + 300
        while time.monotonic() < end:
            found = {name: await asyncio.to_thread(self._rows, name, ROWS) for name in SHARDS}
            if sum(len(rows[3]) for rows in found.values()) == len(expected[3]) and self._same(expected, found):
                return {name: sum(map(len, rows)) for name, rows in found.items()}
            await self.repair()
            await asyncio.sleep(1)
        raise AssertionError(f"the shards do not have what the source has; see {self.directory}")

    @staticmethod
    def _same(expected: list[list[tuple[Any, ...]]], found: dict[str, list[list[tuple[Any, ...]]]]) -> bool:
        for nth, rows in enumerate(expected):
            for place, name in enumerate(SHARDS):
                owned = [row for row in rows if zlib.crc32(str(row[0]).encode()) % len(SHARDS) == place]
                if found[name][nth] != owned:
                    return False
        return True

    async def stop(self) -> None:
        self.end_load()
        for child in self.children.values():
            await child.kill()
        for server in (self.source, self.shards, self.maria):
            with contextlib.suppress(subprocess.CalledProcessError):
                await asyncio.to_thread(server.stop)


def _listen(port: int) -> tuple[str, str]:
    return "--listen", f"127.0.0.1:{port}"


VICTIMS = ("capture", "log", "player", *SHARDS, "source", "shards", "mariadb")


async def campaign(directory: Path, kills: int, rate: int, seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    bank = Bank(directory, rate)
    began, samples, counts = time.monotonic(), 0, dict.fromkeys(VICTIMS, 0)
    try:
        bank.load()
        for _ in range(SNAPSHOT_KILLS):
            await bank.repair()
            await asyncio.sleep(chance.uniform(0.4, 1.5))
            await bank.children["capture"].kill()
        await bank.settled()
        for number in range(kills):
            await asyncio.sleep(chance.uniform(0.2, 2.0))
            victim = chance.choice(VICTIMS) if number % 2 else "capture"
            counts[victim] += 1
            await bank.kill(victim)
            samples += await bank.totals()
        await asyncio.sleep(2)
        await bank.repair()
        bank.end_load()
        rows = await bank.compare()
        samples += await bank.totals()
        history = len(bank.source.rows("bank", ROWS[3])[0])
    finally:
        await bank.stop()
    return {
        "snapshot_kills": SNAPSHOT_KILLS,
        "kills": counts,
        "seed": seed,
        "transactions": history,
        "rows": rows,
        "samples": samples,
        "differences": 0,
        "seconds": round(time.monotonic() - began),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, required=True)
    parser.add_argument("--rate", type=int, default=200, help="transactions per second at the source")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    end_with_this_process()
    directory = Path(tempfile.mkdtemp(prefix="lp-capture-"))
    print(json.dumps(asyncio.run(campaign(directory, options.kills, options.rate, options.seed))), flush=True)
    shutil.rmtree(directory, ignore_errors=True)  # Kept when a promise was broken.


if __name__ == "__main__":
    main()
