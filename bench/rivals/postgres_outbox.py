"""An outbox in PostgreSQL: the application commits a transaction's parts as rows, a worker takes them to the targets.

The commit waits for the primary's disk and one of two standbys'. It notifies the worker, which would otherwise look
every 100 ms: an expert does not poll where the database can tell. The worker reads what is there in the order of its
ids, sends it, waits for every target's answer and deletes the rows; that delete need not wait for the disk
(``synchronous_commit=off``), since what it forgets in a crash is only sent again.

At least once: a worker that dies between the targets' answers and its delete sends the rows again, and only targets
that remember the newest id would know. Nothing refuses a second worker's late message either.
"""

from __future__ import annotations

import threading
import time
from array import array
from typing import Any

from bench.actor import Actor, ActorFailed, usage
from bench.contest import Sample, Workload
from bench.rivals.parts import by_number, expected, paced, pieces, samples, wait_applied
from bench.rivals.postgres_server import Postgres
from bench.rivals.wire import Deliverer
from bench.targets import Targets
from logplayer.errors import UserError

LOOK_SECONDS = 0.1
TABLE = """
DROP TABLE IF EXISTS outbox;
CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, transaction bigint, target int, payload bytea
);
"""
INSERT = """
WITH added AS (
    INSERT INTO outbox (transaction, target, payload)
    SELECT %s, * FROM unnest(%s::int[], %s::bytea[])
)
SELECT pg_notify('outbox', '')
"""
TAKE = "SELECT id, transaction, target, payload FROM outbox WHERE id > %s ORDER BY id LIMIT 1000"
FORGET = "DELETE FROM outbox WHERE id <= %s"


class SqlApplication:
    """An actor: the application."""

    def steady(self, url: str, workload: Workload) -> tuple[array[int], array[int]]:
        """Number and time of each transaction, when it was asked for and when its commit was answered."""
        prepared = {number: pieces(workload, number) for number in range(1, workload.count + 1)}
        asked: array[int] = array("q")
        committed: array[int] = array("q")
        with _psycopg().connect(url, autocommit=True) as connection, connection.cursor(binary=True) as cursor:
            for number in paced(workload):
                parts = prepared[number]
                asked.extend((number, time.monotonic_ns()))
                cursor.execute(INSERT, (number, list(parts), list(parts.values())))
                committed.extend((number, time.monotonic_ns()))
        return asked, committed

    def usage(self) -> dict[str, float]:
        return usage()

    async def close(self) -> None:
        """Nothing outlives a run."""


class OutboxWorker:
    """An actor: takes the rows to the targets."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._stamps: array[int] = array("q")
        self._failed = ""

    def work(self, url: str, port: int, targets: int) -> None:
        self.close_now()
        self._stop = threading.Event()
        ready = threading.Event()
        self._failed = ""
        self._thread = threading.Thread(target=self._run, args=(url, port, targets, ready), daemon=True)
        self._thread.start()
        if not ready.wait(60):
            raise ActorFailed(f"the worker did not start: {self._failed}")

    def _run(self, url: str, port: int, targets: int, ready: threading.Event) -> None:
        psycopg = _psycopg()
        deliverer = Deliverer(port, targets)
        try:
            with (
                psycopg.connect(url, autocommit=True) as listening,
                psycopg.connect(url, autocommit=True) as connection,
            ):
                listening.execute("LISTEN outbox")
                connection.execute("SET synchronous_commit = off")
                ready.set()
                newest = 0
                while not self._stop.is_set():
                    found = self._take(connection, deliverer, newest)
                    if found == newest:
                        list(listening.notifies(timeout=LOOK_SECONDS, stop_after=1))
                    newest = found
        except psycopg.Error as error:
            self._failed = str(error)
        finally:
            deliverer.close()

    def _take(self, connection: Any, deliverer: Deliverer, newest: int) -> int:
        """Deliver what is there; the newest id that was."""
        with connection.cursor(binary=True) as cursor:
            rows = cursor.execute(TAKE, (newest,)).fetchall()
            if not rows:
                return newest
            at = time.monotonic_ns()
            for _, number, _, _ in rows:
                self._stamps.extend((number, at))
            deliverer.deliver([(number, target, payload) for _, number, target, payload in rows])
            cursor.execute(FORGET, (rows[-1][0],))
            return int(rows[-1][0])

    def dispatched(self) -> array[int]:
        """Number and time of everything that was taken from the outbox."""
        if self._failed:
            raise ActorFailed(self._failed)
        return self._stamps

    def usage(self) -> dict[str, float]:
        return usage()

    def close_now(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._thread = None
        self._stamps = array("q")

    async def close(self) -> None:
        self.close_now()


class PostgresOutbox:
    """See the module."""

    name = "postgres_outbox"
    guarantee = "at least once"

    def __init__(self, server: Postgres | None = None) -> None:
        self.server = server or Postgres()
        self._actors: list[Actor] = []

    def open(self) -> None:
        _psycopg()
        self.server.start()
        self.application, self.worker, self.targets = Actor(SqlApplication), Actor(OutboxWorker), Actor(Targets)
        self._actors = [self.application, self.worker, self.targets]

    def run(self, workload: Workload) -> list[Sample]:
        with _psycopg().connect(self.server.url, autocommit=True) as connection:
            connection.execute(TABLE)
        port = self.targets.ask("serve_bare", "tcp")
        self.worker.ask("work", self.server.url, port, workload.targets)
        seconds = workload.count / workload.rate + workload.count * 0.1 + 60
        asked, committed = self.application.ask("steady", self.server.url, workload, seconds=seconds)
        wait_applied(self.targets, expected(workload))
        dispatched = by_number(self.worker.ask("dispatched"))
        found = samples(
            workload, self.targets.ask("take"), by_number(asked), by_number(committed), dispatched, once=False
        )
        for actor in (self.worker, self.targets):
            actor.ask("close")
        return found

    def close(self) -> None:
        for actor in self._actors:
            actor.stop()
        self._actors = []
        self.server.stop()


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        raise UserError("the outbox needs psycopg; install it with: pip install 'logplayer[postgres]'") from None
    return psycopg
