"""``logplayer log append``: transactions from stdin, in groups of what is there: nobody waits for more."""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import sys
import threading
import time
import uuid
from dataclasses import dataclass

import click

from logplayer.errors import (
    EntryTooLarge,
    LogError,
    LogPlayerError,
    ProducerConflict,
    SequenceGap,
    Unavailable,
    UserError,
)
from logplayer.log.json_lines import parse_line
from logplayer.log.protocol import BadRequest, Log, NewEntry
from logplayer.wording import plural

GROUP_LINES_MAX = 500
GROUP_BYTES_MAX = 1024 * 1024
LAST_ANSWER_SECONDS = 2.0  # What Ctrl-C waits for a group that is already on its way.


@dataclass(slots=True)
class _Span:
    """How many there are, and from where to where."""

    count: int = 0
    first: int = 0
    last: int = 0

    def add(self, numbers: list[int]) -> None:
        if numbers:
            self.first = min(numbers) if not self.count else min(self.first, *numbers)
            self.last = max(self.last, *numbers)
            self.count += len(numbers)


class Appended:
    """What is in the log so far; on stderr a counter, for people only."""

    def __init__(self, as_json: bool, last: int) -> None:
        self.fresh, self.repeated = _Span(), _Span()
        self.lines, self.indexes = _Span(), _Span()
        self._newest = last  # What gets no larger index than this was in the log already.
        self._as_json = as_json
        self._shown_at = self._started = time.monotonic()
        self._on = sys.stderr.isatty()

    def add(self, group: list[tuple[int, NewEntry]], indexes: list[int]) -> None:
        """Count entries that the log has answered for."""
        self.lines.add([number for number, _ in group])
        self.indexes.add(indexes)
        for (_, entry), index in zip(group, indexes, strict=True):
            repeated = index <= self._newest
            self._newest = max(self._newest, index)
            (self.repeated if repeated else self.fresh).add([index])
            if self._as_json:
                who = {"producer": entry.producer, "sequence": entry.sequence}
                click.echo(json.dumps({"index": index, **who, "repeated": repeated}))
        now = time.monotonic()
        if self._on and now - self._shown_at > 0.2:
            self._shown_at = now
            rate = self.lines.count / (now - self._started)
            click.echo(f"\r{self.lines.count:,} appended ({rate:,.0f}/s) ", nl=False, err=True)

    def clear(self) -> None:
        """Take the counter away."""
        if self._on:
            click.echo("\r\033[K", nl=False, err=True)

    def say(self, more: str = "") -> None:
        """The last line; in JSON each entry has its own already."""
        if self._as_json:
            return
        fresh, old = self.fresh, self.repeated
        where = f", indexes {fresh.first} to {fresh.last}" if fresh.count else ""
        known = ""
        if old.count:
            at = f"{old.first} to {old.last}" if old.last > old.first else str(old.first)
            known = f"; {plural(old.count, 'was', 'were')} in the log already, at {at}"
        click.echo(f"appended {plural(fresh.count, 'transaction')}{where}{known}{more}")

    def failed(self, error: LogPlayerError, at: int, *, where: str = "", through: int = 0) -> LogPlayerError:
        """The error that ends it, with what is in the log and where to go on: to send all again may append it twice.

        ``at`` is the first line that is not in the log. If the log went away with the lines ``at`` to ``through``,
        nobody knows of them.
        """
        told = "nothing was appended"
        if self.lines.count:
            told = (
                f"lines {self.lines.first} to {self.lines.last} are in the log "
                f"(indexes {self.indexes.first} to {self.indexes.last})"
            )
        if through and isinstance(error, Unavailable):
            known = f"; {told}" if self.lines.count else ""
            told = f"lines {at} to {through} got no answer, they may be in the log or not{known}"
        elif self.lines.count:
            told += f": send from line {at} on"
        kind = UserError if isinstance(error, UserError) else LogError
        return kind(f"{where}{error}; {told}")


class Lines:
    """The lines of stdin with their numbers, read by a thread that nobody waits for.

    It has a file object of its own: at its end Python waits for whoever reads ``sys.stdin``, which at a terminal or an
    open pipe may be for ever. The event loop waits for no thread either, only to be woken, so it can be interrupted.
    """

    def __init__(self) -> None:
        if sys.stdin is None:
            raise UserError("stdin is closed; give the transactions there, one per line")
        self._fd = sys.stdin.fileno()
        self._lines: queue.Queue[tuple[int, bytes] | None] = queue.Queue(4 * GROUP_LINES_MAX)
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._wanted = False
        threading.Thread(target=self._read, name="logplayer-stdin", daemon=True).start()

    def _read(self) -> None:
        try:
            with open(self._fd, "rb", closefd=False) as stdin, contextlib.suppress(OSError):
                for number, line in enumerate(stdin, 1):
                    if line.strip():
                        self._put((number, line))
        finally:
            self._put(None)

    def _put(self, item: tuple[int, bytes] | None) -> None:
        self._lines.put(item)
        if self._wanted:
            with contextlib.suppress(RuntimeError):  # The loop is gone, and with it every reader of lines.
                self._loop.call_soon_threadsafe(self._news.set)

    async def take(self) -> tuple[list[tuple[int, bytes]], bool]:
        """All lines that are there, at least one; and whether that was the end."""
        while self._lines.empty():
            self._news.clear()
            self._wanted = True  # Said before the second look: what comes after it wakes us.
            if self._lines.empty():
                await self._news.wait()
        self._wanted = False
        taken: list[tuple[int, bytes]] = []
        room = GROUP_BYTES_MAX
        while len(taken) < GROUP_LINES_MAX and room > 0 and not self._lines.empty():
            item = self._lines.get_nowait()
            if item is None:
                return taken, True
            taken.append(item)
            room -= len(item[1])
        return taken, False


async def append_lines(log: Log, as_json: bool) -> None:
    """Append every line; the first bad one ends it, with what came before in the log. So does Ctrl-C."""
    own, sequence, ended = f"cli-{uuid.uuid4().hex[:12]}", 0, False
    appended, lines = Appended(as_json, (await log.info()).last), Lines()
    try:
        while not ended:
            taken, ended = await lines.take()
            group: list[tuple[int, NewEntry]] = []
            bad: tuple[int, UserError] | None = None
            for number, text in taken:
                try:
                    line = parse_line(text, f"line {number}")
                except UserError as error:
                    bad = number, error
                    break
                sequence += line.producer is None
                who = (own, sequence) if line.producer is None else (line.producer, line.sequence)
                group.append((number, NewEntry(*who, line.payload)))
            if group:
                await _to_its_end(asyncio.ensure_future(_append_group(log, group, appended)))
            if bad is not None:
                raise appended.failed(bad[1], at=bad[0])
    except asyncio.CancelledError:
        appended.clear()
        appended.say(" before it was interrupted")
        raise
    finally:
        appended.clear()
    appended.say()


async def _to_its_end(group: asyncio.Future[None]) -> None:
    """Wait for a group, also if interrupted meanwhile, so that what is in the log is counted."""
    try:
        await asyncio.shield(group)
    except asyncio.CancelledError:
        await asyncio.wait([group], timeout=LAST_ANSWER_SECONDS)
        if not group.done() or group.cancelled() or group.exception() is not None:
            click.echo("the last lines got no answer: they may be in the log or not", err=True)
        raise


async def _append_group(log: Log, group: list[tuple[int, NewEntry]], appended: Appended) -> None:
    """As one group; if that is refused, one by one, so that the lines before the bad one are in and it is named."""
    try:
        appended.add(group, await log.append([entry for _, entry in group]))
        return
    except (SequenceGap, ProducerConflict, EntryTooLarge, BadRequest):
        pass
    except LogPlayerError as error:
        raise appended.failed(error, group[0][0], through=group[-1][0]) from None
    for number, entry in group:
        try:
            indexes = await log.append([entry])
        except UserError as error:
            raise appended.failed(error, number, where=f"line {number}: ") from None
        except LogPlayerError as error:
            raise appended.failed(error, number, through=number) from None
        appended.add([(number, entry)], indexes)
