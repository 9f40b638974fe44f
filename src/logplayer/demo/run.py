"""The demo's story: start, move money, break things, heal, and prove what arrived."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from logplayer.core.entry import Entry, ExplicitMap
from logplayer.demo.bank import PRODUCER, Bank
from logplayer.demo.delays import IndexWatcher, percentiles
from logplayer.demo.journal import ShardVerdict, judge
from logplayer.demo.world import Narrate, World
from logplayer.log import control_chain as chain
from logplayer.log.open import open_log
from logplayer.log.producer import Producer
from logplayer.log.protocol import Kind, Log
from logplayer.player.entries import read_entries

HEAL_SECONDS_MAX = 90.0  # A Spark application may have to start again.


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """What the user asked for."""

    shards: int
    transactions: int
    size: int
    faults: bool
    seconds: float
    log: str
    engine: str


@dataclass(slots=True)
class DemoVerdict:
    """What came out. ``holds`` is the proof."""

    appended: int
    delivered: int
    lost: int
    doubled: int
    out_of_order: int
    digests_match: bool
    total_before: int
    total_after: int
    faults: int
    delay_ms: dict[str, float]  # All of it, while things were killed and frozen too.
    calm_delay_ms: dict[str, float]  # Before the first fault.
    shards: list[ShardVerdict]
    audit: str = "not run"  # By Spark, if the player was on Spark: "right" or "wrong".

    @property
    def holds(self) -> bool:
        return (
            not (self.lost or self.doubled or self.out_of_order)
            and self.digests_match
            and self.total_before == self.total_after
            and self.audit != "wrong"
            and all(shard.expected == shard.delivered for shard in self.shards)
        )


class Demo:
    """One run of the demo, once its world runs."""

    def __init__(
        self, plan: DemoPlan, world: World, say: Narrate, show: Callable[[dict[str, Any] | None, str], None]
    ) -> None:
        self.plan = plan
        self.world = world
        self.say = say
        self._show = show
        self._bank = Bank(accounts=40 * plan.shards, size=plan.size)
        self._watchers = [IndexWatcher(name, address) for name, address in world.watch_addresses.items()]
        self.faults = 0
        self._first_fault = float("inf")

    async def run(self) -> DemoVerdict:
        """Everything from the first append to the verdict."""
        log = await open_log(self.world.log)
        try:
            total = self._bank.total
            producer = await Producer.open(log, PRODUCER)
            opened = await asyncio.gather(*(producer.append(*some) for some in self._bank.open_accounts()))
            await self._reach(opened[-1].index)  # The start of a player does not count as a delay.
            self.say(f"money moves: {self.plan.transactions} transfers in {self.plan.seconds:g} s")
            watching = asyncio.create_task(self._watch())
            await asyncio.gather(self._move_money(producer), self._break_things())
            await self._heal(log)
            watching.cancel()
            return await self._judge(log, total)
        finally:
            for watcher in self._watchers:
                watcher.close()
            await log.close()

    async def _move_money(self, producer: Producer) -> None:
        pause = self.plan.seconds / max(1, self.plan.transactions)
        started = time.perf_counter()
        sampled = 0.0
        for number in range(self.plan.transactions):
            receipt = await producer.append(*self._bank.transfer())
            now = time.perf_counter()
            if now - sampled > 0.01:
                sampled = now
                await self._watchers[number % len(self._watchers)].ask(receipt.index)
            wait = started + (number + 1) * pause - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)

    async def _break_things(self) -> None:
        if not self.plan.faults:
            return
        names = list(self.world.shards)
        acts: list[Callable[[], Awaitable[None]]] = [
            lambda: self.world.kill_shard(names[0], self.say),
            lambda: self.world.freeze_shard(names[-1], self.say),
            lambda: self.world.kill_player(self.say),
            lambda: self.world.second_player(self.say),
        ]
        running = []
        for number, act in enumerate(acts):
            await asyncio.sleep(self.plan.seconds * 0.12 if number else self.plan.seconds * 0.08)
            self.faults += 1
            self._first_fault = min(self._first_fault, time.perf_counter())
            running.append(asyncio.ensure_future(act()))
        await asyncio.gather(*running)

    async def _watch(self) -> None:
        """Show the state of everything; start the player again if another one superseded it."""
        while True:
            await asyncio.sleep(0.5)
            if self.world.keep_player():
                self.say("the player had stepped down; started it again")
            moved = f"{self._bank.transfers} of {self.plan.transactions} transfers"
            self._show(await self.world.ask_player(), moved)

    async def _heal(self, log: Log) -> None:
        """No more faults: wait until every shard has everything."""
        last = (await log.info()).last
        self.say(f"healing: waiting until every shard has entry {last}")
        await self._reach(last)

    async def _reach(self, index: int) -> None:
        deadline = time.monotonic() + HEAL_SECONDS_MAX
        while time.monotonic() < deadline:
            status = await self.world.ask_player()
            if status is not None and status["targets"] and all(t["index"] >= index for t in status["targets"]):
                return
            await asyncio.sleep(0.2)
        self.say(f"not every shard had entry {index} within {HEAL_SECONDS_MAX:.0f} s")

    async def _judge(self, log: Log, total: int) -> DemoVerdict:
        """Read the whole log, and compare every shard with it."""
        info = await log.info()
        entries: list[Entry] = []
        appended = 0
        async with aclosing(log.read(info.first, info.last)) as batches:  # type: ignore[type-var]
            async for records in batches:
                appended += sum(1 for record in records if record.kind == Kind.DATA)
                entries += read_entries(records)
        router = (await chain.load(log)).control(ExplicitMap()).router
        shards = [judge(name, self.world.path(name), entries, router) for name in self.world.shards]
        audit = await self._audit()
        samples = [sample for watcher in self._watchers for sample in watcher.samples]
        return DemoVerdict(
            appended=appended,
            delivered=sum(shard.delivered for shard in shards),
            lost=sum(shard.lost for shard in shards),
            doubled=sum(shard.doubled for shard in shards),
            out_of_order=sum(shard.out_of_order for shard in shards),
            digests_match=all(shard.digest_matches for shard in shards),
            total_before=total,
            total_after=sum(shard.total for shard in shards),
            faults=self.faults,
            delay_ms=percentiles([delay for _, delay in samples]),
            calm_delay_ms=percentiles([delay for asked, delay in samples if asked < self._first_fault]),
            shards=shards,
            audit=audit,
        )

    async def _audit(self) -> str:
        """The same question to Spark: digests and contents recomputed from the log."""
        if self.plan.engine != "spark":
            return "not run"
        self.say("auditing with Spark: every shard's digest and content, from the log")
        fine, told = await asyncio.to_thread(self.world.audit)
        for line in told.splitlines():
            self.say(f"  {line}")
        return "right" if fine else "wrong"
