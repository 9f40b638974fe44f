"""A log in etcd: the replicated log that is back a second after its leader died.

An entry is on the disks of a majority of the members when its append returns. Any process may write; the head is
compared and set, so two writers never lose, repeat or reorder an entry, they only slow each other down. Reads come from
any member. ``keys`` says what is stored, ``position_writer`` how it is written, ``reader`` how it is read and checked,
``keeper`` how the store is kept below etcd's quota.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from logplayer.log.etcd.engine import EtcdEngine
from logplayer.log.etcd.link import EtcdLink
from logplayer.log.etcd.reader import EtcdReader
from logplayer.log.protocol import Info, Record, check_range
from logplayer.log.replicated_log import ReplicatedLog
from logplayer.observe.instruments import KeeperCounts
from logplayer.wire.security import NONE, Security


class EtcdLog(ReplicatedLog):
    """A log in an etcd cluster. Made by ``EtcdLog.open``; one instance belongs to one event loop."""

    def __init__(self, link: EtcdLink) -> None:
        self.link = link
        self.reader = EtcdReader(link)
        self.engine = EtcdEngine(link, self.reader)
        super().__init__(self.engine)

    @classmethod
    async def open(
        cls, hosts: Sequence[str], name: str, *, security: Security = NONE, patience_seconds: float = 30.0
    ) -> EtcdLog:
        """Connect to the cluster, and make the log if it is new."""
        link = EtcdLink(tuple(hosts), name, patience_seconds, security)
        try:
            await link.open()
        except BaseException:
            await link.close()
            raise
        return cls(link)

    @property
    def keeper_counts(self) -> KeeperCounts:
        """Compactions and defragmentations by this writer."""
        return self.engine.keeper.counts

    async def info(self) -> Info:
        """The first and the last index, as a majority knows them; the bytes are those of the fullest member."""
        self._require_open()
        head, _ = await self.link.head()
        found = [status.db_size_in_use for _, status in await self.link.statuses()]
        trimmed_chain = await self._map.chain_at(head.first - 1)
        bytes_ = max(found, default=0)
        return Info(self.link.log_id, head.first, head.last, head.control, bytes_, head.chain, trimmed_chain)

    async def read(self, first: int, last: int | None = None) -> AsyncIterator[list[Record]]:
        check_range(first, last)
        self._require_open()
        async for batch in self.reader.read(first, last):
            yield batch.records()

    async def read_frames(self, first: int, last: int | None = None) -> AsyncIterator[bytes]:
        """The same as encoded ``ReadReply`` messages: what the log server sends."""
        check_range(first, last)
        self._require_open()
        async for batch in self.reader.read(first, last):
            yield batch.frames

    async def _disconnect(self) -> None:
        await self.engine.keeper.close()
        await self.link.close()
