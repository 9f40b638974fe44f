"""pgbench's own tables, as ``pgbench -i --foreign-keys`` makes them and nobody here has altered them, in one copy.

A log, a capture, a player and a target of their own: the copy's schema comes from ``pg_dump``, with every constraint,
and gets three of the four tables. ``pgbench_history`` has no primary key, so its rows have no names and no capture
takes them; that table is in the copy, and stays empty. But it says at the source what pgbench did, in commit order.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import psycopg

from tests.campaign.databases import PostgresServer
from tests.campaign.witness import not_teller_prefixes, open_witness, teller_deltas
from tests.campaign.world import Child, free_port

DATABASE, SLOT, WITNESS = "pgbench", "pgbench", "witness_pgbench"
TABLES = ("pgbench_branches", "pgbench_tellers", "pgbench_accounts")
ROWS = [f"SELECT * FROM {table} ORDER BY 1" for table in TABLES]
TOTALS = [
    "SELECT sum(bbalance) FROM pgbench_branches",
    "SELECT sum(tbalance) FROM pgbench_tellers",
    "SELECT sum(abalance) FROM pgbench_accounts",
    "SELECT tbalance FROM pgbench_tellers ORDER BY tid",
]
CONSTRAINTS = """
SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace ORDER BY 1
"""


class PgbenchCopy:
    """One database of the source, and its copy in another server."""

    name = "copy"

    def __init__(self, directory: Path, source: PostgresServer, shards: PostgresServer, rate: int) -> None:
        self._directory, self._source, self._shards, self._rate = directory, source, shards, rate
        self.samples: list[tuple[int, ...]] = []
        self.is_settled = False  # Half of a snapshot is no state of the source.
        self._load: subprocess.Popen[bytes] | None = None
        for server in (source, shards):
            with psycopg.connect(server.url("postgres"), autocommit=True) as db:
                db.execute(f"CREATE DATABASE {DATABASE}".encode())
        url, copy = source.url(DATABASE), shards.url(DATABASE)
        subprocess.run(["pgbench", "-q", "-i", "-s", "1", "--foreign-keys", url], check=True, capture_output=True)
        schema = subprocess.run(["pg_dump", "--schema-only", url], check=True, capture_output=True).stdout
        subprocess.run(["psql", "-q", "-v", "ON_ERROR_STOP=1", copy], check=True, input=schema, capture_output=True)
        assert source.rows(DATABASE, CONSTRAINTS) == shards.rows(DATABASE, CONSTRAINTS)
        open_witness(url, WITNESS)
        self.children = self._children(directory, url, copy)

    def _children(self, directory: Path, url: str, copy: str) -> dict[str, Child]:
        log_port, port = free_port(), free_port()
        log = ("--log", f"grpc://127.0.0.1:{log_port}")
        config = directory / "copy.toml"
        config.write_text(
            f'[log]\naddress = "{log[1]}"\n[player]\nhttp = "127.0.0.1:0"\n[limits]\ntrim_entries_min = 50\n'
            f'blocked_ms = 1000\nbackoff_ms_max = 500\n[targets.copy]\naddress = "grpc://127.0.0.1:{port}"\n'
        )
        serve = ("log", "serve", "--log", f"file://{directory}/copy-wal", "--listen", f"127.0.0.1:{log_port}")
        target = ("target", "serve", "--store", "postgres-tables", "--url", copy, "--id", "copy")
        words = {
            "copy-log": serve,
            "copy": (*target, "--listen", f"127.0.0.1:{port}"),
            "copy-player": ("play", "--in-process", "--take-over", "--config", str(config)),
            "copy-capture": ("capture", "postgres", "--url", url, "--slot", SLOT, "--tables", ",".join(TABLES), *log),
        }
        return {name: Child(name, directory, *one) for name, one in words.items()}

    def load(self) -> None:
        """pgbench's own script runs, unless it does."""
        if self._load is None or self._load.poll() is not None:
            words = ["pgbench", "-n", "-c", "4", "-T", "3600", "-R", str(self._rate), self._source.url(DATABASE)]
            with open(self._directory / "pgbench.log", "ab") as said:
                self._load = subprocess.Popen(words, stdout=said, stderr=said)

    def end_load(self) -> None:
        if self._load is not None:
            self._load.terminate()
            self._load.wait()

    def transactions(self) -> int:
        """How many pgbench has committed."""
        [[(count,)]] = self._source.rows(DATABASE, "SELECT count(*) FROM pgbench_history")
        return int(count)

    def sample(self) -> None:
        """The copy is the bank of one moment: its totals are equal, and its tellers are kept for :meth:`judge`."""
        [[branches], [tellers], [accounts], each] = self._shards.rows(DATABASE, *TOTALS)
        assert branches == tellers == accounts, (self.name, branches, tellers, accounts)
        self.samples.append(tuple(balance for (balance,) in each))

    def settled(self) -> bool:
        """The snapshot is complete in the copy."""
        if "capturing" not in self.children["copy-capture"].said():
            return False
        counts = [f"SELECT count(*) FROM {table}" for table in TABLES]
        return self._shards.rows(DATABASE, *counts) == self._source.rows(DATABASE, *counts)

    def same(self) -> bool:
        return self.rows() == self._source.rows(DATABASE, *ROWS)

    def rows(self) -> list[list[tuple[Any, ...]]]:
        return self._shards.rows(DATABASE, *ROWS)

    def judge(self) -> None:
        """Every sample was the state after some number of the source's commits, and all constraints are still there."""
        deltas = teller_deltas(self._source.url(DATABASE), WITNESS)
        assert len(deltas) == self.transactions(), (len(deltas), self.transactions())
        wrong = not_teller_prefixes(deltas, self.samples)
        assert not wrong, f"{len(wrong)} samples are no prefix of what pgbench committed: {wrong[0]}"
        assert self._source.rows(DATABASE, CONSTRAINTS) == self._shards.rows(DATABASE, CONSTRAINTS)
