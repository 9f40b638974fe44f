"""A target in an embedded RocksDB directory.

Durable: each change is one write batch, synced to RocksDB's own log before the ack. Keys carry a prefix: ``d`` and the
key for data, ``q`` and eight bytes of index for the quarantine, ``p`` for the position. RocksDB lets one process
have a directory open for writing, so nothing can move the position between the check and the write.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rocksdict import AccessType, Options, Rdict, ReadOptions, WriteBatch, WriteOptions

from logplayer.core.fence import Position
from logplayer.crashpoint import crashpoint
from logplayer.errors import TargetError, Unavailable, UserError
from logplayer.fsync import make_private_directory
from logplayer.target.protocol import Change, Store
from logplayer.wire import codec
from logplayer.wire.logplayer.v1 import target_pb2 as pb

_DATA, _POSITION, _QUARANTINE = b"d", b"p", b"q"


class RocksTarget(Store):
    """Rows in a RocksDB directory.

    Args:
        path: The directory. It belongs to one target.
        name: The target's name.
        read_only: Only read, also while a server has it open: what was there when it was opened.

    Raises:
        Unavailable: Another process has it open for writing.
        UserError: The directory belongs to another target, or is not a RocksDB.

    Example:
        >>> lp.TargetServer({"a": lp.RocksTarget("a.rocks", "a")})  # doctest: +SKIP
    """

    def __init__(self, path: str | Path, name: str, *, read_only: bool = False) -> None:
        self._name = name
        self._read_only = read_only
        self._synced = WriteOptions()
        self._synced.sync = True
        if read_only and not Path(path).is_dir():
            raise UserError(f"{path} is not there")
        try:
            if not read_only:
                make_private_directory(Path(path))
            access = AccessType.read_only() if read_only else AccessType.read_write()
            self._db = Rdict(str(path), Options(raw_mode=True), access_type=access)
        except Exception as error:  # noqa: BLE001 - rocksdict raises bare Exceptions.
            if _is_locked(Path(path)):
                raise Unavailable(f"{path} is open in another process; stop it, or give this target its own") from None
            raise UserError(f"{path} cannot be opened as a target's RocksDB: {error}") from None
        stored = self._db.get(_POSITION)
        owner = name if stored is None else pb.PositionReply.FromString(stored).target
        if owner != name:
            self._db.close()
            raise UserError(f"{path} belongs to target {owner!r}, not to {name!r}")

    def position(self) -> Position:
        stored = self._db.get(_POSITION)
        return Position() if stored is None else codec.decode_position(stored)

    def apply(self, change: Change) -> Position:
        if self._read_only:
            raise TargetError("this store was opened for reading")
        after = change.check(self.position())
        batch = WriteBatch(raw_mode=True)
        for _, key, value in change.rows:
            if value is None:
                batch.delete(_DATA + key)
            else:
                batch.put(_DATA + key, value)
        for message in change.quarantined:
            batch.put(_QUARANTINE + message.index.to_bytes(8, "big"), message.payload)
        crashpoint("store-rows-written")
        batch.put(_POSITION, codec.encode_position(self._name, after))
        crashpoint("store-position-written")
        self._db.write(batch, self._synced)
        crashpoint("store-committed")
        return after

    def get(self, key: bytes) -> bytes | None:
        value: bytes | None = self._db.get(_DATA + key)
        return value

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        yield from self._prefixed(_DATA)

    def quarantine(self) -> Iterator[tuple[int, bytes]]:
        for key, payload in self._prefixed(_QUARANTINE):
            yield int.from_bytes(key, "big"), payload

    def close(self) -> None:
        self._db.close()

    def _prefixed(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        items: Any = self._db.items(from_key=prefix, read_opt=ReadOptions())
        for key, value in items:
            if not key.startswith(prefix):
                break
            yield key[1:], value


def _is_locked(path: Path) -> bool:
    """Whether another process has the directory open: RocksDB locks this file, and says so in words only."""
    try:
        lock = os.open(path / "LOCK", os.O_RDWR | os.O_CLOEXEC)
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return True
    except OSError:
        return False
    return False  # The file stays open: to close it would take the lock from a store that this process itself has.
