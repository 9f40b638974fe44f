"""What do HTTP and the counters cost? The same load in turns, with them and without.

    python -m bench.parts.http_bench [--no-counters | --other OTHER/src] [--unobserved] [--json] [--rounds 6]

What it compares:

``--no-counters``
    The side without has neither HTTP nor counters: log and targets serve no HTTP, nobody asks the player's, and a
    ``sitecustomize.py`` turns the instruments into functions that do nothing. What remains of them there are the calls
    of these functions and additions of integers (``entries += 1`` and the like). After each round one scrape of the
    player must find no ack in the histogram of the one side, and some in that of the other.
``--other``
    The side without is another version: the source of a checkout without them, compiled in the same way.
neither
    Both sides are this version, both count, and one of them is not looked at.

The side with HTTP has ``--http`` at all processes, is scraped once a second at each of them, and a follower reads the
player's events as an open page does. Whoever scrapes and follows needs a processor too, which on a small machine is one
that the player wants: so while the side without is measured, they do the same at idle processes. With ``--unobserved``
nobody looks at anything: what another change costs, by a version without it as ``--other``.

Full load: the log holds the entries already, each for four targets in one process; the time is that of a player that
delivers all of them, and its CPU time. Light load: entries come one by one; the delay is from the append to the target
saying that it has the entry. The rounds alternate, and the medians of the rounds are compared.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from logplayer.admin.http_client import follow
from logplayer.errors import LogPlayerError
from logplayer.log.client import LogClient
from logplayer.log.protocol import NewEntry
from logplayer.target import client
from logplayer.wire.entries import encode_mutation
from tests.campaign.world import free_port

NAMES = ("a", "b", "c", "d")
TICKS = os.sysconf("SC_CLK_TCK")
ACKS = "logplayer_player_ack_seconds_count"
# The sitecustomize.py of processes that count nothing.
NO_COUNTERS = """
from logplayer.admin.feed import EventFeed
from logplayer.log import append_service
from logplayer.observe.instruments import Delays, RecentDelays
from logplayer.player.observed import Observed


def _nothing(*_, **__):
    return None


Delays.note = RecentDelays.note = RecentDelays.roll = _nothing
Observed.acked = EventFeed.start = append_service.note_answered = _nothing
"""


class Side:
    """The processes of one side for one round."""

    def __init__(self, folder: Path, source: str = "", *, observed: bool, counts: bool = True) -> None:
        self._folder = folder
        self._env = {**os.environ, "PYTHONPATH": source} if source else dict(os.environ)
        self.observed, self.counts = observed, counts
        if not counts:
            (folder / "site").mkdir()
            (folder / "site" / "sitecustomize.py").write_text(NO_COUNTERS)
            self._env["PYTHONPATH"] = os.pathsep.join(filter(None, [f"{folder}/site", os.environ.get("PYTHONPATH")]))
        self.log_at, self.target_at = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        self.faces = [f"127.0.0.1:{free_port()}" for _ in range(3)]  # Of the log, the targets and the player.
        self.children: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str, face: int) -> subprocess.Popen[bytes]:
        http = ("--http", self.faces[face]) if self.observed else ()
        with (self._folder / "out").open("ab") as out:
            child = subprocess.Popen(
                [sys.executable, "-m", "logplayer.cli", *words, *http], env=self._env, stdout=out, stderr=out
            )
        self.children.append(child)
        return child

    def serve(self) -> None:
        self.start("log", "serve", "--log", f"file://{self._folder}/log", "--listen", self.log_at, face=0)
        ids = [word for name in NAMES for word in ("--id", name)]
        self.start(
            "target",
            "serve",
            "--store",
            "bench.memory_store:BenchStore",
            "--path",
            "{id}",
            *ids,
            "--listen-tcp",
            self.target_at,
            face=1,
        )

    def play(self, status_option: str) -> subprocess.Popen[bytes]:
        named = [f"--target={name}=tcp://{self.target_at}" for name in NAMES]
        without = () if self.observed else (status_option, self.faces[2] if not self.counts else "127.0.0.1:0")
        words = ("play", "--in-process", "--log", f"grpc://{self.log_at}", *without, *named)
        return self.start(*words, face=2)

    def check_counters(self) -> None:
        """Raise RuntimeError if the player has counted and was not to, or has not and was to."""
        said = urllib.request.urlopen(f"http://{self.faces[2]}/metrics", timeout=60).read().decode()
        acks = next(float(line.split()[1]) for line in said.splitlines() if line.startswith(f"{ACKS} "))
        if (acks > 0) is not self.counts:
            raise RuntimeError(f"{ACKS} is {acks:.0f} on the side {'with' if self.counts else 'without'} counters")

    def stop(self) -> None:
        for child in self.children:
            child.terminate()
        for child in self.children:
            child.wait(60)


@contextlib.asynccontextmanager
async def watched(side: Side) -> AsyncIterator[None]:
    """Scrape each process once a second and follow the player's events, if this side is observed."""

    async def scrape() -> None:
        while True:
            for face in side.faces:
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(lambda at: urllib.request.urlopen(f"http://{at}/metrics").read(), face)
            await asyncio.sleep(1)

    async def look() -> None:
        while True:
            with contextlib.suppress(LogPlayerError):
                async for _ in follow(side.faces[2], "/events"):
                    pass
            await asyncio.sleep(0.1)

    tasks = [asyncio.create_task(scrape()), asyncio.create_task(look())] if side.observed else []
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def idle(folder: Path, wanted: bool) -> AsyncIterator[Side]:
    """Processes that have nothing to do but to be looked at; none if they are not wanted."""
    side = Side(folder, observed=wanted)
    try:
        if wanted:
            side.serve()
            side.play("--http")
            await _reach(side, 1)
        yield side
    finally:
        side.stop()


async def run_round(source: str, observed: bool, option: str, options: argparse.Namespace) -> dict[str, float]:
    """One round of one side: entries per second, CPU microseconds per entry, milliseconds at light load."""
    prefix = "logplayer-http-bench-"
    with tempfile.TemporaryDirectory(prefix=prefix) as folder, tempfile.TemporaryDirectory(prefix=prefix) as made:
        async with idle(Path(made), not options.unobserved) as other:
            counts = observed or not options.no_counters
            side = Side(Path(folder), source, observed=observed, counts=counts)
            return await _measured(side, other, option, options)


async def _measured(side: Side, other: Side, option: str, options: argparse.Namespace) -> dict[str, float]:
    try:
        side.serve()
        log = await LogClient.open(side.log_at, open_seconds=60)
        last = await _fill(log, options.entries)
        async with watched(side if side.observed else other):
            player = side.play(option)
            await _reach(side, 1)
            began, used = time.perf_counter(), _cpu(player.pid)
            await _reach(side, last)
            seconds, cpu = time.perf_counter() - began, _cpu(player.pid) - used
            delays = await _paced(side, log, options.paced)
        await log.close()
        if options.no_counters:
            await asyncio.to_thread(side.check_counters)
        return {
            "entries_per_second": options.entries / seconds,
            "cpu_us_per_entry": cpu / options.entries * 1e6,
            "delay_ms_p50": statistics.median(delays) * 1000,
        }
    finally:
        side.stop()


async def _fill(log: LogClient, entries: int) -> int:
    payload = b"".join(encode_mutation(b"key", bytes(200), name).encoded for name in NAMES)
    last = 0
    for start in range(1, entries + 1, 500):
        group = [NewEntry("p", number, payload) for number in range(start, min(start + 500, entries + 1))]
        last = (await log.append(group))[-1]
    return last


async def _reach(side: Side, index: int) -> None:
    where = f"tcp://{side.target_at}"
    await asyncio.gather(*(client.wait_for(where, name, index, 300) for name in NAMES))


async def _paced(side: Side, log: LogClient, count: int) -> list[float]:
    payload = b"".join(encode_mutation(b"key", bytes(200), name).encoded for name in NAMES)
    delays = []
    for number in range(1, count + 1):
        began = time.perf_counter()
        [index] = await log.append([NewEntry("light", number, payload)])
        await client.wait_for(f"tcp://{side.target_at}", NAMES[number % 4], index, 60)
        delays.append(time.perf_counter() - began)
        await asyncio.sleep(0.005)
    return delays


def _cpu(pid: int) -> float:
    """Seconds of CPU that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def main(options: argparse.Namespace) -> dict[str, Any]:
    """All rounds, and what they say."""
    rounds: dict[str, list[dict[str, float]]] = {"without": [], "with": []}
    for number in range(options.rounds):
        sides = [
            ("without", options.other, False, options.status_option),
            ("with", "", not options.unobserved, "--http"),
        ]
        for name, source, observed, word in sides if number % 2 else reversed(sides):
            rounds[name].append(await run_round(source, observed, word, options))
            print(number, name, {key: round(value, 2) for key, value in rounds[name][-1].items()}, file=sys.stderr)
    median = {
        name: {key: round(statistics.median(one[key] for one in some), 3) for key in some[0]}
        for name, some in rounds.items()
    }
    change = {key: round((median["with"][key] / median["without"][key] - 1) * 100, 1) for key in median["with"]}
    return {"median": median, "change_percent": change, "rounds": rounds}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    sides = parser.add_mutually_exclusive_group()
    sides.add_argument("--other", default="")
    sides.add_argument("--no-counters", action="store_true")
    parser.add_argument("--unobserved", action="store_true")
    parser.add_argument("--status-option", default="--http", help="What the other version calls --http.")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--entries", type=int, default=30_000)
    parser.add_argument("--paced", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.no_counters and asked.unobserved:
        parser.error("--no-counters compares with a side that is looked at: leave --unobserved out")
    found = asyncio.run(main(asked))
    print(json.dumps(found if "--json" in sys.argv else {key: found[key] for key in ("median", "change_percent")}))
