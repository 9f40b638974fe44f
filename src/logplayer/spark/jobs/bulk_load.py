"""Builds a target's SQLite file in one sorted pass: data, digest and position, whole or not at all."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from logplayer.core import digest as digests
from logplayer.errors import UserError
from logplayer.fsync import sync
from logplayer.log.protocol import History
from logplayer.spark.jobs import expected_state
from logplayer.target.stores.sqlite import SqliteTarget


def load_sqlite(path: str, target: str, parts: Sequence[expected_state.Folded], through: History, log_id: str) -> int:
    """Write what is left of each key after ``parts``, and the position ``through``. Returns the number of keys.

    The file is built under another name without any syncing, synced once and renamed: a crash leaves no file, and a
    retry builds it again. A file with data is not replaced.
    """
    final = Path(path)
    require_buildable(final, target)
    new = final.with_name(f".{final.name}.{os.getpid()}.new")
    for leftover in (new, Path(f"{new}-wal"), Path(f"{new}-shm")):
        leftover.unlink(missing_ok=True)
    SqliteTarget(new, target).close()
    db = sqlite3.connect(new, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("BEGIN")
        db.executemany("INSERT INTO data (key, value) VALUES (?, ?)", _rows(parts))
        keys: int = db.execute("SELECT count(*) FROM data").fetchone()[0]
        db.execute(
            "REPLACE INTO position (one, target, log_index, epoch, term, digest, log_id, chain) "
            "VALUES (1, ?, ?, 0, 1, ?, ?, ?)",
            (target, through.index, digests.to_bytes(expected_state.total_digest(parts)), log_id, through.chain),
        )
        db.execute("COMMIT")
        db.execute("PRAGMA locking_mode = NORMAL")
        db.execute("PRAGMA journal_mode = WAL")
    finally:
        db.close()
    sync(new)
    new.replace(final)
    sync(final.parent)
    return keys


def _rows(parts: Sequence[expected_state.Folded]) -> Iterator[tuple[bytes, bytes]]:
    for keys, _, values in expected_state.merge_columns(parts):
        for row in zip(keys, values, strict=True):
            if row[1] is not None:
                yield row  # type: ignore[misc]  # Its value is not None.


def require_buildable(path: Path, target: str) -> None:
    """Raise if the file cannot be built there, or would replace one with data."""
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UserError(f"{path} cannot be built: {path.parent} is not a directory that this user may write to")
    if not path.exists():
        return
    store = SqliteTarget(path, target, read_only=True)
    try:
        stood = store.position()
        if stood.index and stood.session.epoch:
            raise UserError(f"{path} holds a target at index {stood.index}; move it away before it is filled again")
    finally:
        store.close()
