"""The log kit's checks of decisions: who may append them, what they must be, and that no trim passes the newest."""

from __future__ import annotations

import asyncio

import logplayer.errors as e
from logplayer.core.control_state import ControlState
from logplayer.core.entry import (
    Checkpoint,
    Decision,
    HashMap,
    MapChanged,
    Quarantined,
    Repaired,
    Takeover,
    TargetAdded,
    TargetRemoved,
)
from logplayer.log import control_chain as chain
from logplayer.log.protocol import CONTROL_PRODUCER, BadRequest, Kind, Log, NewEntry
from logplayer.testing.conformance.log_check import entry
from logplayer.testing.conformance.logs_base import Harness, check, collect, fill, in_time, opened, raises
from logplayer.wire.entries import control_message, encode_map
from logplayer.wire.logplayer.v1 import entry_pb2 as pb

MAP = HashMap(("a", "b"))
SEATS = (("a", "tcp://127.0.0.1:7201"), ("b", ""))


@check
async def check_control_entries(harness: Harness) -> None:
    async with opened(harness) as log:
        await fill(log, 3)
        [control, _] = [(await decide(log, Takeover("", "one")))[0], await fill(log, 1, since=4)]
        assert (await log.info()).control == control
        [record, plain] = await collect(log, control, (await log.info()).last)
        assert (record.kind, record.producer, plain.kind) == (Kind.CONTROL, CONTROL_PRODUCER, Kind.DATA)
    async with opened(harness) as log:
        assert (await log.info()).control == control
        assert set((await decide(log, TargetRemoved("b")))[1].members) == {"a"}
        added, _ = await decide(log, TargetAdded("c"))
        changed, control_ = await decide(log, MapChanged(HashMap(("a", "c"))))
        assert control_.members["c"] == TargetAdded("c", added)
        assert control_.router.versions()[-1] == (changed, HashMap(("a", "c")))
        await decide(log, Quarantined("a", 2, "no such column"))
    async with opened(harness) as log:
        await decide(log, Checkpoint())
        assert (await chain.load(log)).control(MAP).quarantined == {"a": {2}}


@check
async def check_names_of_the_system(harness: Harness) -> None:
    """Nobody else speaks as the system, and nobody else decides: not by accident either."""
    decision = chain.encode(Takeover(), ControlState.start(MAP))
    one, two = (NewEntry(CONTROL_PRODUCER, sequence, decision, Kind.CONTROL) for sequence in (1, 2))
    async with opened(harness) as log:
        for bad in (
            [NewEntry(CONTROL_PRODUCER, 1, b"x")],
            [NewEntry("logplayer.anything", 1, b"x")],
            [NewEntry("player", 1, decision, Kind.CONTROL)],
            [NewEntry("logplayer.other", 1, decision, Kind.CONTROL)],
            [entry("p", 1), NewEntry(CONTROL_PRODUCER, 1, b"x")],
            [one, two],
        ):
            with raises(BadRequest):
                await in_time(log.append(bad))
        assert (await log.info()).last == 0
        await in_time(log.append([entry("p", 1), one]))
        await decide(log, Checkpoint())


@check
async def check_wrong_decisions_are_refused(harness: Harness) -> None:
    """On an empty log, and after a decision that an entry must follow from; a good one goes in afterwards."""
    async with opened(harness) as log:
        await fill(log, 2)
        await _refuses(log, ControlState.start(MAP))
        _, control = await decide(log, Takeover("", "one"))
        await _refuses(log, control)
        await decide(log, MapChanged(HashMap(("b",))))
    async with opened(harness) as log:
        await _refuses(log, (await chain.load(log)).control(MAP))
        await decide(log, Takeover("", "two"))


async def _refuses(log: Log, control: ControlState) -> None:
    before = await log.info()
    sequence = (await chain.load(log)).sequence + 1
    for what, payload in wrong_payloads(control).items():
        for group in ([], [entry("q", 1)]):
            with raises(e.ControlRefused) as caught:
                await in_time(log.append([*group, NewEntry(CONTROL_PRODUCER, sequence, payload, Kind.CONTROL)]))
            assert "nothing was appended" in str(caught[0]), what
    with raises(e.SequenceGap) as gaps:
        payload = chain.encode(Takeover(), control)
        await log.append([NewEntry(CONTROL_PRODUCER, sequence + 1, payload, Kind.CONTROL)])
    assert isinstance(gaps[0], e.SequenceGap)
    assert gaps[0].newest == sequence - 1
    after = await log.info()
    assert (after.last, after.control) == (before.last, before.control)


def wrong_payloads(control: ControlState) -> dict[str, bytes]:
    """Payloads that must not follow the decisions of ``control``."""

    def state_of(other: Decision) -> pb.Snapshot:
        return pb.Control.FromString(chain.encode(other, control)).state

    no_targets = pb.ShardMap(hash=pb.HashMap())
    later = pb.Control.FromString(chain.encode(MapChanged(HashMap(("z",))), control)).state
    del later.maps[:-1]
    senseless = control_message(Takeover())
    senseless.state.CopyFrom(state_of(Takeover()))
    senseless.state.maps.add(after=1, map=no_targets)
    open_map = pb.Snapshot()
    open_map.maps.add(map=no_targets)
    lost = pb.Snapshot()
    lost.members.add(target="stranger", at=0, address="tcp://127.0.0.1:9")
    return {
        "nothing": b"",
        "garbage": b"\xff\xff\xff",
        "an unknown record": _wrong(pb.Control(), state_of(Checkpoint())) + b"\x6a\x00",
        "no record": _wrong(pb.Control(), state_of(Checkpoint())),
        "no state": _wrong(control_message(Takeover()), None),
        "no nonce": _wrong(control_message(Takeover()), state_of(Takeover()), ""),
        "a map without targets": _wrong(pb.Control(map_changed=pb.MapChanged(map=no_targets)), open_map),
        "a state with such a map": _wrong(senseless, senseless.state),
        "a map that its state lacks": _wrong(
            pb.Control(map_changed=pb.MapChanged(map=encode_map(HashMap(("a",))))), state_of(Checkpoint())
        ),
        "a state with another map": _wrong(control_message(Takeover()), later),
        "a member that its state lacks": _wrong(control_message(TargetAdded("new", 0)), state_of(Checkpoint())),
        "a target without a name": chain.encode(TargetAdded("", 0), control),
        "an address that is none": chain.encode(TargetAdded("new", 0, "http://x"), control),
        "a repair of a log that needs none": chain.encode(Repaired((), ((0, MAP),)), control),
    } | ({"a state that forgets all others": _wrong(control_message(Takeover()), lost)} if control.through else {})


def _wrong(message: pb.Control, state: pb.Snapshot | None, nonce: str = "n") -> bytes:
    message.nonce = nonce
    if state is not None:
        message.state.CopyFrom(state)
    return message.SerializeToString()


@check
async def check_rivals_for_one_decision(harness: Harness) -> None:
    """A sequence that is taken refuses another payload and says where it is: one of two writers learns that it lost."""
    async with opened(harness) as log:
        index, control = await decide(log, Takeover("", "one"))
        for payload in (chain.encode(Takeover("", "two"), control), b"\xff"):
            with raises(e.ProducerConflict) as caught:
                await in_time(log.append([NewEntry(CONTROL_PRODUCER, 1, payload, Kind.CONTROL)]))
            assert vars(caught[0]) == {
                "index": index,
                "producer": CONTROL_PRODUCER,
                "sequence": 1,
                "newest": 1,
                "newest_index": index,
            }
        decisions = [TargetAdded(f"n{number}", number) for number in range(8)]
        taken = await in_time(asyncio.gather(*(chain.append(log, decision, MAP) for decision in decisions)))
        assert len({index for index, _ in taken}) == len(decisions)
        members = (await chain.load(log)).control(MAP).members
        assert set(members) == {"a", "b", *(decision.target for decision in decisions)}


@check
async def check_trim_keeps_the_newest_decision(harness: Harness) -> None:
    """Players start from it, so a trim that would pass it ends before it, and says so."""
    async with opened(harness) as log:
        await fill(log, 5)
        control, _ = await decide(log, Takeover("", "one"))
        last = (await fill(log, 5, since=6))[-1]
        for _ in range(2):
            assert await in_time(log.trim(last)) == control - 1
            assert (await log.info()).first == control
        assert await in_time(log.trim(control)) == control - 1
        assert await in_time(log.trim(1)) == control - 1
    async with opened(harness) as log:
        info = await log.info()
        assert (info.first, info.control) == (control, control)
        assert set((await chain.load(log)).control(MAP).members) == {"a", "b"}
        assert await in_time(log.trim(last)) == control - 1
        newer, _ = await decide(log, Checkpoint())
        assert await in_time(log.trim(newer)) == newer - 1
        await fill(log, 1, since=11)
    async with opened(harness) as log:
        info = await log.info()
        assert (info.first, info.control) == (newer, newer)
        await decide(log, Takeover("", "two"))


async def decide(log: Log, record: Decision) -> tuple[int, ControlState]:
    """Append a decision, as players and operators do."""
    return await in_time(chain.append(log, record, MAP, SEATS))
