"""What happens while something is broken: a frozen target, and ``kill -9`` of a player, a target, the log's leader."""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from bench.actor import Actor
from bench.contest import Workload
from bench.live import Live
from bench.logs import ServedHost
from bench.ours import SCHEMES
from bench.play import Player
from bench.steps import Bench, Step

FROZEN_TARGETS = 20
VICTIM = "t0"
Moments = tuple[int, int]  # When a process was killed, and when it was gone.


def frozen(bench: Bench) -> Iterator[Step]:
    """The others' delay while one of 20 targets is frozen, and the time until its player knows."""
    for nth, name in bench.turns([f"ours_{scheme}" for scheme in SCHEMES]):

        def act(nth: int = nth, name: str = name) -> None:
            _freeze(bench, name, nth)

        yield Step("frozen", name, nth, act)


def _freeze(bench: Bench, name: str, nth: int) -> None:
    quick = bench.options.quick
    count, seconds = (3, 1.0) if quick else (FROZEN_TARGETS, 8.0)
    workload = Workload(count, 10, bench.options.rate, 1, 0)
    phases = [False, True] if nth % 2 else [True, False]
    with Live(name.removeprefix("ours_"), bench.options.log, [[0], list(range(1, count))], workload) as live:
        live.begin()
        time.sleep(0.5 if quick else 2)
        for is_frozen in phases:
            live.forget()
            began = time.monotonic_ns()
            if is_frozen:
                live.targets[0].signal(signal.SIGSTOP)
                noticed = live.player.ask("notice", VICTIM)
                bench.raw.note_measure("frozen", name, nth, what="detect", seconds=(noticed - began) / 1e9)
            time.sleep(max(0.0, seconds - (time.monotonic_ns() - began) / 1e9))
            samples = live.samples(1)
            if is_frozen:
                live.targets[0].signal(signal.SIGCONT)
                live.player.ask("settle")
            told = replace(workload, count=max(sample.transaction for sample in samples))
            bench.raw.note_samples("frozen", f"{name}+frozen" if is_frozen else name, nth, told, samples)
        live.producer.ask("finish")


def failover(bench: Bench) -> Iterator[Step]:
    """Seconds from ``kill -9`` until every target has got an entry that was asked for after it."""
    for nth, name in bench.turns([f"ours_{scheme}" for scheme in SCHEMES]):

        def act(nth: int = nth, name: str = name) -> None:
            _kill_all(bench, name, nth)

        yield Step("failover", name, nth, act)


def _kill_all(bench: Bench, name: str, nth: int) -> None:
    workload = Workload(2, 10, bench.options.rate, 1, 0)
    log = "served" if bench.options.log == "nats" else bench.options.log
    with (
        tempfile.TemporaryDirectory(prefix="lp-bench-") as folder,
        Live(name.removeprefix("ours_"), log, [[0], [1]], workload, folder) as live,
    ):
        live.begin()
        kills: dict[str, Callable[[Live], Moments]] = {
            "target": _kill_target,
            "player, a new process": _kill_player,
            "player, one that waits": _standby(live),
        }
        if isinstance(live.host, ServedHost):
            kills["the log's leader"] = _kill_leader
        for what, kill in kills.items():
            time.sleep(0.5)
            live.forget()
            seconds = live.next_delivery(*kill(live))
            bench.raw.note_measure("failover", name, nth, what=what, seconds=seconds)
        live.producer.ask("finish", seconds=180)


def _timed(kill: Callable[[], None]) -> Moments:
    killed = time.monotonic_ns()
    kill()
    return killed, time.monotonic_ns()


def _kill_target(live: Live) -> Moments:
    moments = _timed(live.targets[1].kill)
    live.restart_targets(1)
    return moments


def _kill_player(live: Live) -> Moments:
    moments = _timed(live.player.kill)
    live.player = Actor(Player)
    live.play()
    return moments


def _standby(live: Live) -> Callable[[Live], Moments]:
    """A process that has everything loaded and plays as soon as it is told."""
    waits = Actor(Player)
    waits.ask("usage")
    live.spares.append(waits)

    def kill(live: Live) -> Moments:
        moments = _timed(live.player.kill)
        live.player = live.spares.pop()
        live.play()
        return moments

    return kill


def _kill_leader(live: Live) -> Moments:
    assert isinstance(live.host, ServedHost)
    from logplayer.testing.conformance.log_nats import leader_of

    host = live.host

    async def leader() -> int:
        from logplayer.log.nats.log import NatsLog
        from logplayer.log.open import parse

        behind = parse(host.behind[live.log])
        log = await NatsLog.open(behind.hosts, behind.name)
        try:
            return await leader_of(log)
        finally:
            await log.close()

    node = asyncio.run(leader())
    return _timed(lambda: host.cluster.kill(node))
