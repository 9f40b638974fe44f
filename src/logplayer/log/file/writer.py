"""The one thread that writes a file log: it commits all appends that wait as one group.

The idea
--------
A sync costs about the same for one entry as for a hundred, and only one can run at a time. So there is one thread, and
it takes whatever has come while the last sync ran: the load sets how many appends share a commit, and no timer delays
the first of them. Once it runs, the thread owns all that is below, so the only lock is the one that keeps the
checkpoint thread away from the last of the room. Requests come in by a queue, and answers leave through ``tell``, which
hands them to the event loop.

    take what waits ─▶ plan the indexes ─▶ write the rows ─▶ COMMIT, which syncs ─▶ tell readers and producers
                       in memory                              *the commit point*

Before the commit point nothing has happened; after it the entries are there, and a retry of the same sequence gets the
same index. docs/log.md lists what a crash leaves at each step of an append, a new segment and a trim, and
``crashpoint`` marks them in the code for the tests that kill the process there.

The state
---------
``_next`` (the next index), ``_trim`` (the first index that can be read), ``_control`` (the newest decision),
``_chain`` and ``_trimmed_chain`` (the chain values at both ends) and ``_producers`` (each producer's newest sequence)
are a cache. What counts is the newest segment: the state at its start
and the headers of its rows, from which ``_load`` makes them again. Planning changes ``_producers`` ahead of the commit,
and that is why:

    READY ──a commit or a trim fails──▶ the state is read again ──▶ READY
      │                                    │ that fails too, as it may on a full disk
      │                                    ▼
      │                                 ``_db`` is None: the next request reads it first
      └──a sync fails──▶ ``_broken``: nothing is done any more until the process is started again

Why the obvious ways are wrong
------------------------------
* *Keep the producers' sequences in a table of their own.* Then there are two truths that a crash, a restored file or a
  bug can part. Here a row's header says whose entries it holds: the entry and the memory of it are one row.
* *Undo in memory what a failed commit had planned.* It may have failed after its rows became durable. The disk knows.
* *Try a failed sync again.* The kernel may have marked the lost pages clean, so the second sync succeeds and proves
  nothing. Whatever was answered after it could be gone.
* *Move pages into the database on this thread.* Every append that comes meanwhile would wait for the sync of a
  database. A second thread does it (``checkpoint``), with a connection of its own; that of a sealed segment it gets.
* *Delete a trimmed segment, then note the trim.* After a crash in between, the log says that it begins where nothing is
  any more. The mark is written first, and is the commit point; what it leaves to delete, opening deletes.
* *Refuse to trim on a full disk.* Then nothing ever makes room. A reserve is given up for the trim, and for the
  decisions that a trim may wait for (``control_rules.makes_room``); for nothing else.
* *Put a trim into the same group as appends.* It may start a new segment. It waits until the appends before it are
  committed, and those after it come later, so each caller finds the log as the order of the calls says.

One refused group (a gap in a sequence, a decision that does not fit) fails alone: the others of the same commit go on.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import queue
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from logplayer.core.chain import GENESIS, extend_all, mark_of
from logplayer.crashpoint import crashpoint
from logplayer.errors import ControlJammed, LogDiverged, LogError, LogFull, LogUnavailable
from logplayer.log.answer import GroupOutcome
from logplayer.log.control_rules import Guard, makes_room
from logplayer.log.file import segment
from logplayer.log.file.checkpoint import Checkpointer
from logplayer.log.file.directory import Directory
from logplayer.log.file.past import Past
from logplayer.log.file.reader import read_record
from logplayer.log.file.segment import FrameChunk, Start
from logplayer.log.frame import encode_frame
from logplayer.log.protocol import CONTROL_PRODUCER, BadRequest, History, Kind, NewEntry, Newest, overtaken
from logplayer.log.refusals import is_in_the_log, other_history, with_newest
from logplayer.log.sequences import RECENT_COUNT_MAX, AppendPlan, Place, Producers, check_mark, runs_of
from logplayer.observe.instruments import WriterCounts

GROUP_COMMIT_BYTES_MAX = 4 * 1024 * 1024
GROUP_COMMIT_COUNT_MAX = RECENT_COUNT_MAX // 4  # So that a retry in the same commit finds the first try in memory.
CHUNK_BYTES_MAX = 1024 * 1024  # Bounds what a reader takes into memory at once.
SEGMENT_BYTES = 64 * 1024 * 1024
SEGMENT_COUNT_MAX = 200_000  # Bounds the headers to be read when the log opens.


class FileLogRequest(NamedTuple):
    """One call that waits: a group to append; or a trim, when that is set; or a question for a producer's newest entry.

    ``token`` is the caller's. ``each``: every entry is a group of its own, and has an outcome of its own. Whoever has
    many of them at once, as the log server has, hands them over in one piece: the queue costs as much for each request
    as everything else that is done in memory for an entry.
    """

    entries: Sequence[NewEntry]
    trim: int | None
    token: Any
    producer: str = ""
    history: History | None = None  # What the trim is meant for.
    each: bool = False


Outcome = tuple[Any, list[int] | list[GroupOutcome], LogError | None]
"""The answer to one request: its token, and the indexes (or the outcome of each entry) or the error."""


class CommittedState(NamedTuple):
    """The log's indexes after a commit, and the chain values at ``last`` and before ``first``."""

    first: int
    last: int
    control: int
    chain: bytes = GENESIS
    trimmed_chain: bytes = GENESIS


TellWritten = Callable[[list[Outcome], list[FrameChunk], CommittedState], None]


class Writer:
    """Owns the newest segment. ``open`` in any thread, then everything else happens in the writer's own thread."""

    def __init__(self, directory: Directory, tell: TellWritten, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.directory = directory
        self.log_id = ""
        self._tell = tell
        self._segment_bytes_max = segment_bytes
        self._requests: queue.SimpleQueue[FileLogRequest | None] = queue.SimpleQueue()
        self._held: FileLogRequest | None = None
        self.counts = WriterCounts()
        self._checkpointer = Checkpointer(  # Pages take more than entries.
            directory.spare, segment_bytes * 5 // 4, self.counts.checkpoints
        )
        self._thread = threading.Thread(target=self._run, name="logplayer-log-writer", daemon=True)
        self._broken: str | None = None
        self._db: sqlite3.Connection | None = None
        self._guard: Guard | None = None  # Made when the first decision or trim asks for it.
        self._past = Past(directory)

    def open(self) -> CommittedState:
        """Lock, recover and start. A crash at any earlier moment needs no more than this."""
        self.directory.check()
        self.directory.lock()
        try:
            self.directory.clean()
            if not self.directory.segments():
                start = Start(uuid.uuid4().hex, 1, 0, 1, {}, "", "")
                segment.create(self.directory.segment(1), start, self.directory.spare)
            self._load()
            self._forget_trimmed()
            self.directory.keep_reserve()
        except BaseException:
            self._close_db()
            self.directory.unlock()
            raise
        self._checkpointer.start()
        self._thread.start()
        return self._standing()

    def submit(self, request: FileLogRequest) -> None:
        self._requests.put(request)

    def close(self) -> None:
        """Commit what waits, then stop. Blocks; call it outside the event loop."""
        self._requests.put(None)
        self._thread.join()
        self._checkpointer.stop()
        self._close_db()
        self.directory.spare.drop()
        self.directory.unlock()

    def _standing(self) -> CommittedState:
        return CommittedState(self._trim, self._next - 1, self._control, self._chain, self._trimmed_chain)

    def _close_db(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _load(self) -> None:
        """Read the state from the newest segment: its start, plus its headers. Changes nothing if it fails."""
        self._close_db()
        self._guard = None
        self._past = Past(self.directory)
        newest = self.directory.segments()[-1]
        db = segment.connect(self.directory.segment(newest), write=True)
        try:
            start, (trim, trimmed_chain) = segment.read_start(db), segment.read_trim(db)
            control, following, chain = start.control, start.first, bytes.fromhex(start.chain)
            producers = Producers()
            producers.newest.update(start.newest)
            for first, count, head in segment.headers(db):
                for run in head.runs:
                    producers.learn(run)
                control, following, chain = head.control, first + count, head.chain
            size = db.execute("SELECT coalesce(sum(length(data)), 0) FROM chunks").fetchone()[0]
        except BaseException:
            db.close()
            raise
        self._db, self.log_id, self._segment_first, self._bytes = db, start.log_id, newest, size
        self._trim, self._next, self._control, self._producers = trim, following, control, producers
        self._chain, self._trimmed_chain = chain, trimmed_chain

    def _run(self) -> None:
        while True:
            requests = self._take()
            if requests is None:
                return
            if requests[0].entries:
                self._answer_appends(requests)
            elif requests[0].trim is not None:
                self._answer_trim(requests[0])
            else:
                self._answer_newest(requests[0])

    def _take(self) -> list[FileLogRequest] | None:
        """All appends that wait, up to a limit; or one trim or question; or None at the end."""
        request = self._held or self._requests.get()
        self._held = None
        if request is None:
            return None
        taken = [request]
        if not request.entries:
            return taken
        room = GROUP_COMMIT_BYTES_MAX - sum(len(entry.payload) for entry in request.entries)
        count = len(request.entries)
        while room > 0 and count < GROUP_COMMIT_COUNT_MAX:
            try:
                request = self._requests.get_nowait()
            except queue.Empty:
                break
            if request is None:
                self._requests.put(None)
                break
            if not request.entries:
                self._held = request
                break
            taken.append(request)
            count += len(request.entries)
            for entry in request.entries:
                room -= len(entry.payload)
        return taken

    def _answer_appends(self, requests: list[FileLogRequest]) -> None:
        try:
            outcomes, chunks = self._commit(requests)
        except Exception as error:  # noqa: BLE001 - whatever it is, everybody else waits for this thread.
            trouble = self._recover(error)
            refused = requests
            if isinstance(trouble, LogFull):
                refused = [request for request in requests if not makes_room(request.entries)]
            self._tell([(request.token, [], trouble) for request in refused], [], self._standing())
            for request in requests:
                if request not in refused:
                    self._answer_from_reserve(request)
            return
        self._tell_committed(outcomes, chunks)

    def _answer_from_reserve(self, request: FileLogRequest) -> None:
        """The disk is full, and a trim of everything waits for this decision: see ``control_chain.trim``."""
        try:
            with self._room_from_reserve():
                outcomes, chunks = self._commit([request])
        except Exception as error:  # noqa: BLE001 - as above.
            self._tell([(request.token, [], self._recover(error))], [], self._standing())
            return
        self._tell_committed(outcomes, chunks)

    def _tell_committed(self, outcomes: list[Outcome], chunks: list[FrameChunk]) -> None:
        self._tell(outcomes, chunks, self._standing())
        crashpoint("answered")
        if chunks:
            self._checkpointer.wrote(self.directory.segment(self._segment_first), chunks)

    def _commit(self, requests: list[FileLogRequest]) -> tuple[list[Outcome], list[FrameChunk]]:
        outcomes: list[Outcome] = []
        chunks: list[FrameChunk] = []
        began = time.perf_counter()
        self._require_ready()
        if self._bytes >= self._segment_bytes_max or self._next - self._segment_first >= SEGMENT_COUNT_MAX:
            self._rotate()
        new = self._plan(requests, outcomes)
        if new:
            chunks = self._encode(new)
            crashpoint("before-begin")
            assert self._db is not None
            written = time.perf_counter()
            segment.insert(self._db, chunks)
            crashpoint("committed")
            now = time.perf_counter()
            self.counts.syncs.note(now - written)
            self.counts.commits.note(now - began)
            self._bytes += sum(len(chunk.data) for chunk in chunks)
            self._control, self._next, self._chain = chunks[-1].control, chunks[-1].last + 1, chunks[-1].chain
        return outcomes, chunks

    def _plan(self, requests: list[FileLogRequest], outcomes: list[Outcome]) -> list[tuple[int, NewEntry]]:
        new: list[tuple[int, NewEntry]] = []
        compare = functools.partial(self._require_same, new)
        for entries, _, token, _, _, each in requests:
            if each:
                outcomes.append((token, [self._plan_group((entry,), new, compare) for entry in entries], None))
                continue
            planned = self._plan_group(entries, new, compare)
            outcomes.append((token, [], planned) if isinstance(planned, LogError) else (token, planned, None))
        return new

    def _plan_group(
        self, entries: Sequence[NewEntry], new: list[tuple[int, NewEntry]], compare: Callable[[int, NewEntry], None]
    ) -> GroupOutcome:
        """Give indexes to what is new of the group, after what is ``new`` already; or say why it is refused."""
        index = self._next + len(new)
        if len(entries) == 1:
            [entry] = entries
            if not entry[3] and self._producers.plan_next(entry[0], entry[1], index):  # DATA
                new.append((index, entry))
                return [index]
        try:
            plan: AppendPlan = self._producers.plan(entries, index, self._past.find, self._admit, compare)
        except LogError as error:
            return self._explained(error)
        new += plan.new
        return plan.indexes

    def _admit(self, index: int, entry: NewEntry) -> None:
        self._decisions().admit(index, entry)

    def _decisions(self) -> Guard:
        """The newest decision. It is read while none is planned, so the newest in the log is the newest there is."""
        if self._guard is None:
            sequence = self._producers.newest.get(CONTROL_PRODUCER, 0)
            found = read_record(self.directory, self._control, self._trim) if self._control else None
            self._guard = Guard.after(self._control, sequence, found)
        return self._guard

    def _encode(self, new: list[tuple[int, NewEntry]]) -> list[FrameChunk]:
        """Frames of all new entries, in chunks."""
        now_us = time.time_ns() // 1000
        chunks: list[FrameChunk] = []
        parts: list[bytes] = []
        since, room, control = 0, CHUNK_BYTES_MAX, self._control
        last, is_control = len(new) - 1, Kind.CONTROL
        entries = [entry for _, entry in new]
        marks = [mark_of(entry[2]) for entry in entries]  # Of the payloads.
        values = extend_all(self._chain, entries, marks)
        for nth, ((index, entry), value) in enumerate(zip(new, values, strict=True)):
            parts += encode_frame(index, entry, now_us, value)
            room -= len(entry[2])
            if entry[3] == is_control:
                control = index
            if room <= 0 or nth == last:
                members = new[since : nth + 1]
                runs = runs_of(members, marks[since : nth + 1])
                chunks.append(FrameChunk(members[0][0], len(members), control, runs, b"".join(parts), value))
                parts, since, room = [], nth + 1, CHUNK_BYTES_MAX
        return chunks

    def _require_same(self, planned: list[tuple[int, NewEntry]], index: int, entry: NewEntry) -> None:
        """Raise ``ProducerConflict`` unless ``entry`` is what ``index`` holds, or will hold after this commit."""
        if index >= self._next:
            check_mark(Place(index, mark_of(planned[index - self._next][1].payload)), entry)
        else:
            self._past.compare(index, entry, self._db if index >= self._segment_first else None)

    def _rotate(self) -> None:
        """Start a new segment at the next index; the old one is never written again."""
        newest, chain, trimmed_chain = dict(self._producers.newest), self._chain.hex(), self._trimmed_chain.hex()
        start = Start(self.log_id, self._next, self._control, self._trim, newest, chain, trimmed_chain)
        segment.create(self.directory.segment(self._next), start, self.directory.spare)
        assert self._db is not None
        sealed, self._db = self._db, None  # It is the checkpointer's from here on, also if what follows fails.
        self._checkpointer.seal(self.directory.segment(self._segment_first), sealed)
        self._db = segment.connect(self.directory.segment(self._next), write=True)
        self._segment_first, self._bytes = self._next, 0

    def _answer_trim(self, request: FileLogRequest) -> None:
        error: LogError | None = None
        try:
            assert request.trim is not None
            self._trim_even_if_full(request.trim, request.history)
        except (BadRequest, ControlJammed, LogDiverged) as refused:
            error = refused
        except (sqlite3.Error, OSError, LogError) as trouble:
            error = self._recover(trouble)
        self._tell([(request.token, [self._trim - 1], error)], [], self._standing())

    def _answer_newest(self, request: FileLogRequest) -> None:
        outcome: Outcome
        try:
            self._require_ready()
            outcome = request.token, [*self._newest_of(request.producer)], None
        except (sqlite3.Error, OSError, LogError) as trouble:
            outcome = request.token, [], self._recover(trouble)
        self._tell([outcome], [], self._standing())

    def _explained(self, error: LogError) -> LogError:
        """A conflict says how far the other one is, unless that cannot be read: the refusal is right without it."""
        if is_in_the_log(error):
            with contextlib.suppress(sqlite3.Error, OSError, LogError):
                return with_newest(error, self._newest_of(error.producer))
        return error

    def _newest_of(self, producer: str) -> Newest:
        sequence = self._producers.newest.get(producer, 0)
        index = self._producers.recent(producer, sequence)
        if sequence and not index:
            index = self._past.find(producer, sequence)
        return Newest(sequence, index)

    def _trim_even_if_full(self, up_to: int, history: History | None) -> None:
        """A trim makes room, so it must not fail because there is none."""
        try:
            self._require_ready()
            self._require_history(history, up_to)
            self._do_trim(up_to)
        except (sqlite3.Error, OSError, LogUnavailable) as error:
            trouble = self._recover(error)  # Before the reserve goes: it may make a checkpoint.
            if self._broken or not isinstance(trouble, (LogFull, LogUnavailable)):  # To read takes room, too.
                raise
            with self._room_from_reserve():
                self._require_ready()
                self._require_history(history, up_to)
                self._do_trim(up_to)
                self._forget_trimmed()  # The first try may have got as far as the mark.

    @contextlib.contextmanager
    def _room_from_reserve(self) -> Iterator[None]:
        with self._checkpointer.at_rest:
            self.directory.give_up_reserve()
            try:
                yield
            finally:
                self.directory.keep_reserve()

    def _do_trim(self, up_to: int) -> None:
        if up_to >= self._next:
            raise BadRequest(f"cannot trim up to {up_to}: the newest entry is {self._next - 1}")
        up_to = self._decisions().trim_limit(up_to)
        if up_to >= self._trim:
            assert self._db is not None
            chain = self._chain_at(up_to)
            segment.write_trim(self._db, up_to + 1, chain)
            crashpoint("trim-marked")
            self._trim, self._trimmed_chain = up_to + 1, chain
        # The mark may be from an earlier try, which a crash or a full disk ended here.
        if self._trim == self._next and self._segment_first < self._next:
            self._rotate()
            crashpoint("trim-rotated")
        self._forget_trimmed()

    def _require_history(self, history: History | None, up_to: int) -> None:
        """Raise ``LogDiverged`` unless this log has the chain value that the caller has read."""
        if history is None or (history.index == self._trim - 1 and history.chain == self._trimmed_chain):
            return
        if overtaken(up_to, history, self._trim):
            return
        if not self._trim <= history.index < self._next or self._chain_at(history.index) != history.chain:
            raise other_history(history)

    def _chain_at(self, index: int) -> bytes:
        """The chain value at an index that is not trimmed."""
        if index == self._next - 1:
            return self._chain
        if index >= self._segment_first:
            assert self._db is not None
            return segment.read_chain(self._db, index)
        return self._past.chain(index)

    def _forget_trimmed(self) -> None:
        """Delete every segment that lies wholly below the trim point, oldest first."""
        firsts = self.directory.segments()
        for first, following in itertools.pairwise(firsts):
            if following <= self._trim:
                self._checkpointer.release(self.directory.segment(first))
                self.directory.forget(first)

    def _require_ready(self) -> None:
        """After trouble, the state is read again as soon as that is possible."""
        if self._broken:
            raise LogUnavailable(self._broken)
        if self._db is None:
            self._load()

    def _recover(self, error: Exception) -> LogError:
        """After a failed commit, trust only what is on the disk: forget the memory and read the state again."""
        if self._broken:
            return LogUnavailable(self._broken)
        name = getattr(error, "sqlite_errorname", "")
        where = self.directory.path
        if name in ("SQLITE_IOERR_FSYNC", "SQLITE_IOERR_DIR_FSYNC") or getattr(error, "errno", None) == errno.EIO:
            # After a failed sync the kernel may call lost pages clean: no later success could be believed.
            self._broken = f"the disk of {where} failed to sync; check it, then start the log's process again"
            return LogUnavailable(self._broken)
        with contextlib.suppress(sqlite3.Error, OSError, LogError):
            self._load()  # Else the next request tries: on a full disk not even this may work.
        if isinstance(error, LogError):
            return error
        if name == "SQLITE_FULL" or getattr(error, "errno", None) in (27, 28, 122):
            self.directory.spare.drop()
            return LogFull(f"no room on the disk of {where}; free some and append again (nothing is lost)")
        return LogFull(f"cannot write to {where} ({error}); make room or mend the disk and append again")
