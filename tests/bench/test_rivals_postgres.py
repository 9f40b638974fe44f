"""The outbox delivers the whole workload, with a commit that a standby has synced."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.contest import Workload
from bench.rivals.postgres_outbox import PostgresOutbox
from bench.rivals.postgres_server import Postgres, find_programs
from logplayer.errors import UserError
from tests.servers import missing

SMALL = Workload(targets=3, keys=4, rate=200.0, count=20, warm_up=2)


@pytest.fixture
def contestant() -> Iterator[PostgresOutbox]:
    try:
        find_programs()
    except UserError as error:
        missing(str(error))
    made = PostgresOutbox(Postgres())
    try:
        made.open()
        yield made
    finally:
        made.close()
        made.close()


def test_the_outbox_delivers_every_transaction(contestant: PostgresOutbox) -> None:
    import psycopg

    samples = contestant.run(SMALL)
    wanted = {(number, target) for number in SMALL.counted() for target in SMALL.parts(number)}
    assert {(s.transaction, s.target) for s in samples} == wanted
    assert len(samples) == len(wanted)
    assert all(s.asked_ns < s.commit_ns and s.asked_ns < s.dispatch_ns < s.apply_ns for s in samples)
    with psycopg.connect(contestant.server.url) as connection:
        assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,), "what was delivered is deleted"
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
        states = connection.execute("SELECT sync_state FROM pg_stat_replication").fetchall()
        assert states == [("quorum",), ("quorum",)], "a commit waits for one of two standbys"
