"""The public API as an application uses it: an opened log, a player in the same process, receipts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import logplayer as lp
from logplayer.core.entry import Quarantined, TargetAdded
from logplayer.log import control_chain
from logplayer.log.server import LogServer


async def test_from_an_append_to_a_row(tmp_path: Path) -> None:
    stores = {name: lp.SqliteTarget(str(tmp_path / name), name) for name in "ab"}
    async with (
        lp.open_log(f"file://{tmp_path}/log") as log,
        lp.TargetServer(stores) as server,
        lp.Player(log, targets={"a": server.address, "b": server.address}, shards=lp.HashShards("a", "b")) as player,
    ):
        producer = await log.producer("web-1")
        receipts = [await producer.append(lp.put(f"k{number}", lp.json_value(number))) for number in range(10)]
        await asyncio.gather(*(receipt.applied() for receipt in receipts))
        rows = {key: value for store in stores.values() for key, value in store.scan()}
        assert rows == {f"k{number}".encode(): str(number).encode() for number in range(10)}
        assert all(list(store.scan()) for store in stores.values()), "both have a part"
        await (await producer.append(lp.delete("k1"), lp.put("k2", "x", "b"))).applied()
        assert b"k1" not in dict(stores["a"].scan()) | dict(stores["b"].scan())
        assert dict(stores["b"].scan())[b"k2"] == b"x"
        assert {target.state for target in player.status().targets} == {"LIVE"}
    assert player.ended == lp.Ended(lp.EndKind.STOPPED)


async def test_a_receipt_waits_for_the_shards_it_touches_and_no_others(tmp_path: Path) -> None:
    async with lp.open_log(f"file://{tmp_path}/log") as log, lp.TargetServer({"a": lp.MemoryTarget()}) as server:
        targets = {"a": server.address, "gone": "tcp://127.0.0.1:9"}
        async with lp.Player(log, targets=targets, shards=lp.ExplicitMap()):
            producer = await log.producer()
            await (await producer.append(lp.put("k", "v", "a"))).applied()
            with pytest.raises(lp.TargetError):
                await (await producer.append(lp.put("k", "v", "a"), lp.put("k", "v", "gone"))).applied(0.3)
            with pytest.raises(lp.TargetError, match="'stranger', which is not a member"):
                await (await producer.append(lp.put("k", "v", "stranger"))).applied(0.3)
            with pytest.raises(lp.TargetError, match="does not say who gets a key of entry 5"):
                await (await producer.append(lp.put("k", "v"))).applied(0.3)


async def test_a_receipt_waits_for_a_player(tmp_path: Path) -> None:
    async with lp.open_log(f"file://{tmp_path}/log") as log, lp.TargetServer({"a": lp.MemoryTarget()}) as server:
        receipt = await (await log.producer()).append(lp.put("k", "v"))
        with pytest.raises(lp.TargetError, match="no player has taken over"):
            await receipt.applied(0.1)
        waiting = asyncio.create_task(receipt.applied())
        await asyncio.sleep(0.05)
        async with lp.Player(log, targets={"a": server.address}):
            await waiting


async def test_with_a_function_of_the_players_own_the_log_cannot_tell(tmp_path: Path) -> None:
    async with lp.open_log(f"file://{tmp_path}/log") as log, lp.TargetServer({"a": lp.MemoryTarget()}) as server:
        config = lp.Config(targets={"a": server.address}, owner=lambda key: "a")
        async with lp.Player(log, config):
            receipt = await (await log.producer()).append(lp.put("k", "v"))
            with pytest.raises(lp.TargetError, match="a function of its own"):
                await receipt.applied()
            assert (await lp.wait_for(server.address, "a", receipt.index)).index >= receipt.index


async def test_a_newer_player_supersedes(tmp_path: Path) -> None:
    async with lp.open_log(f"file://{tmp_path}/log") as log, lp.TargetServer({"a": lp.MemoryTarget()}) as server:
        targets = {"a": server.address}
        async with lp.Player(log, targets=targets) as older:
            async with lp.Player(log, targets=targets):
                ended = await asyncio.wait_for(older.wait(), 30)
            assert ended.superseded
        assert older.ended == ended


async def test_what_is_wrong_with_a_player_is_raised_at_its_start(tmp_path: Path) -> None:
    async with lp.open_log(f"file://{tmp_path}/log") as log:
        with pytest.raises(lp.ConfigError):
            async with lp.Player(log, targets={"a": "tcp://127.0.0.1:9"}, shards=lp.HashShards("b")):
                pass
        with pytest.raises(lp.UserError, match="does not play"):
            await lp.Player(log).wait()
        with pytest.raises(ZeroDivisionError):
            async with lp.Player(log, targets={"a": "tcp://127.0.0.1:9"}, config=lp.Config(drain_ms_max=50)):
                raise ZeroDivisionError


async def test_open_log_by_await_and_with_a_token(tmp_path: Path) -> None:
    inner = await lp.open_log(f"file://{tmp_path}/log")
    server = LogServer(inner, lp.Security(token="secret"))
    address = f"grpc://127.0.0.1:{await server.start()}"
    async with lp.open_log(address, security=lp.Security(token="secret")) as log:
        assert isinstance(log, lp.Log)
        receipt = await (await log.producer()).append(lp.put("k", "v"))
        assert (await log.newest(receipt.producer)) == lp.Newest(1, receipt.index)
        assert [record.index async for records in log.read(1, 1) for record in records] == [1]
        assert (await log.info()).last == await log.trim(1) == 1
    await server.stop()
    await inner.close()
    with pytest.raises(lp.AddressError):
        lp.open_log("http://x")


async def test_leaving_the_block_sends_what_nobody_awaited(tmp_path: Path) -> None:
    async with lp.open_log(f"file://{tmp_path}/log") as log:
        producer = await log.producer("p")
        for number in range(50):
            producer.append(lp.put(f"{number}", "v"))
    async with lp.open_log(f"file://{tmp_path}/log") as log:
        assert (await log.newest("p")).sequence == 50


async def test_a_shard_that_has_moved_is_waited_for_where_the_player_was_told(tmp_path: Path) -> None:
    for _ in range(2):  # The second time at another port than the log's records say.
        store = lp.SqliteTarget(tmp_path / "a", "a")
        async with lp.open_log(f"file://{tmp_path}/log") as log, lp.TargetServer({"a": store}) as server:
            async with lp.Player(log, targets={"a": server.address}):
                await (await (await log.producer()).append(lp.put("k", "v"))).applied()
            await server.stop()


async def restored(tmp_path: Path, server: lp.TargetServer, lost: int) -> lp.OpenedLog:
    """A log as it was before its newest ``lost`` transactions, which the target has."""
    async with lp.open_log(f"file://{tmp_path}/log") as log, lp.Player(log, targets={"a": server.address}):
        producer = await log.producer("p")
        await (await producer.append(lp.put("old", "1"))).applied()
        await lp.backup_log(tmp_path / "log", tmp_path / "backup")
        for number in range(lost):
            receipt = await producer.append(lp.put(f"lost-{number}", "1"))
        await receipt.applied()
    (tmp_path / "log").rename(tmp_path / "newer")
    await lp.restore_log(tmp_path / "backup", tmp_path / "log")
    return await lp.open_log(f"file://{tmp_path}/log")


@pytest.mark.parametrize("new", [1, 10])
async def test_a_shard_of_another_history_has_not_applied_it(tmp_path: Path, new: int) -> None:
    """Whether or not the restored log has outgrown it: by its index alone it has the new entry."""
    store = lp.MemoryTarget()
    async with lp.TargetServer({"a": store}) as server, await restored(tmp_path, server, 5) as log:
        async with lp.Player(log, targets={"a": server.address}):
            producer = await log.producer("fresh")
            receipts = [await producer.append(lp.put(f"new-{number}", "1")) for number in range(new)]
            with pytest.raises(lp.TargetError, match=r"a has diverged from the log: .*restored from an older backup"):
                await receipts[0].applied()
            with pytest.raises(lp.TargetError, match="a has diverged from the log"):
                await lp.consistent_cut({"a": server.address}, log=log)
            assert await lp.consistent_cut([server.address]) > receipts[0].index
        assert store.get(b"new-0") is None


async def test_a_shard_of_another_history_in_the_blocking_api(tmp_path: Path) -> None:
    async with lp.TargetServer({"a": lp.MemoryTarget()}) as server, await restored(tmp_path, server, 5) as log:
        served = LogServer(log)
        address = f"grpc://127.0.0.1:{await served.start()}"
        places = {"a": server.address}

        def blocking() -> None:
            with lp.sync.open_log(address) as log:
                receipt = log.producer().append(lp.put("new", "1"))
                with pytest.raises(lp.TargetError, match="a has diverged from the log"):
                    receipt.applied()
                with pytest.raises(lp.TargetError, match="a has diverged from the log"):
                    lp.sync.consistent_cut(places, log=log)

        await asyncio.to_thread(blocking)
        await served.stop()


async def test_a_target_of_another_log(tmp_path: Path) -> None:
    async with lp.TargetServer({"a": lp.MemoryTarget()}) as server:
        async with lp.open_log(f"file://{tmp_path}/one") as one, lp.Player(one, targets={"a": server.address}):
            await (await (await one.producer()).append(lp.put("k", "v"))).applied()
        async with lp.open_log(f"file://{tmp_path}/two") as two:
            producer = await two.producer()
            for number in range(5):
                await producer.append(lp.put(f"{number}", "v"))
            with pytest.raises(lp.TargetError, match="a was filled from log"):
                await lp.consistent_cut({"a": server.address}, log=two)


async def test_a_cut_of_a_log_that_was_trimmed(tmp_path: Path) -> None:
    """At the trim point a target can still be compared; before it, nothing can tell."""
    async with lp.open_log(f"file://{tmp_path}/log") as log, lp.TargetServer({"a": lp.MemoryTarget()}) as server:
        targets = {"a": server.address}
        assert await lp.consistent_cut(targets, log=log) == 0
        async with lp.Player(log, targets=targets):
            producer = await log.producer()
            receipt = await producer.append(lp.put("k", "v"))
            await receipt.applied()
        cut = await lp.consistent_cut(targets, log=log)
        assert (await control_chain.trim(log, cut))[0] == cut == (await log.info()).first - 1
        assert await lp.consistent_cut(targets, log=log) == cut
        await receipt.applied()
        last = (await producer.append(lp.put("k", "w"))).index
        await control_chain.trim(log, last)
        with pytest.raises(lp.TargetError, match=f"a cannot be compared with the log: has index {cut}, needs {last} "):
            await lp.consistent_cut(targets, log=log)


async def test_an_entry_that_is_quarantined_is_not_applied(tmp_path: Path) -> None:
    """Also if that is decided while the receipt waits."""
    async with lp.open_log(f"file://{tmp_path}/log") as log, lp.TargetServer({"a": lp.MemoryTarget()}) as server:
        receipt = await (await log.producer()).append(lp.put("k", "v"))
        await control_chain.append(log, TargetAdded("a", 0, server.address), lp.HashMap(("a",)))
        waiting = asyncio.create_task(receipt.applied())
        await asyncio.sleep(0.2)
        await control_chain.append(log, Quarantined("a", receipt.index), None)
        async with lp.Player(log, targets={"a": server.address}):
            for _ in range(2):
                with pytest.raises(lp.TargetError, match=f"entry {receipt.index} is quarantined at 'a'.* redrive"):
                    await waiting
                waiting = asyncio.create_task(receipt.applied())
            await asyncio.gather(waiting, return_exceptions=True)
