"""``capture_postgres``: a PostgreSQL's committed transactions into the log, in commit order, each one once.

The shell: connections, time and retries. What a message means is decided in ``assemble``, where to go on in ``resume``,
how entries get into the log in ``appender``, and how it begins in ``snapshot``.

What may come back (the source, the log) is waited for; what cannot mend itself (a slot that is gone, a schema that
changed, a transaction over the limit) ends the capture with a sentence. Either way nothing is lost: the slot keeps what
the log does not have.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Mapping

import psycopg

from logplayer.capture import snapshot, source
from logplayer.capture.appender import ITEM_BYTES_MAX, Appender, Item
from logplayer.capture.assemble import PREFIX, Assembler
from logplayer.capture.circles import copy_order
from logplayer.capture.descriptions import Description
from logplayer.capture.descriptions_at import Known, find_known
from logplayer.capture.foreign_keys import warn_of_torn_keys
from logplayer.capture.identity import SourceIdentity, check_identity, keep_identity, parse_history, read_identity
from logplayer.capture.pg_stream import PgStream
from logplayer.capture.pgoutput import decode, lsn_text, parse_lsn
from logplayer.capture.publication import Published, check_published, ensure_publication
from logplayer.capture.resume import CapturePhase, Resume, describe_tables, find_resume
from logplayer.capture.settings import CaptureSettings, CaptureStopped, stop_reason
from logplayer.capture.statements import statements_before, statements_made
from logplayer.capture.transactions import SourceTransaction, parts
from logplayer.crashpoint import crashpoint
from logplayer.errors import LogError, LogPlayerError, Unavailable, UserError
from logplayer.log.protocol import Log
from logplayer.observe.instruments import CaptureCounts, CaptureStage, Received

RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
HEARTBEAT_BYTES = 16 * 1024 * 1024  # A segment of PostgreSQL's log: less than that it cannot free.
HEARTBEAT_SECONDS = 10.0
LOOK_SECONDS = 10.0  # Between two looks at what the publication has.
Say = Callable[[str, Mapping[str, object]], None]
"""Called with what has just happened, and the facts."""
_log = logging.getLogger("logplayer.capture")


async def capture_postgres(
    log: Log,
    settings: CaptureSettings,
    *,
    stop: asyncio.Event,
    until_now: bool = False,
    say: Say = lambda what, facts: None,
    progress: snapshot.Progress = lambda table, rows, about: None,
    counts: CaptureCounts | None = None,
) -> int:
    """Capture until ``stop`` is set, and return how many entries this call has appended.

    Args:
        log: Where the transactions go.
        settings: What to capture.
        stop: Ends it, after what was received is durable.
        until_now: End by itself when everything is in the log that the source had committed at the start.
        say: Called with what happens.
        progress: Called while the snapshot is copied.
        counts: Where it is counted; one of its own if there is none.

    Raises:
        UserError: Something that cannot mend itself; the message says what to do.
        Unavailable: The source or the log cannot be reached at the start, or another process captures with this slot.

    Example:
        >>> await capture_postgres(log, settings, stop=asyncio.Event())  # doctest: +SKIP
    """
    counts = counts or CaptureCounts()
    capture = _Capture(log, settings, stop, until_now, say, progress, counts)
    try:
        return await _translated(capture)
    except LogPlayerError as error:
        counts.stops[stop_reason(error)] += 1
        counts.why = str(error)
        raise
    finally:
        counts.stage = CaptureStage.STOPPED


async def _translated(capture: _Capture) -> int:
    """Errors of the driver as those of the product."""
    try:
        return await capture.run()
    except psycopg.OperationalError as error:
        raise Unavailable(f"the connection to the source was lost: {str(error).strip()}") from None
    except psycopg.Error as error:
        raise UserError(f"the source refuses (SQLSTATE {error.sqlstate}): {str(error).strip()}") from None


class _Capture:
    def __init__(
        self,
        log: Log,
        settings: CaptureSettings,
        stop: asyncio.Event,
        until_now: bool,
        say: Say,
        progress: snapshot.Progress,
        counts: CaptureCounts,
    ) -> None:
        self._counts = counts
        self._log = log
        self._settings = settings
        self._stop = stop
        self._until_now = until_now
        self._until = 0
        self._say = say
        self._progress = progress
        self._stream: PgStream | None = None
        self._known: dict[str, Description] = {}
        self._in_log = Known()
        self._published: dict[str, Published] = {}
        self._unkept = False  # The log has not all of these tables, or has others.
        self._sequence = 0  # Of the newest entry that was submitted; counted only from a mark on.
        self._resume = Resume(CapturePhase.NOTHING)
        self._source: SourceIdentity | None = None
        self._seen = 0  # The newest transaction that was submitted.
        self._heartbeat_at = self._looked_at = time.monotonic()

    async def run(self) -> int:
        settings = self._settings
        async with await source.connect(settings.url) as db:
            await source.check_server(db)
            self._tables = await source.find_tables(db, settings)
            slot = await source.find_slot(db, settings.slot)
            source.check_slot(slot, settings.slot, db.info.dbname)
            if slot is not None and slot.active_pid:
                raise source.slot_in_use(settings.slot)
            if self._until_now:
                row = await (await db.execute("SELECT pg_current_wal_insert_lsn()::text")).fetchone()
                self._until = parse_lsn(row[0]) if row else 0
            self._resume = await find_resume(self._log, settings.producer, slot)
            self._check_resume(slot is not None)
            if self._resume.phase is CapturePhase.STREAM:
                self._in_log = await find_known(self._log, settings, db, self._tables, self._resume)
                self._published, self._unkept = self._in_log.published, self._in_log.is_wider
            if not self._in_log.tables:  # From then on a publication that lacks something cannot be mended.
                await ensure_publication(db, settings.publication, self._tables)
        await warn_of_torn_keys(self._log, settings, self._tables)
        self._appender = Appender(self._log, settings.producer, self._resume.sequence, self._confirm, self._counts)
        await self._appender.open()
        appending = asyncio.create_task(self._appender.run())
        working = asyncio.create_task(self._work())
        try:
            await asyncio.wait([appending, working], return_when=asyncio.FIRST_COMPLETED)
            if appending.done():
                appending.result()
            await working
        finally:
            for task in (working, appending):
                task.cancel()
            await asyncio.gather(working, appending, return_exceptions=True)
        return self._appender.entries

    def _check_resume(self, has_slot: bool) -> None:
        name, resume = self._settings.slot, self._resume
        if resume.phase is CapturePhase.STREAM and not has_slot:
            raise source.slot_is_gone(name, resume.lsn)
        if resume.phase is CapturePhase.NOTHING and has_slot and self._settings.snapshot:
            raise UserError(
                f"slot {name} exists, but the log has nothing of it: check --log; give --no-snapshot to begin at the "
                f"slot's position, or drop it: SELECT pg_drop_replication_slot('{name}')"
            )

    def _confirm(self, lsn: int) -> None:
        self._counts.confirmed_lsn = max(lsn, self._counts.confirmed_lsn)
        if self._stream is not None:
            self._stream.confirm(lsn)

    # --- Work ---

    async def _work(self) -> None:
        if self._resume.phase is CapturePhase.STREAM:
            self._known = {} if self._in_log.is_later else self._in_log.tables
            self._sequence = self._resume.sequence
            self._seen = self._resume.lsn
        else:
            await self._begin()
        await self._stream_on()

    async def _begin(self) -> None:
        settings, appender = self._settings, self._appender
        async with await source.connect(settings.url) as db:
            if self._resume.phase is CapturePhase.SNAPSHOT:
                statements: list[bytes] = []
                if settings.choices.truncate == "ddl":
                    ordered = await copy_order(db, self._tables)
                    statements = snapshot.emptying(list(reversed(ordered)), settings.choices.ddl_targets)
                entries = await snapshot.take_back(self._log, settings.producer, appender, statements)
                self._say("interrupted snapshot taken back", {"entries": entries})
                await source.drop_slot(db, settings.slot)
            elif not settings.snapshot:
                self._published = await snapshot.begin_without(settings, db, self._tables, appender)
                self._seen = appender.lsn
                return
        self._counts.stage = CaptureStage.SNAPSHOT
        self._known, self._published = await snapshot.copy_tables(settings, self._tables, appender, self._copied)
        self._seen = appender.lsn
        self._say("snapshot copied", {"slot": settings.slot, "lsn": lsn_text(appender.lsn)})

    def _copied(self, table: str, rows: int, about: int) -> None:
        self._counts.snapshot[table] = rows, about
        self._progress(table, rows, about)

    async def _stream_on(self) -> None:
        attempts = 0
        first = True
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                await self._session(first)
                return
            except LogError:
                raise
            except (Unavailable, psycopg.OperationalError) as error:
                if first and self._stream is None:
                    raise
                attempts = 0 if time.monotonic() - begun > RETRY_SECONDS[-1] * 2 else attempts
                _log.warning("trying again to read slot %s: %s", self._settings.slot, error)
                self._counts.lose(str(error))
            finally:
                first = first and self._stream is None
            pause = RETRY_SECONDS[min(attempts, len(RETRY_SECONDS) - 1)] * random.uniform(0.5, 1.0)
            attempts += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stop.wait()

    async def _session(self, first: bool) -> None:
        """One connection's stream, until it is lost or the capture is asked to end."""
        settings = self._settings
        async with await source.connect(settings.url) as db:
            slot = await source.find_slot(db, settings.slot)
            types = await source.base_types(db)
            await source.check_primary(db)
            source.check_slot(slot, settings.slot, db.info.dbname)
            published = await self._look(db)
        if slot is None:
            raise source.slot_is_gone(settings.slot, self._seen)
        if slot.confirmed > self._seen:
            raise CaptureStopped(
                "slot_moved",
                f"slot {settings.slot} begins at {lsn_text(slot.confirmed)} now, after what was captured: it was "
                "moved or "
                "made again by another program. Empty the tables of the targets, and start with a new --slot",
            )
        tables = {(table.schema, table.name): table for table in self._tables}
        oids = {published[table.log_name].oid: name for name, table in tables.items()}
        is_cut = self._resume.part_lsn > self._seen
        assembler = Assembler(tables, types, settings.choices, self._known, self._seen, is_cut, oids)
        assembler.remaking = self._in_log.is_later and self._sequence < self._resume.newest
        async with await PgStream.open(settings.url) as stream:
            await self._check_source(stream)
            await stream.start(settings.slot, settings.publication, slot.confirmed)
            self._stream = stream
            self._counts.find(slot.confirmed, self._resume.lsn)
            facts = {"slot": settings.slot, "after": lsn_text(self._seen)}
            self._say("capturing" if first else "capturing again", facts)
            try:
                await self._read(stream, assembler)
            except UserError:
                with contextlib.suppress(Unavailable):  # The stream itself may be the trouble.
                    await self._finish(stream)  # What came before it is good.
                raise

    async def _look(self, db: source.Db) -> dict[str, Published]:
        """Stop if the publication may have left out changes; returns what it has of the captured tables."""
        self._looked_at = time.monotonic()
        published = await check_published(db, self._settings.publication, self._tables, self._published)
        if not published.keys() <= self._published.keys():  # Kept by a version that had no OIDs.
            self._unkept = self._unkept or bool(self._in_log.tables)
            self._published = {**self._published, **published}
        return published

    async def _check_source(self, stream: PgStream) -> None:
        """Go on only where everything is that the log has; remember where what comes next is from."""
        now = SourceIdentity(*await stream.identify())
        if now == self._source:
            return
        known = self._source or await read_identity(self._log, self._settings.producer, now)
        if known is not None:
            check_identity(known, now, parse_history(await stream.history(now.timeline)), self._seen)
        if known != now:
            await self._appender.drain()  # What was received before is from where it says.
            await keep_identity(self._log, self._settings.producer, now)
            crashpoint("capture-source-kept")
        self._source = now

    async def _read(self, stream: PgStream, assembler: Assembler) -> None:
        async for messages in stream.messages(self._until > 0):
            self._counts.source_lsn = stream.server_end
            for message in messages:
                transaction = assembler.feed(decode(message))
                if transaction is not None:
                    await self._submit(transaction, assembler)
            while self._appender.unanswered_bytes >= self._settings.unanswered_bytes_max:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await self._appender.room(self._settings.unanswered_bytes_max)
                stream.send_status()
            await asyncio.sleep(0)
            # Transactions come in the order of their commits, so what names a later place comes after all up to it.
            if self._stop.is_set() or 0 < self._until <= stream.server_end:
                await self._finish(stream)
                return
            await self._heartbeat(stream)
            if time.monotonic() - self._looked_at >= LOOK_SECONDS:
                async with await source.connect(self._settings.url) as db:
                    await self._look(db)

    async def _finish(self, stream: PgStream) -> None:
        """Everything that was received becomes durable, and the server learns of it."""
        while True:
            try:
                async with asyncio.timeout(1.0):
                    await self._appender.drain()
                break
            except TimeoutError:
                stream.send_status()
        stream.send_status()

    async def _submit(self, transaction: SourceTransaction, assembler: Assembler) -> None:
        payloads = parts(transaction, self._settings.choices) if not transaction.truncated else []
        if assembler.remaking:
            at = self._sequence + 1
            before = await statements_made(self._settings, self._log, transaction, payloads, at)
        else:
            before = await statements_before(self._settings, transaction)
        if transaction.lsn == self._resume.part_lsn:
            before, payloads = [], payloads[self._resume.parts :]
        is_new = (transaction.changes or assembler.completed or self._unkept) and not assembler.remaking
        schema = describe_tables(assembler.known, self._published) if is_new else b""
        assembler.completed, self._unkept = False, self._unkept and not is_new
        first = len(before) + 1  # Statements have no part's number, so they are never the newest entry.
        payloads = before + payloads
        self._sequence += len(payloads)
        while sum(map(len, payloads)) > ITEM_BYTES_MAX:  # Only with --split-large: no group holds all of it.
            self._appender.submit(Item(payloads[:first]))
            await self._appender.room(self._settings.unanswered_bytes_max)
            payloads, first = payloads[first:], 1
        self._counts.receive(Received(transaction.lsn, transaction.commit_time_us, len(transaction.mutations)))
        self._appender.submit(Item(payloads, transaction.lsn, schema))
        self._seen = transaction.lsn
        if assembler.remaking and self._sequence >= self._resume.newest:
            assembler.judge(self._in_log.tables)
        self._known = dict(assembler.known)
        crashpoint("capture-transaction-submitted")

    async def _heartbeat(self, stream: PgStream) -> None:
        """Let the slot move on when others write much and the captured tables are idle.

        It goes by time and bytes, not by silence: PostgreSQL 14 streams beginnings and ends of others' transactions.

        Only a transaction that the log has may be confirmed, so this makes one: an empty message of the outbox, which
        becomes an entry without mutations.
        """
        now = time.monotonic()
        behind = stream.server_end - max(self._appender.lsn, self._seen)
        if behind < HEARTBEAT_BYTES or now - self._heartbeat_at < HEARTBEAT_SECONDS:
            return
        self._heartbeat_at = now
        async with await source.connect(self._settings.url) as db:
            await db.execute("SELECT pg_logical_emit_message(true, %s, '')", (PREFIX,))
