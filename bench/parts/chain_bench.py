"""What does the chain cost? Appends and delivery, in turns with the same code and a chain that is a constant.

    python bench/parts/chain_bench.py [--json] [--turns 100] [--scale 1.0] [--dir DIR]

Entries of 10 KB and of 200 bytes; for each case there is a process, in which both sides take turns, each with a log of
its own. On one side the function that extends the chain is replaced by one that returns a constant; all else is the
same, also the bytes that a chain value takes. (With a process for each side, the one could be faster than the other by
where its memory lies.) *Append*: groups of 200, two of them under way, to an embedded log. *Deliver*: a player reads a
full log and delivers it to a target in memory over TCP.

The two begin by turns, and each pair of turns is compared with itself: so both meet the same machine. What counts is
the median over the pairs; the quartiles beside it say what the machine's noise is worth. Where other work runs beside,
throughput says little; processor time is steadier.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

import logplayer as lp
from logplayer.core import chain

CONSTANT = b"\x01" * chain.VALUE_BYTES
GROUP_COUNT = 200
# (what, bytes of an entry): entries of a turn. Turns are short, so that the two of a pair meet the same machine.
CASES = {("append", 10 * 1024): 800, ("append", 200): 4000, ("deliver", 10 * 1024): 1000, ("deliver", 200): 10_000}
Result = dict[str, Any]


def constant(before: bytes, kind: int, producer: str, sequence: int, mark: bytes) -> bytes:
    """In the place of the function that extends the chain."""
    return CONSTANT


def constants(before: bytes, entries: Sequence[object], marks: Sequence[bytes]) -> list[bytes]:
    """In the place of the one that extends it by many entries."""
    return [CONSTANT] * len(entries)


SIDES: dict[str, dict[str, Any]] = {
    "chain": {"extend": chain.extend, "extend_all": chain.extend_all},
    "constant": {"extend": constant, "extend_all": constants},
}


def take(side: str) -> None:
    """From here on, everyone in this process who extends the chain calls the functions of this side."""
    for module in tuple(sys.modules.values()):
        for name, function in SIDES[side].items():
            if getattr(module, name, None) in [functions[name] for functions in SIDES.values()]:
                setattr(module, name, function)


class Used(NamedTuple):
    """What a turn takes."""

    seconds: float
    cpu_seconds: float

    @classmethod
    def so_far(cls) -> Used:
        return cls(time.perf_counter(), time.process_time())

    def __sub__(self, before: Used) -> Used:
        return Used(self.seconds - before.seconds, self.cpu_seconds - before.cpu_seconds)


class Appends:
    """Appends so many entries in a turn."""

    def __init__(self, log: lp.OpenedLog, size: int, count: int) -> None:
        self._log = log
        self._payload = lp.put("key", os.urandom(size)).encoded
        self._groups = max(2, count // GROUP_COUNT)
        self._newest = 0

    async def turn(self) -> Used:
        began = Used.so_far()
        under_way: list[asyncio.Task[list[int]]] = []
        for _ in range(self._groups):
            if len(under_way) == 2:
                await under_way.pop(0)
            under_way.append(asyncio.create_task(self._log.append(self._group())))
        await asyncio.gather(*under_way)
        return Used.so_far() - began

    def _group(self) -> list[lp.NewEntry]:
        first = self._newest + 1
        self._newest += GROUP_COUNT
        return [lp.NewEntry("p", number, self._payload) for number in range(first, first + GROUP_COUNT)]

    async def rest(self) -> None:
        """Between two turns: what was appended may go."""
        await self._log.trim((await self._log.info()).last)


class Delivery:
    """Delivers the whole log to an empty target in a turn."""

    def __init__(self, log: lp.OpenedLog) -> None:
        self._log = log

    async def turn(self) -> Used:
        last = (await self._log.info()).last
        async with lp.TargetServer({"a": lp.MemoryTarget(inline=True)}) as server:
            began = Used.so_far()
            async with lp.Player(self._log, targets={"a": server.address}):
                await lp.wait_for(server.address, "a", last, timeout=300)
                return Used.so_far() - began  # It takes a moment to stop, too.

    async def rest(self) -> None:
        """Nothing to tidy up."""


async def case(what: str, size: int, count: int, folder: Path) -> None:
    """The process of one case: a turn of the side that each line names."""
    works: dict[str, Appends | Delivery] = {}
    async with contextlib.AsyncExitStack() as logs:
        for name in SIDES:
            take(name)
            log = await logs.enter_async_context(lp.open_log(f"file://{folder}/{name}"))
            works[name] = appends = Appends(log, size, count)
            await appends.turn()
            if what == "deliver":
                works[name] = Delivery(log)
        print("ready", flush=True)
        while name := (await asyncio.to_thread(sys.stdin.readline)).strip():
            take(name)
            print(json.dumps(await works[name].turn()), flush=True)
            await works[name].rest()


def measure(what: str, size: int, turns: int, scale: float, folder: Path) -> Result:
    """One case: ``throughput`` and ``cpu`` are of the chain by those of the constant."""
    count = max(2 * GROUP_COUNT, int(CASES[what, size] * scale) // GROUP_COUNT * GROUP_COUNT)
    words = ["--case", what, "--bytes", str(size), "--count", str(count), "--dir", str(folder / f"{what}-{size}")]
    process = subprocess.Popen(
        [sys.executable, __file__, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        raise RuntimeError(f"the process for {what} {size} did not start")
    found: dict[str, list[Used]] = {name: [] for name in SIDES}
    for nth in range(turns):
        for name in sorted(SIDES, reverse=nth % 2 == 1):
            print(name, file=process.stdin, flush=True)
            found[name].append(Used(*json.loads(process.stdout.readline())))
    process.stdin.close()
    process.wait(60)
    pairs = list(zip(found["chain"], found["constant"], strict=True))
    throughput = [without.seconds / real.seconds for real, without in pairs]
    least = [min(one.cpu_seconds for one in found[name]) for name in ("chain", "constant")]
    return {
        "turns": turns,
        "throughput": round(statistics.median(throughput), 3),
        "quartiles": [round(one, 3) for one in statistics.quantiles(throughput, n=4)],
        "cpu": round(statistics.median(real.cpu_seconds / without.cpu_seconds for real, without in pairs), 3),
        "cpu_least": round(least[0] / least[1], 3),
        "cpu_us_per_entry": round(least[0] / count * 1e6, 2),
        "constant_per_second": round(count / statistics.median(one.seconds for one in found["constant"])),
    }


def turns_of(what: str, turns: int) -> int:
    """A turn of delivery takes longer."""
    return turns if what == "append" else max(2, turns // 4)


def table(result: dict[str, Result]) -> str:
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    lines = [f"{load}; the chain by a constant, medians of pairs of turns"]
    for name, found in result.items():
        low, _, high = found["quartiles"]
        lines.append(
            f"{name + ' bytes':20} throughput {found['throughput']} (at least 0.97; quartiles {low} to {high}), "
            f"CPU {found['cpu']}, of the least turns {found['cpu_least']} ({found['cpu_us_per_entry']} us per entry); "
            f"{found['constant_per_second']} entries/s with the constant"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=100, help="of each side; delivery has a quarter of them")
    parser.add_argument("--scale", type=float, default=1.0, help="times the default number of entries of a turn")
    parser.add_argument("--dir", type=Path, help="where to write; the disk to be measured")
    parser.add_argument("--only", choices=("append", "deliver"), help="one half of the cases")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    for hidden in ("--bytes", "--count"):
        parser.add_argument(hidden, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        return uvloop.run(case(options.case, options.bytes, options.count, options.dir))
    folder = Path(tempfile.mkdtemp(prefix="chain-bench-", dir=options.dir))
    try:
        cases = [(what, size) for what, size in CASES if options.only in (None, what)]
        result = {
            f"{what} {size}": measure(what, size, turns_of(what, options.turns), options.scale, folder)
            for what, size in cases
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(result, indent=2) if options.json else table(result))
    return None


if __name__ == "__main__":
    main()
