"""``logplayer log append``: transactions from stdin, in groups of what is there: nobody waits for more."""

from __future__ import annotations

import asyncio
import json
import queue
import sys
import threading
import time
import uuid

import click

from logplayer.errors import EntryTooLarge, SequenceGap, UserError
from logplayer.log.protocol import Log, NewEntry
from logplayer.log.text import parse_line

GROUP_LINES_MAX = 500
GROUP_BYTES_MAX = 1024 * 1024


class Progress:
    """A counter on stderr, for people only."""

    def __init__(self) -> None:
        self.count = 0
        self._shown_at = self._started = time.monotonic()
        self._on = sys.stderr.isatty()

    def add(self, count: int) -> None:
        self.count += count
        now = time.monotonic()
        if self._on and now - self._shown_at > 0.2:
            self._shown_at = now
            rate = self.count / (now - self._started)
            click.echo(f"\r{self.count:,} appended ({rate:,.0f}/s) ", nl=False, err=True)

    def end(self) -> None:
        if self._on:
            click.echo("\r\033[K", nl=False, err=True)


def _read_stdin(lines: queue.Queue[tuple[int, str] | None]) -> None:
    for number, line in enumerate(sys.stdin, 1):
        if line.strip():
            lines.put((number, line))
    lines.put(None)


def _take(lines: queue.Queue[tuple[int, str] | None]) -> tuple[list[tuple[int, str]], bool]:
    """All lines that are there, at least one; and whether that was the end."""
    taken: list[tuple[int, str]] = []
    room = GROUP_BYTES_MAX
    while len(taken) < GROUP_LINES_MAX and room > 0:
        try:
            item = lines.get(block=not taken)
        except queue.Empty:
            break
        if item is None:
            return taken, True
        taken.append(item)
        room -= len(item[1])
    return taken, False


async def append_lines(log: Log, as_json: bool) -> None:
    """Append every line; the first bad one ends it, with what came before in the log."""
    lines: queue.Queue[tuple[int, str] | None] = queue.Queue(4 * GROUP_LINES_MAX)
    threading.Thread(target=_read_stdin, args=(lines,), daemon=True).start()
    own, sequence = f"cli-{uuid.uuid4().hex[:12]}", 0
    progress, first, last, ended = Progress(), 0, 0, False
    try:
        while not ended:
            taken, ended = await asyncio.to_thread(_take, lines)
            group: list[tuple[int, NewEntry]] = []
            bad: UserError | None = None
            for number, text in taken:
                try:
                    line = parse_line(text, f"line {number}")
                except UserError as error:
                    bad = error
                    break
                sequence += line.producer is None
                who = (own, sequence) if line.producer is None else (line.producer, line.sequence)
                group.append((number, NewEntry(*who, line.payload)))
            if group:
                indexes = await _append_group(log, group, as_json)
                first, last = first or indexes[0], indexes[-1]
                progress.add(len(group))
            if bad is not None:
                raise bad
    finally:
        progress.end()
    if not as_json:
        where = f", indexes {first} to {last}" if progress.count else ""
        click.echo(f"appended {progress.count} transactions{where}")


async def _append_group(log: Log, group: list[tuple[int, NewEntry]], as_json: bool) -> list[int]:
    """As one group; if that is refused, one by one, so that the lines before the bad one are in and it is named."""
    try:
        indexes = await log.append([entry for _, entry in group])
        _report(group, indexes, as_json)
        return indexes
    except (SequenceGap, EntryTooLarge):
        pass
    indexes = []
    for number, entry in group:
        try:
            indexes += await log.append([entry])
        except UserError as error:
            raise type(error)(f"line {number}: {error}") from None
        _report([(number, entry)], indexes[-1:], as_json)
    return indexes


def _report(group: list[tuple[int, NewEntry]], indexes: list[int], as_json: bool) -> None:
    if as_json:
        for (_, entry), index in zip(group, indexes, strict=True):
            click.echo(json.dumps({"index": index, "producer": entry.producer, "sequence": entry.sequence}))
