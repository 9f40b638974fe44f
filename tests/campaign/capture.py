"""A bank and a rental shop, captured from one PostgreSQL into three shards while everything is killed:
``python -m tests.campaign.capture --kills 200``.

pgbench with four clients moves money in a PostgreSQL, and another one rents films (``rental``). A capture brings it
into a log server, a player plays it into two PostgreSQL shards and a MariaDB, all with foreign keys and checks on, and
trims the log as it goes. First the capture is killed in its snapshot. Then capture, log, player, targets and databases
are killed, and after each kill the totals of every branch and store are compared in every replica. At the end every row
is compared, by code of its own, and every sample with the order in which the source committed: each must be a prefix of
it (``witness``). Beside them, pgbench's own tables go into a copy, as they are (``pgbench_copy``). A run that never
asked a replica, or in which a load did nothing under the kills, fails.
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
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from logplayer.testing.orphans import end_with_this_process
from tests.campaign import rental
from tests.campaign.databases import MariadbServer, PostgresServer
from tests.campaign.pgbench_copy import PgbenchCopy
from tests.campaign.witness import Place, Witness, not_prefixes, require_work
from tests.campaign.world import Child, free_port

BRANCHES = 12
SCHEMA = """
CREATE TABLE branches (bid int PRIMARY KEY, bbalance bigint NOT NULL, note varchar(80), version bigint NOT NULL);
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
INSERT INTO branches SELECT b, 0, 'branch ' || b, 0 FROM generate_series(1, {BRANCHES}) b;
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
UPDATE branches SET bbalance = bbalance + :delta, version = version + 1 WHERE bid = :bid;
INSERT INTO history VALUES (:bid, nextval('ids'), :tid, :aid, :delta, localtimestamp);
END;
"""
BANK = {
    "branches": "bid, bbalance, note, version",
    "tellers": "bid, tid, tbalance",
    "accounts": "bid, aid, abalance",
    "history": "bid, id, tid, aid, delta, at",
}
TABLES = BANK | rental.TABLES
ROWS = [f"SELECT {columns} FROM {table} ORDER BY 1, 2" for table, columns in TABLES.items()]
TOTALS = [
    "SELECT bid, bbalance FROM branches",
    "SELECT bid, sum(tbalance) FROM tellers GROUP BY bid",
    "SELECT bid, sum(abalance) FROM accounts GROUP BY bid",
    "SELECT bid, sum(delta) FROM history GROUP BY bid",
    "SELECT bid, version FROM branches",
]
COUNTED = ("history", "payments")  # Each transaction of the bank and of the shop adds one row.
SNAPSHOT_KILLS = 4
SHARDS = ("east", "west", "maria")


class Bank:
    """All databases and processes."""

    def __init__(self, directory: Path, rate: int) -> None:
        directory.chmod(0o755)
        self.directory = directory
        self.rate = rate
        self.source = PostgresServer(directory / "source", "wal_level=logical")
        self.samples: list[dict[Place, int]] = []
        self.asked = Counter[str]()
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
        places = [word for table in rental.TABLES for word in ("--place", f"{table}=store")]
        self.capture_words = ("capture", "postgres", *source, "--place", "bid", *places)
        self.children["capture"] = Child("capture", directory, *self.capture_words)
        self._pgbench: dict[str, subprocess.Popen[bytes]] = {}
        self.copy = PgbenchCopy(directory, self.source, self.shards, max(1, rate // 4))
        self.children |= self.copy.children

    def _shard(self, name: str) -> str:
        return self.shards.url(name)

    def _fill(self) -> None:
        for server, database in ((self.source, "bank"), (self.shards, "east"), (self.shards, "west")):
            with psycopg.connect(server.url("postgres"), autocommit=True) as db:
                db.execute(f"CREATE DATABASE {database}".encode())
            with psycopg.connect(server.url(database)) as db:
                db.execute((SCHEMA + rental.SCHEMA).encode())
        with psycopg.connect(self.source.url("bank")) as db:
            db.execute((FILL + rental.FILL).encode())
        self.witness = Witness(self.source.url("bank"))
        with self.maria.connect() as db, db.cursor() as cursor:
            for statement in (SCHEMA + rental.SCHEMA).replace(";\n\n", ";\n").strip().rstrip(";").split(";\n"):
                for ours, theirs in rental.IN_MARIADB.items():
                    statement = statement.replace(ours, theirs)
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
        self.copy.load()
        for name, text, rate in (("bank", SCRIPT, self.rate), ("rental", rental.SCRIPT, max(1, self.rate // 4))):
            if name in self._pgbench and self._pgbench[name].poll() is None:
                continue
            script = self.directory / f"{name}.sql"
            script.write_text(text)
            words = ["pgbench", "-n", "-c", "4", "-T", "3600", "-R", str(rate), "-f", str(script)]
            with open(self.directory / f"{name}.log", "ab") as said:
                command = [*words, self.source.url("bank")]
                self._pgbench[name] = subprocess.Popen(command, stdout=said, stderr=said)

    def end_load(self) -> None:
        self.copy.end_load()
        for process in self._pgbench.values():
            process.terminate()
            process.wait()

    def transactions(self) -> dict[str, int]:
        """How many each load has committed."""
        [[(history,)], [(payments,)]] = self.source.rows("bank", *(f"SELECT count(*) FROM {one}" for one in COUNTED))
        return {"bank": int(history), "rental": int(payments), "pgbench": self.copy.transactions()}

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
        """In each replica every branch and store has the same total in all its tables. How many could be asked."""
        asked = await self._sample_copy()
        for name in SHARDS:
            try:
                found = await asyncio.to_thread(self._rows, name, TOTALS + rental.VERSIONS + rental.PAID)
            except Exception as error:  # noqa: BLE001 - It is starting; a wrong total is not an exception.
                print(f"{name} could not be asked: {error!r:.100}", flush=True)
                continue
            tables: list[dict[Any, Any]] = [dict(rows) for rows in found]
            branches, tellers, accounts, history, versions, stores, *counted, paid, payments = tables
            for branch, total in branches.items():
                assert tellers[branch] == accounts[branch] == total == history.get(branch, 0), (name, branch)
            for store, version in stores.items():
                assert all(other.get(store, 0) == version for other in counted), (name, store)
                assert paid[store] == payments.get(store, 0), (name, store)
            sample = {("branches", branch): version for branch, version in versions.items()}
            self.samples.append(sample | {("stores", store): version for store, version in stores.items()})
            self.asked[name] += 1
            asked += 1
        return asked

    async def _sample_copy(self) -> int:
        if not self.copy.is_settled:
            return 0
        try:
            await asyncio.to_thread(self.copy.sample)
        except psycopg.Error as error:
            print(f"{self.copy.name} could not be asked: {error!r:.100}", flush=True)
            return 0
        self.asked[self.copy.name] += 1
        return 1

    async def settled(self) -> None:
        """The snapshot is complete in every replica: from now on each is a state of the source at every moment."""
        end = time.monotonic() + 300
        while time.monotonic() < end:
            await self.repair()
            with contextlib.suppress(AssertionError, KeyError):
                asked = await self.totals() if "capturing" in self.children["capture"].said() else 0
                places = sum(map(len, self.samples[-len(SHARDS) :]))
                copied = await asyncio.to_thread(self.copy.settled)
                if asked == len(SHARDS) and places == BRANCHES + rental.STORES and copied:
                    self.samples.clear()  # Half of a snapshot is no state of the source.
                    self.asked.clear()
                    self.copy.is_settled = True
                    return
            await asyncio.sleep(0.5)
        raise AssertionError(f"the snapshot did not arrive; see {self.directory}")

    def _rows(self, name: str, queries: list[str]) -> list[list[tuple[Any, ...]]]:
        found = self.maria.rows(*queries) if name == "maria" else self.shards.rows(name, *queries)
        return [[tuple(map(_plain, row)) for row in rows] for rows in found]

    async def compare(self) -> dict[str, int]:
        """Wait until the shards have all of the source, and compare every row. How many each has."""
        found_there = await asyncio.to_thread(self.source.rows, "bank", *ROWS)
        expected = [[tuple(map(_plain, row)) for row in rows] for rows in found_there]
        end = time.monotonic() + 1800  # It only ends a run that hangs: a busy machine catches up slowly.
        while time.monotonic() < end:
            found = {name: await asyncio.to_thread(self._rows, name, ROWS) for name in SHARDS}
            whole = sum(len(rows[3]) for rows in found.values()) == len(expected[3]) and self._same(expected, found)
            if whole and await asyncio.to_thread(self.copy.same):
                found["copy"] = await asyncio.to_thread(self.copy.rows)
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


def _plain(value: Any) -> Any:
    """A value as both databases can show it: MariaDB has points in time without a zone, and arrays as JSON."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value


def _listen(port: int) -> tuple[str, str]:
    return "--listen", f"127.0.0.1:{port}"


COPY = ("copy-capture", "copy-log", "copy-player", "copy")
VICTIMS = ("capture", "log", "player", *SHARDS, *COPY, "source", "shards", "mariadb")
CAPTURES = ("capture", "copy-capture")


async def campaign(directory: Path, kills: int, rate: int, seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    bank = Bank(directory, rate)
    began, samples, counts = time.monotonic(), 0, dict.fromkeys(VICTIMS, 0)
    try:
        bank.load()
        for _ in range(SNAPSHOT_KILLS):
            await bank.repair()
            await asyncio.sleep(chance.uniform(0.4, 1.5))
            for name in CAPTURES:
                await bank.children[name].kill()
        await bank.settled()
        before = bank.transactions()
        for number in range(kills):
            await asyncio.sleep(chance.uniform(0.2, 2.0))
            victim = chance.choice(VICTIMS if number % 2 else CAPTURES)
            counts[victim] += 1
            await bank.kill(victim)
            samples += await bank.totals()
        await asyncio.sleep(2)
        await bank.repair()
        bank.end_load()
        rows = await bank.compare()
        samples += await bank.totals()
        after = bank.transactions()
        under_kills = {name: count - before[name] for name, count in after.items()}
        require_work({name: bank.asked[name] for name in (*SHARDS, bank.copy.name)}, under_kills)
        commits = bank.witness.commits()
        assert len(commits) == after["bank"] + after["rental"], (len(commits), after)
        wrong = not_prefixes(commits, bank.samples)
        assert not wrong, f"{len(wrong)} samples are no prefix of the source's history: {wrong[0]}"
        bank.copy.judge()
    finally:
        await bank.stop()
    return {
        "snapshot_kills": SNAPSHOT_KILLS,
        "kills": counts,
        "seed": seed,
        "transactions": after,
        "under_kills": under_kills,
        "prefixes": len(bank.samples) + len(bank.copy.samples),
        "asked": dict(bank.asked),
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
