"""The source fails over to a streaming standby: the capture goes on if everything is there, or stops and says why."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from logplayer.capture.identity import (
    SourceIdentity,
    check_identity,
    keep_identity,
    parse_history,
    read_identity,
    source_of,
)
from logplayer.capture.settings import CaptureStopped
from logplayer.errors import UserError
from logplayer.log.open import open_log
from logplayer.wire.entries import decode_headers
from tests.campaign.databases import PostgresServer
from tests.capture.capture_support import Source, capture, entries, fold, sequences
from tests.capture.test_capture import forget
from tests.player.player_support import until
from tests.servers import find_postgres, missing

SLOT = "postgres"  # Of the database with that name.
ROW = "INSERT INTO t (text) SELECT repeat('x', 100) FROM generate_series(1, %d)"


class Pair:
    """A primary and its standby."""

    def __init__(self, directory: Path) -> None:
        settings = ("wal_level=logical", "fsync=off", "autovacuum=off", "max_wal_senders=10")
        self.primary = PostgresServer(directory / "primary", *settings)
        self.standby = PostgresServer(directory / "standby", *settings, of=self.primary)
        self.source = self.open(self.primary)
        self.source.run("CREATE TABLE t (id serial PRIMARY KEY, text text)", ROW % 3)

    def open(self, server: PostgresServer) -> Source:
        return Source(server.url("postgres"), SLOT)

    async def received(self) -> None:
        """The standby has everything."""
        row = self.source.db.execute("SELECT pg_current_wal_lsn()::text").fetchone()
        assert row is not None
        lsn = row[0]
        with psycopg.connect(self.standby.url("postgres"), autocommit=True) as db:

            def there() -> bool:
                found = db.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (lsn,)).fetchone()
                return bool(found and found[0])

            await until(there, "the standby has received all")

    def fail_over(self) -> Source:
        self.source.db.close()
        self.primary.crash()
        self.standby.promote()
        return self.open(self.standby)


@pytest.fixture
def pair() -> Iterator[Pair]:
    if find_postgres() is None:
        missing("PostgreSQL is not installed")
    with tempfile.TemporaryDirectory(prefix="lp-standby-") as directory:
        Path(directory).chmod(0o755)
        made = Pair(Path(directory))
        try:
            yield made
        finally:
            for server in (made.primary, made.standby):
                with contextlib.suppress(subprocess.CalledProcessError):  # It has crashed already.
                    server.crash()


async def test_a_promoted_standby_that_has_everything_is_captured_on(pair: Pair, tmp_path: Path) -> None:
    await capture(pair.source, tmp_path, "t")
    await pair.received()
    pair.standby.stop()
    pair.standby.take_slot(pair.primary, SLOT)
    pair.standby.start()
    pair.source.run(ROW % 2, "DELETE FROM t WHERE id = 1")
    await capture(pair.source, tmp_path, "t")
    pair.source.run(ROW % 4)  # The log does not have this one yet.
    await pair.received()
    promoted = pair.fail_over()
    promoted.run(ROW % 5, "UPDATE t SET text = 'new' WHERE id = 2")
    await capture(promoted, tmp_path, "t")
    found = await entries(tmp_path)
    assert fold(found, ("t",)) == promoted.rows("t")
    numbers = sequences(found, f"capture/{SLOT}")
    assert numbers == list(range(1, len(numbers) + 1))
    xids = [headers["pg-xid"] for *_, payload in found if "pg-xid" in (headers := dict(decode_headers(payload)))]
    assert len(xids) == len(set(xids)) == 5
    assert sequences(found, source_of(f"capture/{SLOT}")) == [1, 2]
    promoted.db.close()


async def test_a_promoted_standby_that_lacks_something_is_refused(pair: Pair, tmp_path: Path) -> None:
    """Somebody even makes the slot by its name: LSNs that look right mean other transactions now."""
    await capture(pair.source, tmp_path, "t")
    await pair.received()
    pair.standby.stop()
    pair.source.run(ROW % 5000)
    await capture(pair.source, tmp_path, "t")
    before = sequences(await entries(tmp_path), f"capture/{SLOT}")
    pair.source.db.close()
    pair.primary.crash()
    pair.standby.start()
    pair.standby.promote()
    promoted = pair.open(pair.standby)
    with pytest.raises(UserError, match=r"is gone from the source.*a standby without it was promoted.*new --slot"):
        await capture(promoted, tmp_path, "t")
    promoted.db.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
    promoted.run(ROW % 3)
    with pytest.raises(CaptureStopped, match=r"promoted to timeline 2 .* never received the last of them") as stopped:
        await capture(promoted, tmp_path, "t")
    assert stopped.value.reason == "diverged"
    promoted.run(ROW % 9000)  # Its LSNs are larger than the log's newest by now.
    with pytest.raises(CaptureStopped) as stopped:
        await capture(promoted, tmp_path, "t")
    assert stopped.value.reason == "diverged"
    assert sequences(await entries(tmp_path), f"capture/{SLOT}") == before
    promoted.db.close()


HISTORY = "1\t0/3000148\tno recovery target specified\n\n# a comment\n2\t0/5000000\tbefore 2026\n"
ONE = SourceIdentity("7", 1)


@pytest.mark.parametrize(
    ("known", "now", "lsn", "reason"),
    [
        (ONE, ONE, 0x9000000, ""),
        (ONE, SourceIdentity("7", 3), 0x3000148, ""),
        (ONE, SourceIdentity("7", 3), 0x3000149, "diverged"),
        (SourceIdentity("7", 2), SourceIdentity("7", 3), 0x5000000, ""),
        (SourceIdentity("7", 4), SourceIdentity("7", 3), 1, "diverged"),  # The old primary came back.
        (SourceIdentity("8", 1), ONE, 1, "other_source"),
    ],
)
def test_what_is_provable(known: SourceIdentity, now: SourceIdentity, lsn: int, reason: str) -> None:
    try:
        check_identity(known, now, parse_history(HISTORY), lsn)
        found = ""
    except CaptureStopped as error:
        found = error.reason
    assert found == reason


@pytest.mark.parametrize("trimmed", [False, True])
async def test_the_identity_is_remembered_also_below_the_trim_point(tmp_path: Path, trimmed: bool) -> None:
    log = await open_log(f"file://{tmp_path}/wal")
    later = ONE._replace(timeline=3)
    assert await read_identity(log, "capture/s", later) is None
    await keep_identity(log, "capture/s", ONE)
    await keep_identity(log, "capture/s", ONE._replace(timeline=2))
    await log.close()
    if trimmed:
        await forget(tmp_path)
    log = await open_log(f"file://{tmp_path}/wal")
    assert await read_identity(log, "capture/s", later) == SourceIdentity("7", 2)
    other = await read_identity(log, "capture/s", SourceIdentity("8", 3))
    assert other is not None
    assert other.system != "8"
    await log.close()
