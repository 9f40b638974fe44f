"""Backs up a file log while it is written, and restores it.

A backup is a directory with a copy of each segment, the history of what was trimmed, and ``BACKUP.json``: what the log
had, and the length and checksum of every file. That one is written last, and only after the copy was read from end to
end against the chain, so a backup that is there is a whole one.

Why the copy is one log, although the original goes on meanwhile:

* A sealed segment never changes. The newest one is copied in one read transaction, by SQLite itself: its rows, the
  trim point and the start state in it are of one moment.
* The newest is copied last and names the trim point. A segment that a trim removes before it was copied is not needed
  if that trim came first; whether it did, only a new look at the directory tells, so the copy begins again.
* The history is copied after all segments. A segment is in the history before it is removed, so nothing is in neither;
  what is in both, or came later, is removed from the copy.

A restored log is put in place with one rename: it is there as a whole, or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from logplayer.crashpoint import crashpoint
from logplayer.errors import CorruptEntry, DamagedLog, LogError, LogFormatError, LogUnavailable
from logplayer.fsync import make_private_file, sync
from logplayer.log.file import segment
from logplayer.log.file.directory import Directory
from logplayer.log.file.log import FileLog
from logplayer.log.file.segment import Start
from logplayer.log.protocol import Info
from logplayer.log.sequences import index_in_span
from logplayer.log.verify import LogFault, verify_log

MANIFEST = "BACKUP.json"
FORMAT = 1
HISTORY = "history.db"
ATTEMPTS_MAX = 20
COPY_BYTES = 1024 * 1024


class LogBackup(NamedTuple):
    """A backup of a log, or a log that was restored from one: what it holds.

    Example:
        >>> (await lp.backup_log("/var/lib/wal", "/backup/wal")).last  # doctest: +SKIP
        42
    """

    log_id: str
    first: int
    last: int
    chain: bytes  # At ``last``.
    trimmed_chain: bytes  # At ``first - 1``.
    control: int
    bytes: int  # Of its files.
    taken_at: float  # Seconds since 1970.
    faults: list[LogFault]  # Empty unless the caller has allowed them.


async def backup_log(path: str | Path, to: str | Path, *, damaged_too: bool = False) -> LogBackup:
    """Copy the file log at ``path`` to the new or empty directory ``to``, whether or not a process writes to it.

    Returns once the copy is durable and was read from end to end: every checksum, and the chain.

    Args:
        path: The directory of the log, which may be written meanwhile.
        to: The directory of the backup; it must be new or empty.
        damaged_too: Back up what cannot be read right, too.

    Raises:
        LogFormatError: There is no log, or something else is at ``to``.
        DamagedLog: An entry is damaged, or the chain breaks. With ``damaged_too`` the faults are returned instead.

    Example:
        >>> await lp.backup_log("/var/lib/wal", "/backup/wal")  # doctest: +SKIP
    """
    source, place = Directory(Path(path)), _absolute(to)
    source.check()
    if not source.segments():
        raise LogFormatError(f"there is no log at {source.path}; name the directory that is served or appended to")
    _require_free(place, "a backup")
    with _part_of(place) as part:
        await asyncio.to_thread(_copy, source, part)
        info, faults = await _verify(part)
        if faults and not damaged_too:
            raise _damaged(f"the log at {source.path}", "nothing was backed up", faults)
        files = await asyncio.to_thread(_sums, part)
        bytes_ = sum(length for length, _ in files.values())
        made = LogBackup(
            info.log_id,
            info.first,
            info.last,
            info.chain,
            info.trimmed_chain,
            info.control,
            bytes_,
            round(time.time(), 3),
            faults,
        )
        await asyncio.to_thread(_write_manifest, part, made, files)
        await asyncio.to_thread(_put_in_place, part, place)
    return made


async def restore_log(backup: str | Path, to: str | Path, *, damaged_too: bool = False) -> LogBackup:
    """Make a file log at ``to``, a new or empty directory, from a backup; the backup itself is only read.

    The copy is read from end to end before it is put in place.

    Args:
        backup: The directory of the backup.
        to: The directory of the log; it must be new or empty.
        damaged_too: Restore a backup that is damaged, too.

    Raises:
        LogFormatError: There is no backup, or something else is at ``to``.
        DamagedLog: The backup is not what was backed up. With ``damaged_too`` the faults are returned instead.

    Example:
        >>> await lp.restore_log("/backup/wal", "/var/lib/wal")  # doctest: +SKIP
    """
    source, place = Path(backup), _absolute(to)
    made, files = _read_manifest(source)
    _require_free(place, "a log")
    with _part_of(place) as part:
        faults = await asyncio.to_thread(_copy_files, source, part, files)
        try:
            info, found = await _verify(part)
        except DamagedLog as error:
            raise _damaged(f"the backup {source}", "nothing was restored", faults) if faults else error from None
        faults += found + _compare(info, made)
        if faults and not damaged_too:
            raise _damaged(f"the backup {source}", "nothing was restored", faults)
        await asyncio.to_thread(_put_in_place, part, place)
    return made._replace(faults=faults)


def _compare(info: Info, made: LogBackup) -> list[LogFault]:
    """Whether the log in the files is the one that the manifest describes."""
    was, is_ = ((one.log_id, one.first, one.trimmed_chain.hex(), one.last, one.chain.hex()) for one in (made, info))
    if was == is_:
        return []
    names = ("log_id", "first", "trimmed_chain", "last", "chain")
    differ = [
        f"{name} {one!r}, not {other!r}" for name, one, other in zip(names, is_, was, strict=True) if one != other
    ]
    return [LogFault(info.last, f"the files hold another log than {MANIFEST} says: {', '.join(differ)}")]


def _damaged(what: str, so: str, faults: list[LogFault]) -> DamagedLog:
    first, *others = faults
    more = f" (and {len(others)} more)" if others else ""
    remedy = "take another backup, or accept it as it is with --damaged-too"
    return DamagedLog(f"{what} is not whole: {first.why}{more}; {so}: {remedy}", faults)


# --- The place ---


def _absolute(path: str | Path) -> Path:
    return Path(os.path.abspath(path))


def _require_free(place: Path, what: str) -> None:
    """Refuse a place that holds anything, before anything is written."""
    if not place.exists():
        return
    if not place.is_dir():
        raise LogFormatError(f"{place} is a file; {what} is a directory: name another path")
    names = sorted(os.listdir(place))
    if Directory(place).segments():
        held = "a backup" if MANIFEST in names else "a log"
        raise LogFormatError(f"{place} holds {held}; it was left as it is: name a new or empty directory")
    if names:
        raise LogFormatError(f"{place} is not empty, it holds {names[0]!r}: name a new or empty directory")


@contextlib.contextmanager
def _part_of(place: Path) -> Iterator[Path]:
    """A private directory beside ``place``; what is still in it at the end is removed."""
    if not place.parent.is_dir():
        raise LogFormatError(f"{place.parent} is not a directory; make it first, or name another path")
    part = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent))
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _put_in_place(part: Path, place: Path) -> None:
    """Durable first, then its name: the rename is the commit point."""
    for name in os.listdir(part):
        if name.endswith(("-wal", "-shm")):
            (part / name).unlink()  # Left by the reader that verified it; nothing is in it.
        else:
            sync(part / name)
    sync(part)
    crashpoint("copy-durable")
    try:
        os.rename(part, place)  # Over an empty directory, too, but over nothing else.
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.EXDEV):
            raise LogFormatError(f"{place} is a mount point; name a directory below it") from None
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise LogFormatError(f"something else was put at {place} meanwhile; name a new directory") from None
        raise
    sync(place.parent)


async def _verify(part: Path) -> tuple[Info, list[LogFault]]:
    """What the copy has, and every fault of its entries, its chain, and what it knows of its producers."""
    try:
        log = await FileLog.open(part, readonly=True)
        try:
            found = await verify_log(log)
        finally:
            await log.close()
        return found.info, found.faults + await asyncio.to_thread(_check_starts, Directory(part))
    except (sqlite3.Error, LogError) as error:
        raise DamagedLog(f"the copy cannot be read: {error}") from None


def _check_starts(directory: Directory) -> list[LogFault]:
    """Each segment must start with what the one before it ends with, and the first with what the history knows."""
    faults: list[LogFault] = []
    before: tuple[str, int, bytes] | None = None
    for first in directory.segments():
        with contextlib.closing(segment.connect(directory.segment(first))) as db:
            start = segment.read_start(db)
            if before is None:
                faults += _check_history(directory, start)
            elif before != (start.log_id, start.first, bytes.fromhex(start.chain)):
                faults.append(
                    LogFault(first, f"the segment that starts at {first} does not continue the one before it")
                )
            with contextlib.suppress(CorruptEntry):  # Named already, as an entry.
                last, _, chain = segment.read_tail(db)
                before = start.log_id, last + 1, chain
    return faults


def _check_history(directory: Directory, start: Start) -> list[LogFault]:
    """Every producer's trimmed sequences must be known, or the log could not answer a retry of one."""
    known: dict[str, int] = {}
    if (directory.path / HISTORY).exists():
        with contextlib.closing(sqlite3.connect(directory.path / HISTORY)) as history:
            for producer, first, last in history.execute("SELECT producer, first, last FROM spans ORDER BY 1, 2"):
                if first == known.get(producer, 0) + 1:
                    known[producer] = last
    return [
        LogFault(
            start.first - 1,
            f"{HISTORY} knows the sequences of producer {producer!r} up to {known.get(producer, 0)}, but {newest} were "
            "trimmed: a retry of one could not be answered",
        )
        for producer, newest in start.newest.items()
        if known.get(producer, 0) != newest
    ]


# --- Backup ---


def _copy(source: Directory, part: Path) -> None:
    """Copy a log that may be written and trimmed meanwhile."""
    sealed: set[int] = set()  # Those that are copied and stay so.
    for _ in range(ATTEMPTS_MAX):
        firsts = source.segments()
        for gone in sealed.difference(firsts):
            (part / source.segment(gone).name).unlink()
        sealed.intersection_update(firsts)
        if all(_copy_segment(source, first, part, first != firsts[-1], sealed) for first in firsts):
            _copy_history(source, part, firsts[0])
            return
    raise LogUnavailable(
        f"{source.path} was trimmed under each of {ATTEMPTS_MAX} attempts to copy it; try again, or trim less often"
    )


def _copy_segment(source: Directory, first: int, part: Path, is_sealed: bool, sealed: set[int]) -> bool:
    """False if the segment is gone."""
    if first in sealed:
        return True
    path = source.segment(first)
    try:
        opened = segment.connect_sealed(path) if is_sealed else segment.connect(path)
        with contextlib.closing(opened) as db:
            _copy_database(db, part / path.name)
    except (sqlite3.DatabaseError, LogFormatError) as error:
        if not path.exists():
            return False
        if isinstance(error, LogFormatError):
            raise
        raise LogUnavailable(f"{path} cannot be read: {error}; check the disk and its room") from None
    if is_sealed:
        sealed.add(first)
    return path.exists()  # Else the rows that only its write-ahead log had may have gone before we opened it.


def _copy_database(db: sqlite3.Connection, to: Path) -> None:
    """In one read transaction. Nobody has the copy yet, so one sync at the end is enough."""
    to.unlink(missing_ok=True)
    make_private_file(to)
    with contextlib.closing(sqlite3.connect(to, isolation_level=None)) as copy:
        copy.execute("PRAGMA synchronous=OFF")
        copy.execute("PRAGMA journal_mode=OFF")
        db.backup(copy)


def _copy_history(source: Directory, part: Path, first: int) -> None:
    """What was trimmed before the oldest segment of the copy, which begins at ``first``: the rest is in segments."""
    if not (source.path / HISTORY).exists():
        return
    with contextlib.closing(sqlite3.connect(source.path / HISTORY, timeout=10)) as db:
        _copy_database(db, part / HISTORY)
    with contextlib.closing(sqlite3.connect(part / HISTORY)) as copy, copy:
        later = [
            (producer, sequence)
            for producer, sequence, indexes in copy.execute("SELECT producer, first, indexes FROM spans")
            if index_in_span(indexes, 0) >= first
        ]
        copy.executemany("DELETE FROM spans WHERE producer=? AND first=?", later)


# --- The files of a backup ---


def _sums(part: Path) -> dict[str, tuple[int, str]]:
    """Length and checksum of each file of a log."""
    names = sorted(name for name in os.listdir(part) if name.endswith(".seg") or name == HISTORY)
    return {name: _sum(part / name) for name in names}


def _sum(path: Path) -> tuple[int, str]:
    length, digest = 0, xxhash.xxh3_128()
    with open(path, "rb") as file:
        while data := file.read(COPY_BYTES):
            digest.update(data)
            length += len(data)
    return length, digest.hexdigest()


def _copy_files(source: Path, part: Path, files: dict[str, tuple[int, str]]) -> list[LogFault]:
    """Copy each file and compare the copy with what was backed up."""
    faults: list[LogFault] = []
    for name, expected in files.items():
        make_private_file(part / name)
        try:
            with open(source / name, "rb") as one, open(part / name, "wb") as other:
                shutil.copyfileobj(one, other, COPY_BYTES)
        except FileNotFoundError:
            raise DamagedLog(f"the backup {source} is not whole: {name} is missing; take another backup") from None
        if _sum(part / name) != expected:
            first = int(name[:20]) if name[:20].isdigit() else 0
            faults.append(LogFault(first, f"{name} is not as it was backed up: its length or checksum differs"))
    return faults


def _write_manifest(part: Path, made: LogBackup, files: dict[str, tuple[int, str]]) -> None:
    facts: dict[str, Any] = made._asdict() | {
        "format": FORMAT,
        "chain": made.chain.hex(),
        "trimmed_chain": made.trimmed_chain.hex(),
        "faults": [fault._asdict() for fault in made.faults],
        "files": files,
    }
    make_private_file(part / MANIFEST)
    (part / MANIFEST).write_text(json.dumps(facts | {"checksum": _checksum(facts)}, indent=1) + "\n")


def _checksum(facts: dict[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(facts, sort_keys=True).encode())


def _read_manifest(source: Path) -> tuple[LogBackup, dict[str, tuple[int, str]]]:
    try:
        facts = json.loads((source / MANIFEST).read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise LogFormatError(f"{source} is not a backup of a log: it has no {MANIFEST}") from None
    except ValueError as error:
        raise DamagedLog(f"{source / MANIFEST} is damaged ({error}); take another backup") from None
    try:
        stated = facts.pop("checksum")
        if facts["format"] > FORMAT:
            raise LogFormatError(
                f"{source} has format {facts['format']}; this program knows up to {FORMAT}: upgrade it"
            )
        if stated != _checksum(facts):
            raise ValueError("its checksum does not match")
        files = {name: (length, digest) for name, (length, digest) in facts.pop("files").items()}
        del facts["format"]
        facts["faults"] = [LogFault(**fault) for fault in facts["faults"]]
        facts |= {name: bytes.fromhex(facts[name]) for name in ("chain", "trimmed_chain")}
        return LogBackup(**facts), files
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedLog(f"{source / MANIFEST} is damaged ({error}); take another backup") from None
