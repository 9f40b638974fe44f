"""Members come and go while the player runs; a poisoned entry stops its target alone; the log is trimmed."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from dataclasses import replace

import pytest

from logplayer.core.entry import Checkpoint, HashMap, Quarantined, TargetAdded, TargetRemoved
from logplayer.log import control_chain as chain
from logplayer.log.protocol import NewEntry
from logplayer.wire.entries import encode_mutation
from tests.player.player_support import QUICK, House, Seat, load, logplayer, until

pytestmark = pytest.mark.asyncio
BOTH = pytest.mark.parametrize("scheme", ["grpc", "tcp"])


async def add_seat(house: House, name: str, scheme: str = "tcp") -> Seat:
    """A target that is up but no member yet."""
    seat = Seat(house.directory, name, scheme)
    return await seat.up()


def explicit(house: House, count: int, name: str, producer: str) -> list[NewEntry]:
    return [
        NewEntry(producer, nth, encode_mutation(f"{producer}/{nth}".encode(), b"v", name).encoded)
        for nth in range(1, count + 1)
    ]


@BOTH
async def test_a_target_is_added_at_the_start_of_the_log_while_all_runs(house: House, scheme: str) -> None:
    await house.targets("ab", scheme)
    player = await house.play()
    await house.file.append(explicit(house, 500, "c", "early"))
    await house.delivered(await house.append(500))
    seat = await add_seat(house, "c", scheme)
    async with load(house, 500):
        told = await logplayer("target", "add", "c", seat.address, "--at", "0", "--log", house.log_address, "--json")
        await until(lambda: player.live("a", "b", "c"), "c has joined")
    assert json.loads(told)["at"] == 0
    await until(lambda: player.target("c").index >= player.target("a").index, "c has applied what it joined with")
    with seat.store() as store:
        assert len(list(store.scan())) == 500
    listed = json.loads(await logplayer("target", "list", "--log", house.log_address, "--json"))
    assert [item["target"] for item in listed["members"]] == ["a", "b", "c"]
    await seat.down()


async def test_a_target_that_is_added_now_begins_behind_its_record(house: House) -> None:
    await house.targets("ab")
    player = await house.play()
    await house.file.append(explicit(house, 50, "c", "before"))
    seat = await add_seat(house, "c")
    index, _ = await chain.append(house.file, TargetAdded("c", None, seat.address), HashMap(("a", "b")))
    # It must hold all up to the record: an empty one is not taken for one that does.
    await until(lambda: player.state("c") == "BLOCKED", "c is asked to re-seed")
    assert "RESEED" in player.target("c").error
    assert f"has index 0, but was added as one that has {index}" in player.target("c").error
    await house.delivered(await house.append(100))
    await seat.down()


async def test_a_target_that_was_filled_up_to_an_index_goes_on_from_there(house: House) -> None:
    """The clone of a shard at an index becomes a member of its own."""
    await house.targets("ab")
    player = await house.play()
    await house.delivered(await house.append(200))
    await until(player.live, "both are LIVE")
    await player.stop()
    seat = Seat(house.directory, "c", "tcp")
    with sqlite3.connect(house.seats["b"].path) as source, sqlite3.connect(seat.path) as clone:
        source.backup(clone)
        clone.execute("UPDATE position SET target = 'c'")
    at = seat.index
    await seat.up()
    player = await house.play()
    await chain.append(house.file, TargetAdded("c", at, seat.address), HashMap(("a", "b")))
    await house.file.append(explicit(house, 50, "c", "after"))
    await until(lambda: player.live("c"), "c has joined")
    with seat.store() as store:
        await until(lambda: store.get(b"after/50") == b"v", "c has what came later")
    await seat.down()


@BOTH
async def test_a_removed_target_gets_nothing_more_and_may_come_back(house: House, scheme: str) -> None:
    await house.targets("abc", scheme)
    player = await house.play()
    await house.delivered(await house.append(100))
    refused = await logplayer("target", "remove", "c", "--log", house.log_address, code=2)
    assert "the map in force, hash:a,b,c, still gives keys to c: they would be unroutable" in refused
    await logplayer("target", "remove", "c", "--force", "--log", house.log_address)
    await until(lambda: "c" not in player.shell.core.queues, "the player knows")
    stood = house.seats["c"].index
    last = await house.append(300)
    await house.delivered(last, "a", "b")
    assert house.seats["c"].index == stood
    assert "not a member" in await logplayer("target", "remove", "c", "--log", house.log_address, code=2)
    # Added again where it stands, at another port: it goes on as if nothing had been.
    await house.seats["c"].down()
    house.seats["c"].port = 0
    await house.seats["c"].up()
    arguments = ("target", "add", "c", house.seats["c"].address, "--at", str(stood), "--log", house.log_address)
    await logplayer(*arguments)
    assert "member already" in await logplayer(*arguments, code=2)
    await until(lambda: player.live("a", "b", "c"), "c has joined again")
    await house.delivered(await house.append(1))
    assert await house.problems() == []


@BOTH
async def test_a_poisoned_entry_stops_its_target_alone_until_it_is_quarantined(house: House, scheme: str) -> None:
    await house.targets("ab", scheme)
    with sqlite3.connect(house.seats["b"].path) as db:
        db.execute(
            "CREATE TRIGGER t BEFORE INSERT ON data WHEN new.key = CAST('poison' AS BLOB) "
            "BEGIN SELECT RAISE(ABORT, 'no poison here'); END"
        )
    player = await house.play()
    await house.append(100)
    poison = encode_mutation(b"poison", b"!", "b").encoded + encode_mutation(b"fine", b"!", "a").encoded
    bad = await house.append_raw(poison)
    last = await house.append(100)
    await house.delivered(last, "a")
    await until(lambda: player.target("b").state == "BLOCKED", "b is blocked")
    assert "no poison here" in player.target("b").error
    assert f"entry {bad}" in player.target("b").error
    assert house.seats["b"].index == bad - 1
    assert await house.problems("a") == []
    where = ("--log", house.log_address, "--player", await player.answering())
    await logplayer("target", "quarantine", "b", "--index", str(bad), "--reason", "test", *where)
    await house.delivered(last, "b")
    await until(lambda: player.live("a", "b"), "b is LIVE again")
    with house.seats["b"].store() as store:
        assert dict(store.quarantine()) == {bad: encode_mutation(b"poison", b"!", "b").encoded}
        assert store.get(b"poison") is None
    assert await house.problems(quarantined={"b": {bad}}) == []


async def test_a_quarantine_that_is_decided_beforehand_holds_for_catch_up(house: House) -> None:
    await house.targets("ab")
    await house.seats["b"].down()
    await house.play()
    bad = await house.append_raw(encode_mutation(b"poison", b"!", "b").encoded)
    last = await house.append(50)
    await chain.append(house.file, Quarantined("b", bad), HashMap(("a", "b")))
    await house.seats["b"].up()
    await house.delivered(last)
    assert await house.problems(quarantined={"b": {bad}}) == []


async def test_a_store_that_was_repaired_goes_on_by_itself(house: House) -> None:
    await house.targets("ab")
    with sqlite3.connect(house.seats["b"].path) as db:
        db.execute("CREATE TRIGGER t BEFORE INSERT ON data BEGIN SELECT RAISE(ABORT, 'closed'); END")
    player = await house.play()
    last = await house.append(20)
    await until(lambda: player.target("b").state == "BLOCKED", "b is blocked")
    with sqlite3.connect(house.seats["b"].path) as db:
        db.execute("DROP TRIGGER t")
    player.shell.retry("b")
    await house.delivered(last)
    assert await house.problems() == []


async def test_the_log_is_trimmed_behind_all_targets_and_can_still_start_a_player(house: House) -> None:
    await house.targets("ab")
    trimming = replace(QUICK, trim_entries_min=500)
    player = await house.play(trims=True, limits=trimming)
    value = b"v" * 500
    last = await house.append(6000, value=value)
    await house.delivered(last)
    await until(lambda: house.file._standing.first > 1, "something is trimmed")
    await house.append(2000, value=value)
    await until(lambda: house.file._standing.first > last // 2, "more is trimmed")
    info = await house.file.info()
    assert info.first <= info.control <= info.last
    assert info.last - info.first < 6000
    await player.stop()
    player = await house.play(trims=True, limits=trimming)
    assert set(player.shell.core.control.members) == {"a", "b"}
    last = await house.append(100)
    await house.delivered(last)
    await until(player.live, "both are LIVE")


async def test_a_decision_in_the_way_of_a_trim_is_passed_later(house: House) -> None:
    """The log obeys in part; the player does not take that for all of it, and repeats the decision when it is old."""
    await house.targets("ab")
    await house.play(trims=True, limits=replace(QUICK, trim_entries_min=500))
    await house.delivered(await house.append(1500))
    await until(lambda: house.file._standing.first > 1, "something is trimmed")
    decision, _ = await chain.append(house.file, Checkpoint(), None)
    await house.delivered(await house.append(600))
    # It ends before the decision, unless the player had just then repeated its own takeover after it.
    await until(lambda: house.file._standing.first >= decision, "the trim comes up to the decision")
    await house.delivered(await house.append(600))
    await until(lambda: house.file._standing.first > decision, "the decision is repeated, and the trim passes it")
    assert (await chain.load(house.file)).index > decision


async def test_an_absent_target_holds_the_trim_point(house: House) -> None:
    await house.targets("ab")
    await house.seats["b"].down()
    player = await house.play(trims=True, limits=replace(QUICK, trim_entries_min=100))
    await house.delivered(await house.append(3000, value=b"v" * 500), "a")
    await asyncio.sleep(0.3)
    assert (await house.file.info()).first == 1
    await house.seats["b"].up()
    await until(lambda: house.file._standing.first > 1, "b is back, and the log is trimmed")
    assert player.target("b").state != "BLOCKED"


@BOTH
async def test_a_target_behind_the_trim_point_is_told_to_reseed_and_stops_alone(house: House, scheme: str) -> None:
    await house.targets("ab", scheme)
    await house.append(2000, value=b"v" * 1000)
    player = await house.play()
    await house.delivered(await house.append(10))
    await player.stop()
    await house.seats["b"].down()
    for suffix in ("", "-wal", "-shm"):
        (house.directory / f"b.db{suffix}").unlink(missing_ok=True)
    await house.file.trim(1500)
    await house.seats["b"].up()
    player = await house.play()
    last = await house.append(100)
    await house.delivered(last, "a")
    await until(lambda: player.target("b").state == "BLOCKED", "b is blocked")
    assert "RESEED" in player.target("b").error
    assert player.target("b").eta_seconds is None
    assert house.seats["b"].index == 0


async def test_a_player_that_falls_behind_the_trim_point_jumps_with_its_own_map(house: House) -> None:
    """The owner function of the user is not in the log: it must still be in force after the jump."""
    await house.targets("ab")

    def owner(key: bytes) -> str:
        return "a"

    player = await house.play(owner=owner)
    await house.delivered(await house.append(10))
    shell = player.shell
    await chain.append(house.file, TargetRemoved("b"), HashMap(("a", "b")))
    await until(lambda: "b" not in shell.core.queues, "b is no member")
    await shell._jump(shell.core.current + 1)
    last = await house.append(50)
    await house.delivered(last, "a")
    with house.seats["a"].store() as store:
        assert len([key for key, _ in store.scan() if key.startswith(b"e/")]) == 60
