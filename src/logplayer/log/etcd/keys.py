"""The keys of one log in etcd, and the bytes of their values.

::

    logplayer/NAME/meta      which log this is, and the version of this layout
    logplayer/NAME/head      the position: last and first index, newest control index, number of map blocks, chain value
    logplayer/NAME/e/LAST    a chunk: the entries of one commit, up to index LAST
    logplayer/NAME/m/NUMBER  a block of the sequence map
    logplayer/NAME/nudge     nothing: it is written to make the members commit

A commit writes one chunk and the new head in one transaction, if the head is still what the writer knows: whoever
changes anything changes the head, so one comparison guards it all. Chunks are found by their last index: the first key
from ``e/N`` on holds entry N. A chunk is the index of its first entry in eight bytes, and then its entries as frames,
which go from there to the wire as they are.
"""

from __future__ import annotations

from typing import NamedTuple

from logplayer.core.chain import GENESIS
from logplayer.errors import LogError, LogFormatError
from logplayer.log.etcd import etcd_pb2 as pb
from logplayer.log.sequences import pack_json, unpack_json

FORMAT_VERSION = 1
_FIRST_BYTES = 8


class LogHead(NamedTuple):
    """The value of the head, as it is stored and as it is meant. ``[first, last]`` can be read."""

    stored: bytes
    last: int
    first: int
    control: int
    blocks: int
    chain: bytes  # The chain value at ``last``.

    @classmethod
    def make(cls, last: int = 0, first: int = 1, control: int = 0, blocks: int = 0, chain: bytes = GENESIS) -> LogHead:
        return cls(pack_json([last, first, control, blocks, chain.hex()]), last, first, control, blocks, chain)

    @classmethod
    def decode(cls, stored: bytes, where: str) -> LogHead:
        try:
            last, first, control, blocks, chain = unpack_json(stored)
            return cls(stored, last, first, control, blocks, bytes.fromhex(chain))
        except ValueError as error:
            raise LogError(f"the head of {where} is damaged ({error}); restore the cluster from a snapshot") from None

    def grown(self, last: int, control: int, chain: bytes) -> LogHead:
        return LogHead.make(last, self.first, max(self.control, control), self.blocks, chain)

    def trimmed(self, up_to: int) -> LogHead:
        return LogHead.make(self.last, max(self.first, up_to + 1), self.control, self.blocks, self.chain)

    def mapped(self, blocks: int) -> LogHead:
        return LogHead.make(self.last, self.first, self.control, blocks, self.chain)


class Keys:
    """The keys of one log."""

    def __init__(self, name: str) -> None:
        self.prefix = f"logplayer/{name}/".encode()
        self.meta = self.prefix + b"meta"
        self.head = self.prefix + b"head"
        self.nudge = self.prefix + b"nudge"
        self.chunks_end = self.prefix + b"e0"  # The key after every chunk: 0 follows /.

    def chunk(self, last: int) -> bytes:
        return self.prefix + b"e/%016x" % last

    def block(self, number: int) -> bytes:
        return self.prefix + b"m/%016x" % number

    def is_head(self, head: LogHead) -> pb.Compare:
        """Nobody has changed anything since ``head`` was read."""
        return pb.Compare(target=pb.Compare.VALUE, key=self.head, value=head.stored)

    def put(self, key: bytes, value: bytes) -> pb.RequestOp:
        return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value))


class StoredChunk(NamedTuple):
    """The entries ``[first, last]`` as one member keeps them; nothing of it is checked yet.

    One that is cut in its first bytes has no entries: which of them are missing, its reader knows, and asks for them
    elsewhere.
    """

    first: int
    last: int
    frames: bytes

    @classmethod
    def decode(cls, kv: pb.KeyValue) -> StoredChunk:
        last = int(kv.key[-16:], 16)
        if len(kv.value) < _FIRST_BYTES:
            return cls(0, last, b"")
        return cls(int.from_bytes(kv.value[:_FIRST_BYTES], "big"), last, kv.value[_FIRST_BYTES:])


def encode_chunk(first: int, frames: list[bytes]) -> bytes:
    return first.to_bytes(_FIRST_BYTES, "big") + b"".join(frames)


def decode_meta(stored: bytes, where: str) -> str:
    """The log's id."""
    try:
        found = unpack_json(stored)
        version, log_id = int(found["version"]), str(found["id"])
    except (ValueError, KeyError, TypeError):
        raise LogFormatError(f"{where} is not a log of ours; choose another name") from None
    if version > FORMAT_VERSION:
        raise LogFormatError(f"{where} has format {version}; this program knows {FORMAT_VERSION}: upgrade it")
    return log_id


def encode_meta(log_id: str) -> bytes:
    return pack_json({"id": log_id, "version": FORMAT_VERSION})
