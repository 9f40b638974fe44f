"""Decisions cannot be broken by an append or a trim: over gRPC as any language calls it, and in the file log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from logplayer.core.control_state import ControlState
from logplayer.core.entry import Checkpoint, Decision, Entry, MapChanged, Quarantined, Takeover, TargetAdded
from logplayer.errors import ControlJammed, ControlRefused, LogFull, ProducerConflict, SequenceGap
from logplayer.log import control_chain as chain
from logplayer.log.client import LogClient
from logplayer.log.control_rules import Guard
from logplayer.log.file import segment
from logplayer.log.file.log import FileLog
from logplayer.log.grpc_errors import VERSIONS_KEY, from_status
from logplayer.log.protocol import CONTROL_PRODUCER, BadRequest, Kind, NewEntry
from logplayer.log.server import LogServer
from logplayer.testing.conformance.logs import fill, in_time
from logplayer.testing.conformance.logs_control import MAP, SEATS, decide, wrong_payloads
from logplayer.wire.logplayer.v1 import log_pb2 as pb


class Raw:
    """A log server over a file log, and calls to it that no client of ours has looked at."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def __aenter__(self) -> Raw:
        self.log = await FileLog.open(self._path)
        self._server = LogServer(self.log)
        self.where = f"127.0.0.1:{await self._server.start()}"
        self._channel = grpc.aio.insecure_channel(self.where)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close(None)
        await self._server.stop()
        await self.log.close()

    async def _call(self, method: str, request: Any, reply: Any) -> Any:
        call: Any = self._channel.unary_unary(
            f"/logplayer.v1.Log/{method}", lambda message: message.SerializeToString(), reply.FromString
        )
        try:
            return await in_time(call(request, metadata=((VERSIONS_KEY, "1-1"),)))
        except grpc.aio.AioRpcError as error:
            raise from_status(error, self.where) from None

    async def append(self, producer: str, sequence: int, payload: bytes, kind: int) -> list[int]:
        request = pb.AppendRequest()
        request.entries.add(producer=producer, sequence=sequence, payload=payload, kind=kind)
        return list((await self._call("Append", request, pb.AppendReply)).indexes)

    async def trim(self, up_to: int) -> int:
        return int((await self._call("Trim", pb.TrimRequest(up_to=up_to), pb.InfoReply)).first)


async def test_no_stranger_speaks_as_the_system(tmp_path: Path) -> None:
    async with Raw(tmp_path / "log") as raw:
        decision = chain.encode(Takeover(), ControlState.start(MAP))
        for producer, kind in ((CONTROL_PRODUCER, 0), ("logplayer.x", 0), ("web-1", 1), ("logplayer.x", 1)):
            with pytest.raises(BadRequest, match=producer):
                await raw.append(producer, 1, decision, kind)
        assert (await raw.log.info()).last == 0
        assert await raw.append("logplayer", 1, b"", 0) == [1]
        await decide(raw.log, Takeover())


@pytest.mark.parametrize("what", wrong_payloads(ControlState.start(MAP)))
async def test_a_wrong_decision_is_refused_by_the_server(tmp_path: Path, what: str) -> None:
    async with Raw(tmp_path / "log") as raw:
        for record in (Takeover("", "one"), TargetAdded("c"), Takeover("", "two")):
            head = await chain.load(raw.log)
            payload = wrong_payloads(head.control(MAP))[what]
            with pytest.raises(ControlRefused, match="nothing was appended"):
                await raw.append(CONTROL_PRODUCER, head.sequence + 1, payload, 1)
            await decide(raw.log, record)


async def test_the_gap_tells_the_newest_sequence_over_grpc(tmp_path: Path) -> None:
    async with Raw(tmp_path / "log") as raw:
        await fill(raw.log, 7)
        with pytest.raises(SequenceGap) as caught:
            await raw.append("p", 100, b"", 0)
        assert caught.value.newest == 7


async def test_a_trim_by_hand_leaves_a_log_on_which_players_start(tmp_path: Path) -> None:
    async with Raw(tmp_path / "log") as raw:
        await decide(raw.log, Takeover("", "one"))
        last = (await fill(raw.log, 5))[-1]
        assert await raw.trim(last) == 1
        client = await LogClient.open(raw.where)
        assert await client.trim(last) == 0
        assert (await chain.trim(client, last)) == (last, last + 1)
        assert (await client.info()).first == (await client.info()).control == last + 1
        assert await chain.trim(client, last + 1) == (last + 1, last + 2)
        with pytest.raises(BadRequest):
            await chain.trim(client, last + 3)
        index, control = await decide(client, Takeover("", "two"))
        assert (index, set(control.members)) == (last + 3, {"a", "b"})
        await client.close()


async def test_a_trim_that_comes_again_repeats_a_decision_only_when_it_is_old(tmp_path: Path) -> None:
    """Else each trim of a player would cost the log an entry, and an idle log would grow by being trimmed."""
    async with Raw(tmp_path / "log") as raw:
        await fill(raw.log, 3)
        decision, _ = await decide(raw.log, Takeover("", "one"))
        last = (await fill(raw.log, 5, "q"))[-1]
        assert await chain.trim(raw.log, last, repeat_after=6) == (decision - 1, 0)
        assert await chain.trim(raw.log, last, repeat_after=5) == (last, last + 1)


async def test_decisions_that_are_committed_together_follow_from_each_other(tmp_path: Path) -> None:
    """They wait for one commit, so each is checked against one that is planned and not yet in the log."""
    log = await FileLog.open(tmp_path / "log")
    _, control = await decide(log, Takeover("", "one"))
    steps: list[Decision] = [TargetAdded("c"), MapChanged(MAP), Quarantined("c", 1), Checkpoint()]
    groups = []
    for nth, record in enumerate(steps):
        groups.append([NewEntry(CONTROL_PRODUCER, 2 + nth, chain.encode(record, control), Kind.CONTROL)])
        control.decide(Entry(2 + nth, record=record))
    wrong = wrong_payloads(control)
    stray = [NewEntry(CONTROL_PRODUCER, 6, wrong["a state that forgets all others"], Kind.CONTROL)]
    stale = [NewEntry(CONTROL_PRODUCER, 6, groups[0][0].payload, Kind.CONTROL)]
    answers = await in_time(
        asyncio.gather(*(log.append(group) for group in [*groups, stray, stale]), return_exceptions=True)
    )
    assert answers[:4] == [[2], [3], [4], [5]]
    assert [type(answer) for answer in answers[4:]] == [ControlRefused] * 2
    assert (await chain.load(log)).control(MAP).members["c"] == TargetAdded("c", 2)
    await log.close()


async def test_a_decision_that_was_not_committed_is_not_built_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await FileLog.open(tmp_path / "log")
    await decide(log, Takeover("", "one"))
    real = segment.insert

    def no_room(*_: object) -> None:
        monkeypatch.setattr(segment, "insert", real)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(segment, "insert", no_room)
    with pytest.raises(LogFull):
        await decide(log, TargetAdded("c"))
    _, control = await decide(log, TargetAdded("d"))
    assert set(control.members) == {"a", "b", "d"}
    await log.close()


async def test_the_newest_decision_survives_a_new_segment_that_is_still_empty(tmp_path: Path) -> None:
    log = await FileLog.open(tmp_path / "log", segment_bytes=20_000)
    control, _ = await decide(log, Takeover("", "one"))
    await fill(log, 1, size=30_000)
    await fill(log, 1, size=30_000)  # A retry: it begins a new segment, is answered from the old one, and adds nothing.
    assert log.directory.segments() == [1, 3]
    await log.close()
    log = await FileLog.open(tmp_path / "log")
    info = await log.info()
    assert (info.control, info.last) == (control, 2)
    assert await log.trim(2) == control - 1
    await decide(log, Takeover("", "two"))
    await log.close()


async def test_the_first_decision_may_bring_members_and_any_kind_may_be_first(tmp_path: Path) -> None:
    first: list[Decision] = [TargetAdded("c"), TargetAdded("c", 7, "tcp://h:1"), MapChanged(MAP), Checkpoint()]
    for nth, record in enumerate(first):
        log = await FileLog.open(tmp_path / f"log{nth}")
        index, control = await decide(log, record)
        assert index == 1
        assert set(control.members) >= {name for name, _ in SEATS}
        await log.close()


async def test_the_first_decision_brings_no_member_that_cannot_be_reached(tmp_path: Path) -> None:
    log = await FileLog.open(tmp_path / "log")
    for seat in (("x", "http://127.0.0.1:1"), ("", "tcp://127.0.0.1:1"), ("a\nb", "")):
        with pytest.raises(ControlRefused):
            await chain.append(log, Takeover(), None, (seat,))
    assert (await log.info()).last == 0
    await log.close()


async def jam(log: FileLog, monkeypatch: pytest.MonkeyPatch, *entries: NewEntry) -> None:
    """Append what an older version took."""
    with monkeypatch.context() as patched:
        patched.setattr(Guard, "admit", lambda *_: None)
        patched.setattr("logplayer.log.file.log.check_group", lambda _: None)
        for entry in entries:
            await log.append([entry])


@pytest.mark.parametrize("kind", [Kind.DATA, Kind.CONTROL])
async def test_on_a_jammed_log_nothing_is_decided_or_trimmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    log = await FileLog.open(tmp_path / "log")
    await decide(log, Takeover("", "one"))
    _, control = await decide(log, Takeover("", "two"))
    await jam(log, monkeypatch, NewEntry(CONTROL_PRODUCER, 3, b"\xff", kind))
    await log.close()
    log = await FileLog.open(tmp_path / "log")
    payload = chain.encode(Takeover("", "three"), control)
    with pytest.raises(ProducerConflict):
        await log.append([NewEntry(CONTROL_PRODUCER, 3, payload, Kind.CONTROL)])
    with pytest.raises(ControlJammed, match="logplayer log repair"):
        await log.append([NewEntry(CONTROL_PRODUCER, 4, payload, Kind.CONTROL)])
    with pytest.raises(ControlJammed, match="logplayer log repair"):
        await decide(log, Takeover("", "three"))
    with pytest.raises(ControlJammed, match="logplayer log repair"):
        await log.trim(1)
    assert await fill(log, 2) == [4, 5]
    await log.close()
