"""A target in an embedded RocksDB directory.

Durable: each change is one write batch, synced to RocksDB's own log before the ack. Keys carry a prefix: ``d`` and the
key for data, ``q`` and eight bytes of index for the quarantine, ``p`` for the position. RocksDB lets one process
have a directory open for writing, so nothing can move the position between the check and the write.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rocksdict import AccessType, Options, Rdict, ReadOptions, WriteBatch, WriteOptions

from logplayer.core.fence import Position
from logplayer.errors import TargetError, UserError
from logplayer.target.protocol import Change
from logplayer.wire import codec
from logplayer.wire.logplayer.v1 import target_pb2 as pb

_DATA, _POSITION, _QUARANTINE = b"d", b"p", b"q"


class RocksTarget:
    """See :class:`logplayer.target.protocol.Store`. With ``read_only`` it shows what was there when it was opened."""

    def __init__(self, path: str | Path, name: str, *, read_only: bool = False) -> None:
        self._name = name
        self._read_only = read_only
        self._synced = WriteOptions()
        self._synced.sync = True
        if read_only and not Path(path).is_dir():
            raise UserError(f"{path} is not there")
        try:
            access = AccessType.read_only() if read_only else AccessType.read_write()
            self._db = Rdict(str(path), Options(raw_mode=True), access_type=access)
        except Exception as error:  # noqa: BLE001 - rocksdict raises bare Exceptions.
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
        batch.put(_POSITION, codec.encode_position(self._name, after))
        self._db.write(batch, self._synced)
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
