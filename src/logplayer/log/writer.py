"""The one thread that writes a file log: it commits all appends that wait as one group.

The steps of a commit, and what a crash leaves (docs/log.md draws them): plan the indexes in memory; write the rows;
COMMIT, which syncs and is the commit point; tell the readers and the producers. Before the commit point nothing has
happened, after it the entries are there and a retry of the same sequence gets the same index.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import sqlite3
import threading
import time
import uuid
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from logplayer.errors import LogError, LogFull, LogUnavailable
from logplayer.log import segment
from logplayer.log.checkpoint import Checkpointer
from logplayer.log.crashpoint import crashpoint
from logplayer.log.directory import Directory
from logplayer.log.frame import encode_frame
from logplayer.log.protocol import BadRequest, Kind, NewEntry
from logplayer.log.segment import Chunk, Start
from logplayer.log.sequences import RECENT_COUNT_MAX, Plan, Producers, runs_of

GROUP_COMMIT_BYTES_MAX = 4 * 1024 * 1024
GROUP_COMMIT_COUNT_MAX = RECENT_COUNT_MAX // 4  # So that a retry in the same commit finds the first try in memory.
CHUNK_BYTES_MAX = 1024 * 1024  # Bounds what a reader takes into memory at once.
SEGMENT_BYTES = 64 * 1024 * 1024
SEGMENT_COUNT_MAX = 200_000  # Bounds the headers to be read when the log opens.


class Request(NamedTuple):
    """One call that waits: a group to append, or, when ``trim`` is set, a trim. ``token`` is the caller's."""

    entries: Sequence[NewEntry]
    trim: int | None
    token: Any


Outcome = tuple[Any, list[int], LogError | None]
"""The answer to one request: its token, and the indexes or the error."""


class Standing(NamedTuple):
    """Where the log stands after a commit."""

    first: int
    last: int
    control: int


Tell = Callable[[list[Outcome], list[Chunk], Standing], None]


class Writer:
    """Owns the newest segment. ``open`` in any thread, then everything else happens in the writer's own thread."""

    def __init__(self, directory: Directory, tell: Tell, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.directory = directory
        self.log_id = ""
        self._tell = tell
        self._segment_bytes_max = segment_bytes
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._held: Request | None = None
        self._checkpointer = Checkpointer(directory.spare, segment_bytes * 5 // 4)  # Pages take more than entries.
        self._thread = threading.Thread(target=self._run, name="logplayer-log-writer", daemon=True)
        self._broken: str | None = None
        self._db: sqlite3.Connection | None = None

    def open(self) -> Standing:
        """Lock, recover and start. A crash at any earlier moment needs no more than this."""
        self.directory.check()
        self.directory.lock()
        try:
            self.directory.clean()
            if not self.directory.segments():
                start = Start(uuid.uuid4().hex, 1, 0, 1, {})
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

    def submit(self, request: Request) -> None:
        self._requests.put(request)

    def close(self) -> None:
        """Commit what waits, then stop. Blocks; call it outside the event loop."""
        self._requests.put(None)
        self._thread.join()
        self._checkpointer.stop()
        self._close_db()
        self.directory.spare.drop()
        self.directory.unlock()

    def _standing(self) -> Standing:
        return Standing(self._trim, self._next - 1, self._control)

    def _close_db(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _load(self) -> None:
        """Read the state from the newest segment: its start, plus its headers. Changes nothing if it fails."""
        self._close_db()
        newest = self.directory.segments()[-1]
        db = segment.connect(self.directory.segment(newest), write=True)
        try:
            start, trim = segment.read_start(db), segment.read_trim(db)
            control, following = start.control, start.first
            producers = Producers()
            producers.newest.update(start.newest)
            for first, count, control, runs in segment.headers(db):  # noqa: B007
                for run in runs:
                    producers.learn(run)
                following = first + count
            size = db.execute("SELECT coalesce(sum(length(data)), 0) FROM chunks").fetchone()[0]
        except BaseException:
            db.close()
            raise
        self._db, self.log_id, self._segment_first, self._bytes = db, start.log_id, newest, size
        self._trim, self._next, self._control, self._producers = trim, following, control, producers

    def _run(self) -> None:
        while True:
            requests = self._take()
            if requests is None:
                return
            if requests[0].trim is not None:
                self._answer_trim(requests[0])
            else:
                self._answer_appends(requests)

    def _take(self) -> list[Request] | None:
        """All appends that wait, up to a limit; or one trim; or None at the end."""
        request = self._held or self._requests.get()
        self._held = None
        if request is None:
            return None
        taken = [request]
        if request.trim is not None:
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
            if request.trim is not None:
                self._held = request
                break
            taken.append(request)
            count += len(request.entries)
            for entry in request.entries:
                room -= len(entry.payload)
        return taken

    def _answer_appends(self, requests: list[Request]) -> None:
        outcomes: list[Outcome] = []
        chunks: list[Chunk] = []
        try:
            self._require_ready()
            if self._bytes >= self._segment_bytes_max or self._next - self._segment_first >= SEGMENT_COUNT_MAX:
                self._rotate()
            new = self._plan(requests, outcomes)
            if new:
                chunks = self._encode(new)
                crashpoint("before-begin")
                assert self._db is not None
                segment.insert(self._db, chunks)
                crashpoint("committed")
                self._bytes += sum(len(chunk.data) for chunk in chunks)
                self._control, self._next = chunks[-1].control, chunks[-1].last + 1
        except Exception as error:  # noqa: BLE001 - whatever it is, everybody else waits for this thread.
            trouble = self._recover(error)
            self._tell([(request.token, [], trouble) for request in requests], [], self._standing())
            return
        self._tell(outcomes, chunks, self._standing())
        crashpoint("answered")
        if chunks:
            self._checkpointer.wrote(self.directory.segment(self._segment_first), chunks)

    def _plan(self, requests: list[Request], outcomes: list[Outcome]) -> list[tuple[int, NewEntry]]:
        new: list[tuple[int, NewEntry]] = []
        index, plan_next = self._next, self._producers.plan_next
        for entries, _, token in requests:
            if len(entries) == 1:
                [entry] = entries
                if plan_next(entry[0], entry[1], index):
                    new.append((index, entry))
                    outcomes.append((token, [index], None))
                    index += 1
                    continue
            try:
                plan: Plan = self._producers.plan(entries, index, self._look_up)
            except LogError as error:
                outcomes.append((token, [], error))
                continue
            new += plan.new
            index += len(plan.new)
            outcomes.append((token, plan.indexes, None))
        return new

    def _encode(self, new: list[tuple[int, NewEntry]]) -> list[Chunk]:
        """Frames of all new entries, in chunks."""
        now_us = time.time_ns() // 1000
        chunks: list[Chunk] = []
        parts: list[bytes] = []
        since, room, control = 0, CHUNK_BYTES_MAX, self._control
        last, is_control = len(new) - 1, Kind.CONTROL
        for nth, (index, entry) in enumerate(new):
            parts += encode_frame(index, entry, now_us)
            room -= len(entry[2])
            if entry[3] == is_control:
                control = index
            if room <= 0 or nth == last:
                members = new[since : nth + 1]
                chunks.append(Chunk(members[0][0], len(members), control, runs_of(members), b"".join(parts)))
                parts, since, room = [], nth + 1, CHUNK_BYTES_MAX
        return chunks

    def _look_up(self, producer: str, sequence: int) -> int:
        """The first index of an old sequence: from the headers of its segment, or from the history."""
        firsts = self.directory.segments()

        def newest_at_start(first: int) -> int:
            db = segment.connect(self.directory.segment(first))
            try:
                return segment.read_start(db).newest.get(producer, 0)
            finally:
                db.close()

        nth = bisect_left(firsts, sequence, key=newest_at_start) - 1
        if nth >= 0:
            db = segment.connect(self.directory.segment(firsts[nth]))
            try:
                for _, _, _, runs in segment.headers(db):
                    for run in runs:
                        if run.producer == producer and run.sequence <= sequence < run.sequence + run.count:
                            return run.index + sequence - run.sequence
            finally:
                db.close()
        index = self.directory.trimmed_index(producer, sequence)
        if index is None:
            raise LogError(
                f"the index of sequence {sequence} of producer {producer!r} is in neither a segment nor history.db "
                f"of {self.directory.path}; restore history.db from a backup"
            )
        return index

    def _rotate(self) -> None:
        """Start a new segment at the next index; the old one is never written again."""
        start = Start(self.log_id, self._next, self._control, self._trim, dict(self._producers.newest))
        segment.create(self.directory.segment(self._next), start, self.directory.spare)
        assert self._db is not None
        sealed, self._db = self._db, None  # It is the checkpointer's from here on, also if what follows fails.
        self._checkpointer.seal(self.directory.segment(self._segment_first), sealed)
        self._db = segment.connect(self.directory.segment(self._next), write=True)
        self._segment_first, self._bytes = self._next, 0

    def _answer_trim(self, request: Request) -> None:
        error: LogError | None = None
        try:
            assert request.trim is not None
            self._trim_even_if_full(request.trim)
        except BadRequest as refused:
            error = refused
        except (sqlite3.Error, OSError, LogError) as trouble:
            error = self._recover(trouble)
        self._tell([(request.token, [], error)], [], self._standing())

    def _trim_even_if_full(self, up_to: int) -> None:
        """A trim makes room, so it must not fail for want of it."""
        try:
            self._require_ready()
            self._do_trim(up_to)
        except (sqlite3.Error, OSError) as error:
            if not isinstance(self._recover(error), LogFull):  # Before the reserve goes: it may make a checkpoint.
                raise
            with self._checkpointer.at_rest:
                self.directory.give_up_reserve()
                self._require_ready()
                self._do_trim(up_to)
                self._forget_trimmed()  # The first try may have got as far as the mark.
                self.directory.keep_reserve()

    def _do_trim(self, up_to: int) -> None:
        if up_to >= self._next:
            raise BadRequest(f"cannot trim up to {up_to}: the newest entry is {self._next - 1}")
        if up_to >= self._trim:
            assert self._db is not None
            segment.write_trim(self._db, up_to + 1)
            crashpoint("trim-marked")
            self._trim = up_to + 1
        # The mark may be from an earlier try, which a crash or a full disk ended here.
        if self._trim == self._next and self._segment_first < self._next:
            self._rotate()
            crashpoint("trim-rotated")
        self._forget_trimmed()

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
        if name in ("SQLITE_IOERR_FSYNC", "SQLITE_IOERR_DIR_FSYNC"):
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
