"""Backs up a file log while it is written, and restores it.

A backup is a directory with a copy of each segment, the history of what was trimmed, and ``BACKUP.json``: what the log
had, and the length and checksum of every file. That one is written last, and only after the copy was read from end to
end against the chain, so a backup that is there is a whole one.

``copying.py`` says why the copy is one log, although the original goes on meanwhile. A restored log is put in place by
one rename: it is there as a whole, or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from logplayer.crashpoint import crashpoint
from logplayer.errors import CorruptEntry, DamagedLog, LogError, LogFormatError
from logplayer.fsync import make_private_file, sync
from logplayer.log.file import segment
from logplayer.log.file.copying import HISTORY, copy_log
from logplayer.log.file.directory import Directory
from logplayer.log.file.log import FileLog
from logplayer.log.file.segment import Start
from logplayer.log.protocol import Info
from logplayer.log.verify import LogFault, verify_log

MANIFEST = "BACKUP.json"
FORMAT = 1
COPY_BYTES = 1024 * 1024
_FILE = re.compile(rf"[0-9]{{20}}\.seg|{re.escape(HISTORY)}")


class LogBackup(NamedTuple):
    """A backup of a log, or a log that was restored from one: what it holds.

    Attributes:
        log_id: Which log it is.
        first: The first index that was not trimmed.
        last: The index of the newest entry.
        chain: The chain value at ``last``.
        trimmed_chain: The chain value at ``first - 1``.
        control: The index of the newest decision; 0 if there is none.
        bytes: What its files take.
        taken_at: When the backup was taken: seconds since 1970.
        faults: What is wrong with it; empty unless the caller has allowed that.

    Example:
        >>> (await lp.backup_log("/var/lib/wal", "/backup/wal")).last  # doctest: +SKIP
        42
    """

    log_id: str
    first: int
    last: int
    chain: bytes
    trimmed_chain: bytes
    control: int
    bytes: int
    taken_at: float
    faults: list[LogFault]


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
        await asyncio.to_thread(copy_log, source, part)
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
        for name in files:  # Nobody vouches for them: the checksum has no key, and a path would be written to.
            if not _FILE.fullmatch(name):
                raise ValueError(f"it names a file {name!r}, which no log has")
        del facts["format"]
        facts["faults"] = [LogFault(**fault) for fault in facts["faults"]]
        facts |= {name: bytes.fromhex(facts[name]) for name in ("chain", "trimmed_chain")}
        return LogBackup(**facts), files
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedLog(f"{source / MANIFEST} is damaged ({error}); take another backup") from None
