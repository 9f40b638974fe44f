"""The fault campaign on real processes: ``python -m tests.campaign --faults 300 --seed 7``.

Starts a log server, targets with proxies in front, and players; producers append all the time. Processes are killed
with -9 and frozen, connections are cut and stalled, the log server is killed, and second players are started while the
first live, as the seed says. At the end everything is healed, and what each store holds is compared with what the log
says it must hold: content, order, index and digest. The seed decides what is done, the machine when it takes effect.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from logplayer.errors import LogError, LogPlayerError
from logplayer.log.client import LogClient
from logplayer.log.protocol import Record
from logplayer.testing.orphans import end_with_this_process
from tests.campaign.check import compare, expect, hashed, read_all
from tests.campaign.load import Producers
from tests.campaign.world import Seat, World

PLAYERS_MAX = 3  # Living ones: more would only starve each other on a small machine.
AIM_TRIES, AIM_BYTES = 60, 500
WELL = (0, 3)  # Exit codes of a player that was asked to end, or that stepped down.


@dataclass(slots=True)
class Report:
    """What a campaign did and found."""

    seed: int
    faults: dict[str, int] = field(default_factory=dict)
    entries: int = 0
    delivered: dict[str, int] = field(default_factory=dict)  # target -> entries
    stores: dict[str, str] = field(default_factory=dict)
    players: int = 0
    restarts: int = 0
    epochs: int = 0
    seconds: float = 0.0
    heal_seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems


class Campaign:
    """One run. ``directory`` keeps everything: the log, the stores, what the processes said, and the traces."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        *,
        faults: int,
        targets: int = 3,
        rate: int = 500,
        pause: tuple[float, float] = (0.2, 1.0),
        servers: dict[str, str] | None = None,
        trace: bool = False,
        entries_max: int | None = None,
        seconds_max: float = 3600,
        told: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.report = Report(seed)
        self.world = World.make(directory, targets, servers or {}, trace)
        self.records: list[Record] = []
        self._rng = random.Random(seed)
        self._faults = faults
        self._pause = pause
        self._seconds_max = seconds_max
        self._told = told
        self._producers = Producers(self.world.log_port, list(self.world.seats), rate, seed, entries_max)
        self._watching = True
        self._repairs: set[asyncio.Task[None]] = set()
        self._kinds: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "kill target": (4, self._kill_target),
            "freeze target": (3, self._freeze_target),
            "kill player": (3, self._kill_player),
            "freeze player": (2, self._freeze_player),
            "second player": (3, self._second_player),
            "cut": (5, self._cut),
            "delay": (4, self._delay),
            "stall": (2, self._stall),
            "refuse": (1, self._refuse),
            "kill log": (1, self._kill_log),
            "freeze log": (1, self._freeze_log),
        }

    async def run(self) -> Report:
        """Break things, heal them, and compare."""
        began = time.monotonic()
        world, report = self.world, self.report
        try:
            await world.start()
            await self._answers(world.log_port)
            producing = asyncio.create_task(self._producers.run())
            playing = asyncio.create_task(self._keep_playing())
            await self._break(began + self._seconds_max)
            healed = time.monotonic()
            await self._heal(producing)
            report.heal_seconds = round(time.monotonic() - healed, 1)
            self._watching = False
            await playing
            await self._end_players()
            self.records = await self._verify()
        finally:
            for task in self._repairs:
                task.cancel()
            await world.stop()
        report.players = len(world.players)
        report.restarts = world.log.starts - 1 + sum(child.starts - 1 for child in world.children())
        report.seconds = round(time.monotonic() - began, 1)
        return report

    # --- Breaking ---

    async def _break(self, until: float) -> None:
        kinds, weights = list(self._kinds), [weight for weight, _ in self._kinds.values()]
        done: Counter[str] = Counter()
        while sum(done.values()) < self._faults and time.monotonic() < until:
            await asyncio.sleep(self._rng.uniform(*self._pause))
            kind = self._rng.choices(kinds, weights)[0]
            await self._flowing()
            await self._kinds[kind][1]()
            done[kind] += 1
            self._told(f"{sum(done.values())}/{self._faults} {kind}, {self._producers.appended} entries")
        self.report.faults = dict(done)
        if sum(done.values()) < self._faults:
            self.report.problems.append(f"only {sum(done.values())} of {self._faults} faults within the time")

    async def _flowing(self) -> None:
        """Wait a little until entries flow somewhere: a fault that hits an idle system shows nothing."""
        seats = list(self.world.seats.values())
        for _ in range(AIM_TRIES):
            before = [seat.proxy.bytes for seat in seats]
            await asyncio.sleep(0.05)
            moved = sum(seat.proxy.bytes - was > AIM_BYTES for seat, was in zip(seats, before, strict=True))
            if moved >= len(seats) / 2:
                return

    def _seat(self) -> Seat:
        return self._rng.choice(list(self.world.seats.values()))

    def _later(self, seconds: float, repair: Callable[[], Awaitable[None] | None]) -> None:
        async def wait() -> None:
            await asyncio.sleep(seconds)
            waiting = repair()
            if waiting is not None:
                await waiting

        task = asyncio.create_task(wait())
        self._repairs.add(task)
        task.add_done_callback(self._repairs.discard)

    async def _kill_target(self) -> None:
        child = self._seat().child
        await child.kill()
        self._later(self._rng.uniform(0, 2), child.start)

    async def _freeze_target(self) -> None:
        child = self._seat().child
        child.freeze()
        self._later(self._rng.uniform(0.3, 4), child.thaw)

    async def _kill_player(self) -> None:
        living = self.world.living()
        if living:
            await self._rng.choice(living).kill()

    async def _freeze_player(self) -> None:
        """It knows nothing of the time that passes, nor of the player that takes over meanwhile."""
        living = self.world.living()
        if living:
            player = self._rng.choice(living)
            player.freeze()
            self._later(self._rng.uniform(0.5, 5), player.thaw)

    async def _second_player(self) -> None:
        if len(self.world.living()) < PLAYERS_MAX:
            await self.world.add_player()

    async def _cut(self) -> None:
        seats = list(self.world.seats.values())
        for seat in seats if self._rng.random() < 0.2 else [self._rng.choice(seats)]:
            seat.proxy.cut()

    async def _stall(self) -> None:
        proxy = self._seat().proxy
        proxy.stall()
        self._later(self._rng.uniform(0.2, 4), proxy.flow)

    async def _delay(self) -> None:
        """What is under way arrives long after the player has gone on over another connection."""
        proxy = self._seat().proxy
        proxy.delay()
        self._later(self._rng.uniform(1, 5), proxy.flow)

    async def _refuse(self) -> None:
        proxy = self._seat().proxy
        proxy.refuse()
        self._later(self._rng.uniform(0.2, 2), proxy.flow)

    async def _kill_log(self) -> None:
        await self.world.log.kill()
        self._later(self._rng.uniform(0, 1), self.world.log.start)

    async def _freeze_log(self) -> None:
        log = self.world.log
        log.freeze()
        self._later(self._rng.uniform(0.3, 3), log.thaw)

    async def _keep_playing(self) -> None:
        """Whoever watches over players starts one when none lives; a frozen one does not count."""
        while self._watching:
            if all(player.frozen for player in self.world.living()):
                await self.world.add_player()
                await asyncio.sleep(1.0)
            await asyncio.sleep(0.2)

    # --- Healing ---

    async def _heal(self, producing: asyncio.Task[None]) -> None:
        await asyncio.gather(*self._repairs)
        await self.world.log.start()
        for seat in self.world.seats.values():
            seat.child.thaw()
            seat.proxy.flow()
            await seat.child.start()
        await self._answers(self.world.log_port)
        self._producers.stop()
        await producing
        log = await self._open_log()
        end = time.monotonic() + 90
        behind = {}
        while time.monotonic() < end:
            last = (await log.info()).last
            behind = {name: at for name, seat in self.world.seats.items() if (at := await seat.index()) < last}
            if not behind:
                break
            await asyncio.sleep(0.2)
        if behind:
            self.report.problems.append(f"not delivered within 90 s of healing: {behind}, the log ends at {last}")
        await log.close()

    async def _end_players(self) -> None:
        """The last player drains and ends; every other has stepped down, was killed, or found no log at its start."""
        living = self.world.living()
        codes = await asyncio.gather(*(player.end() for player in living))
        for player, code in zip(living, codes, strict=True):
            said = player.said()
            # Python itself was still starting, or was on its way out after the player had ended by itself.
            unheard = code == -signal.SIGTERM and ("playing" not in said or "\nended: " in said)
            if code not in WELL and not unheard:
                self.report.problems.append(f"{player.name} was asked to end and left with exit code {code}")
        children = [*self.world.players, *self.world.children(), self.world.log]
        for child in children:
            said = child.said()
            found = [place for word in ("Traceback", "InvariantViolation") if (place := said.find(word)) >= 0]
            if (at := min(found, default=-1)) >= 0:
                self.report.problems.append(f"{child.name} broke down: {said[max(0, at - 500) : at + 3000]}")

    # --- Comparing ---

    async def _verify(self) -> list[Record]:
        report = self.report
        log = await self._open_log()
        records = await read_all(log)
        await log.close()
        for child in self.world.children():
            await child.end()
        names = list(self.world.seats)
        report.problems += self._producers.compare(records)
        expected = expect(records, names, hashed(names))
        for name, seat in self.world.seats.items():
            store = seat.store()
            try:
                report.problems += compare(name, expected[name], store)
            finally:
                store.close()
        report.entries = self._producers.appended
        report.delivered = {name: item.entries for name, item in expected.items()}
        report.stores = {name: seat.kind for name, seat in self.world.seats.items()}
        report.epochs = sum(1 for record in records if record.producer == "logplayer.control")
        return records

    async def _open_log(self) -> LogClient:
        return await LogClient.open(f"127.0.0.1:{self.world.log_port}")

    async def _answers(self, port: int) -> None:
        for _ in range(300):
            try:
                await (await LogClient.open(f"127.0.0.1:{port}")).close()
                return
            except LogError:
                await asyncio.sleep(0.1)
        raise LogPlayerError(f"the log server does not start: {self.world.log.said()[-2000:]}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--seed", type=int, default=None, help="default: the time")
    parser.add_argument("--targets", type=int, default=3, help="targets in SQLite files")
    parser.add_argument("--postgres", default="", metavar="URL", help="one more target, in PostgreSQL")
    parser.add_argument("--redis", default="", metavar="URL", help="one more target, in Redis")
    parser.add_argument("--rate", type=int, default=500, help="entries per second")
    parser.add_argument("--seconds-max", type=float, default=3600)
    parser.add_argument("--keep", default="", metavar="DIR", help="keep logs, stores and output here")
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    end_with_this_process()
    seed = options.seed if options.seed is not None else int(time.time())
    servers = {kind: url for kind, url in (("postgres", options.postgres), ("redis", options.redis)) if url}

    def tell(text: str) -> None:
        if not options.as_json:
            print(f"\r{text:<70}", end="", file=sys.stderr, flush=True)

    def run(directory: str) -> Report:
        Path(directory).mkdir(parents=True, exist_ok=True)
        campaign = Campaign(
            Path(directory),
            seed,
            faults=options.faults,
            targets=options.targets,
            rate=options.rate,
            servers=servers,
            seconds_max=options.seconds_max,
            told=tell,
        )
        return asyncio.run(campaign.run())

    if options.keep:
        report = run(options.keep)
    else:
        with tempfile.TemporaryDirectory(prefix="logplayer-campaign-") as directory:
            report = run(directory)
    print(json.dumps({"ok": report.ok, **asdict(report)}) if options.as_json else _text(report))
    return 0 if report.ok else 1


def _text(report: Report) -> str:
    faults = ", ".join(f"{count} {kind}" for kind, count in sorted(report.faults.items()))
    lines = [
        f"\nseed {report.seed}: {sum(report.faults.values())} faults ({faults})",
        f"{report.entries} entries, {report.players} players, {report.restarts} restarts, {report.seconds:.0f} s",
        "every target holds exactly what the log says" if report.ok else "NOT what the log says:",
    ]
    return "\n".join(lines + report.problems)
