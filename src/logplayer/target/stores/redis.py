"""A target in Redis. An ack is durable ONLY with ``appendonly yes`` and ``appendfsync always`` on the server.

With any other setting Redis answers before the data is on the disk, and a crash of the machine loses what was acked;
this store then warns once, loudly, because it cannot change that.

Data is a hash, the position a string, the quarantine a hash, all under ``logplayer:{name}:`` so that a cluster keeps
them on one node. They are written by one ``MULTI``, guarded by ``WATCH`` on the position: if another server moves it,
the transaction does not happen and the check runs again on what is there then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import redis

from logplayer.core.fence import Position
from logplayer.crashpoint import crashpoint
from logplayer.errors import TargetError, Unavailable, UserError
from logplayer.target.places import without_secrets
from logplayer.target.protocol import Change, Store
from logplayer.wire import codec
from logplayer.wire.logplayer.v1 import target_pb2 as pb

_log = logging.getLogger(__name__)


class RedisTarget(Store):
    """Rows as keys of Redis.

    Args:
        url: What redis-py takes: ``redis://host:6379/0``.
        name: The target's name, which is part of its keys in Redis.
        read_only: Only read, also while a server writes.

    Raises:
        Unavailable: The server cannot be reached.
        UserError: The server does not accept the password, or the keys are another target's.

    Example:
        >>> lp.TargetServer({"a": lp.RedisTarget("redis://host:6379/0", "a")})  # doctest: +SKIP
    """

    def __init__(self, url: str, name: str, *, read_only: bool = False) -> None:
        self._name = name
        self._read_only = read_only
        prefix = f"logplayer:{{{name}}}:"
        self._data, self._position, self._quarantine = (prefix + part for part in ("data", "position", "quarantine"))
        try:
            self._db: Any = redis.Redis.from_url(url)
            self._check_owner()
        except redis.AuthenticationError as error:
            raise UserError(f"Redis does not let target {name} in: {error}; check --url") from None
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise Unavailable(f"no Redis for target {name}: {error}; is it up, and --url right?") from None
        except (redis.RedisError, ValueError) as error:
            raise UserError(f"no target in Redis at {without_secrets(url)}: {error}; check --url") from None
        if not read_only:
            self._warn()

    def position(self) -> Position:
        return self._decode(self._db.get(self._position))

    def apply(self, change: Change) -> Position:
        if self._read_only:
            raise TargetError("this store was opened for reading")
        with self._db.pipeline(transaction=True) as pipe:
            while True:
                try:
                    return self._try(pipe, change)
                except redis.WatchError:
                    continue  # Another server moved the position: the check decides again.

    def get(self, key: bytes) -> bytes | None:
        value: bytes | None = self._db.hget(self._data, key)
        return value

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        # HSCAN may return a key twice when the hash is resized meanwhile, so each is yielded the first time only.
        told: set[bytes] = set()
        for key, value in self._db.hscan_iter(self._data, count=1000):
            if key not in told:
                told.add(key)
                yield key, value

    def quarantine(self) -> Iterator[tuple[int, bytes]]:
        kept = self._db.hgetall(self._quarantine)
        yield from sorted((int(index), payload) for index, payload in kept.items())

    def close(self) -> None:
        self._db.close()

    # --- Inside ---

    def _try(self, pipe: Any, change: Change) -> Position:
        pipe.watch(self._position)
        after = change.check(self._decode(pipe.get(self._position)))
        rows = list(change.runs)  # Before MULTI: a payload that cannot be understood must not leave it half queued.
        pipe.multi()
        for is_put, run in rows:
            if is_put:
                pipe.hset(self._data, mapping={row.key: row.value for row in run})
            else:
                pipe.hdel(self._data, *[row.key for row in run])
        if change.quarantined:
            aside = {str(message.index): message.payload for message in change.quarantined}
            pipe.hset(self._quarantine, mapping=aside)
        crashpoint("store-rows-written")
        pipe.set(self._position, codec.encode_position(self._name, after))
        crashpoint("store-position-written")
        pipe.execute()
        crashpoint("store-committed")
        return after

    def _check_owner(self) -> None:
        """Refuse another target's keys, and keys of a wrong type: a ``MULTI`` goes on after what such a key refuses."""
        kinds = {self._data: b"hash", self._position: b"string", self._quarantine: b"hash"}
        for key, kind in kinds.items():
            found = self._db.type(key)
            if found not in (kind, b"none"):
                raise UserError(f"{key} in Redis is a {found.decode()}, not a target's {kind.decode()}; remove it")
        stored = self._db.get(self._position)
        owner = self._name if stored is None else pb.PositionReply.FromString(stored).target
        if owner != self._name:
            raise UserError(f"{self._position} in Redis belongs to target {owner!r}, not to {self._name!r}")

    @staticmethod
    def _decode(stored: bytes | None) -> Position:
        return Position() if stored is None else codec.decode_position(stored)

    def _warn(self) -> None:
        try:
            settings = self._db.config_get("append*")
        except redis.RedisError:
            _log.warning("Redis does not tell its settings: acks are durable only with appendfsync always")
            return
        told = {key: settings.get(key) for key in ("appendonly", "appendfsync")}
        if told != {"appendonly": "yes", "appendfsync": "always"}:
            _log.warning(
                "Redis runs with appendonly %s and appendfsync %s: acks may be lost when the machine fails. "
                "Set 'appendonly yes' and 'appendfsync always'.",
                *told.values(),
            )
