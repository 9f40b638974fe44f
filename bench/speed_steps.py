"""Throughput against the number of targets and of players, and the rate at which a target catches up."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.actor import Actor
from bench.contest import Workload
from bench.live import Live
from bench.logs import make_host
from bench.ours import SCHEMES, Bare, FlatOut, Ours, wait_applied
from bench.play import Player
from bench.producer import payload_of
from bench.steps import Bench, Step, own_contestants

TARGETS = (2, 10, 20, 100, 500)
PLAYERS = (1, 2, 4)
PLAYERS_TARGETS = 20
COUNT, QUICK_COUNT = 15_000, 200


def throughput(bench: Bench) -> Iterator[Step]:
    """Megabytes per second from a full log, against the number of targets; and the bare streams'."""
    names = [f"{kind}_{scheme}" for scheme in SCHEMES for kind in ("ours", "bare")]
    points = bench.options.chosen(TARGETS, (2,))
    for nth, name in bench.turns(names):

        def act(nth: int = nth, name: str = name) -> None:
            _flat_out(bench, name, nth, points)

        yield Step("throughput", name, nth, act)


def _workload(bench: Bench, targets: int) -> Workload:
    return Workload(targets, 10, bench.options.rate, QUICK_COUNT if bench.options.quick else COUNT, 0)


def _flat_out(bench: Bench, name: str, nth: int, points: list[int]) -> None:
    contestant = own_contestants(bench.options.log)[name]()
    assert isinstance(contestant, Ours)
    try:
        contestant.open()
        for point in points:
            workload = _workload(bench, point)
            _note(bench, "throughput", name, nth, contestant.flat_out(workload), targets=point)
            if isinstance(contestant, Bare):
                found = contestant.flat_out_from_memory(workload)
                _note(bench, "throughput", f"{name}_no_log", nth, found, targets=point)
    finally:
        contestant.close()


def _note(bench: Bench, experiment: str, name: str, nth: int, found: FlatOut, **point: int) -> None:
    bench.raw.note_measure(
        experiment,
        name,
        nth,
        **point,
        mb_s=found.mb_s,
        transactions_s=found.transactions / found.seconds,
        player_cpu_us=found.player_cpu_s / found.transactions * 1e6,
    )


def players(bench: Bench) -> Iterator[Step]:
    """Throughput against the number of players that share 20 targets: as processes, and as tasks on Spark."""
    points = bench.options.chosen(PLAYERS, (2,))
    names = [f"ours_{scheme}" for scheme in SCHEMES] + (["spark_tcp"] if not bench.options.quick else [])
    for nth, name in bench.turns(names):

        def act(nth: int = nth, name: str = name) -> None:
            for point in points:
                if name == "spark_tcp":
                    _shared_on_spark(bench, nth, point)
                else:
                    _shared(bench, name, nth, point)

        yield Step("players", name, nth, act)


def _shared(bench: Bench, name: str, nth: int, count: int) -> None:
    workload = _workload(bench, 4 if bench.options.quick else PLAYERS_TARGETS)
    contestant = Ours(name.removeprefix("ours_"), make_host(bench.options.log))
    more: list[Actor] = []
    try:
        contestant.open()
        log = contestant.host.fresh()
        last_index, _ = contestant.fill(log, workload)
        address = contestant.targets.ask("serve", list(range(workload.targets)), contestant.scheme)
        where = dict.fromkeys(workload.names(), address)
        more = [Actor(Player) for _ in range(count)]
        for actor in more:
            actor.ask("usage")  # It has started: the players begin within a few milliseconds.
        for number, actor in enumerate(more):
            owned = tuple(workload.names()[number::count])
            actor.ask("play", log, where, f"g{number}", owned, False)
        for actor in more:
            actor.tell("reach", last_index)
        for actor in more:
            actor.answer(250)
        wait_applied(contestant.targets, _deliveries(workload))
        first, last = contestant.targets.ask("span")
        total = sum(actor.ask("usage")["cpu_s"] for actor in more)
        found = FlatOut((last - first) / 1e9, _bytes(workload), workload.count, total)
        _note(bench, "players", name, nth, found, players=count)
    finally:
        for actor in more:
            actor.stop()
        contestant.close()


def _shared_on_spark(bench: Bench, nth: int, count: int) -> None:
    from bench.on_spark import SparkPlayers

    workload = _workload(bench, PLAYERS_TARGETS)
    contestant = Ours("tcp", make_host(bench.options.log))
    spark = None
    try:
        contestant.open()
        log = contestant.host.fresh()
        contestant.fill(log, workload)
        address = contestant.targets.ask("serve", list(range(workload.targets)), "tcp")
        spark = Actor(SparkPlayers)
        spark.ask("open", count, seconds=120)
        spark.ask("play", log, dict.fromkeys(workload.names(), address), count, seconds=60)
        wait_applied(contestant.targets, _deliveries(workload), seconds=200)
        first, last = contestant.targets.ask("span")
        found = FlatOut((last - first) / 1e9, _bytes(workload), workload.count, 0.0)
        facts = {"players": count, "mb_s": found.mb_s, "transactions_s": found.transactions / found.seconds}
        bench.raw.note_measure("players", "spark_tcp", nth, **facts)
    finally:
        if spark is not None:
            spark.stop()
        contestant.close()


def _deliveries(workload: Workload) -> int:
    return sum(len(workload.parts(number)) for number in range(1, workload.count + 1))


def _bytes(workload: Workload) -> int:
    return len(payload_of(workload, 1)) * workload.count


def catchup(bench: Bench) -> Iterator[Step]:
    """How fast a target that was away catches up, while new entries keep coming."""
    for nth, name in bench.turns([f"ours_{scheme}" for scheme in SCHEMES]):

        def act(nth: int = nth, name: str = name) -> None:
            _catch_up(bench, name, nth)

        yield Step("catchup", name, nth, act)


def _catch_up(bench: Bench, name: str, nth: int) -> None:
    """The target comes back empty, so it takes the whole log; the rate counts from its first entry."""
    workload = Workload(2, 2, 300.0 if bench.options.quick else 1000.0, 1, 0)
    with Live(name.removeprefix("ours_"), bench.options.log, [[0], [1]], workload) as live:
        live.begin()
        live.targets[1].kill()
        live.player.ask("notice", "t1")
        time.sleep(1 if bench.options.quick else 10)
        live.restart_targets(1)
        ended, index = live.player.ask("caught_up", "t1", seconds=250)
        first, _ = live.targets[1].ask("span")
        live.producer.ask("finish")
    seconds = (ended - first) / 1e9
    facts = {"entries": index, "seconds": seconds, "per_second": index / seconds}
    bench.raw.note_measure(
        "catchup", name, nth, arrival_per_second=workload.rate, factor=index / seconds / workload.rate, **facts
    )
