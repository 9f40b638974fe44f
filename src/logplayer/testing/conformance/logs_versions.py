"""The log kit's check of versions: what a log server answers to clients of other releases."""

from __future__ import annotations

from typing import Any

import grpc

import logplayer.errors as e
from logplayer.log.grpc_errors import VERSIONS_KEY, from_status
from logplayer.log.server import SERVICE
from logplayer.testing.conformance.log_check import entry
from logplayer.testing.conformance.logs_base import Harness, fill, in_time, opened, served_check
from logplayer.wire.logplayer.v1 import log_pb2 as pb
from logplayer.wire.versions import OURS

# What changes the log comes first: nothing of it may be left.
_NEW = pb.NewEntry(producer="late", sequence=1, payload=entry("late", 1).payload)
_CALLS: dict[str, Any] = {
    "Append": pb.AppendRequest(entries=[_NEW]),
    "AppendStream": pb.AppendCalls(first=1, entries=[_NEW]),
    "Trim": pb.TrimRequest(up_to=1),
    "Read": pb.ReadRequest(first=1, last=1),
    "Info": pb.InfoRequest(),
    "Newest": pb.NewestRequest(producer="p"),
    "Alive": pb.AliveRequest(),
}
_FAR = OURS.newest + 1_000_000


@served_check
async def check_versions(harness: Harness) -> None:
    """A call that speaks none of the server's versions is refused; one that also speaks newer ones is answered."""
    async with opened(harness) as log:
        await fill(log, 3)
    where = await harness.served_at()
    before = pb.InfoReply.FromString((await _call(where, "Info", f"{OURS.newest}-{OURS.newest}"))[0])
    for method in _CALLS:
        for said in (None, "", "0-0", f"{_FAR}-{_FAR}"):
            await _refused(where, method, said)
    after = pb.InfoReply.FromString((await _call(where, "Info", f"{OURS.oldest}-{_FAR}"))[0])
    assert after.version == OURS.newest, f"the server picks version {after.version}, not {OURS.newest}"
    assert (after.first, after.last) == (before.first, before.last), "a refused call changed the log"


async def _refused(where: str, method: str, said: str | None) -> None:
    try:
        await _call(where, method, said)
    except grpc.aio.AioRpcError as error:
        refusal = from_status(error, where)
        assert isinstance(refusal, e.VersionMismatch), f"{method} in versions {said!r}: {refusal!r}"
        assert str(OURS) in str(refusal), f"{refusal} does not say that the server speaks {OURS}"
    else:
        raise AssertionError(f"{method} in versions {said!r} was answered")


async def _call(where: str, method: str, said: str | None) -> list[bytes]:
    """The answers to one call, as bytes. To the server every method is a stream, whatever the client makes of it."""
    metadata = () if said is None else ((VERSIONS_KEY, said),)
    async with grpc.aio.insecure_channel(where) as channel:
        call: Any = channel.unary_stream(f"/{SERVICE}/{method}", None, None)
        answers = call(_CALLS[method].SerializeToString(), metadata=metadata)
        return await in_time(_collect(answers))


async def _collect(answers: Any) -> list[bytes]:
    return [answer async for answer in answers]
