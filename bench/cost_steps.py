"""What it costs: CPU per entry, memory per target, the start; and a profile of the player at work."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.actor import Actor
from bench.contest import Workload
from bench.live import Live
from bench.ours import SCHEMES
from bench.play import Player
from bench.steps import Bench, Step
from logplayer.errors import UserError

FEW, MANY = 10, 210
PROFILE_RATE = 300.0
PROFILE_HZ = 250


def cost(bench: Bench) -> Iterator[Step]:
    """CPU time per entry, memory per target, seconds to start."""
    for nth, name in bench.turns([f"ours_{scheme}" for scheme in SCHEMES]):

        def act(nth: int = nth, name: str = name) -> None:
            _per_entry(bench, name, nth)
            _per_target(bench, name, nth)

        yield Step("cost", name, nth, act)


def _per_entry(bench: Bench, name: str, nth: int) -> None:
    workload = Workload(2 if bench.options.quick else 10, 10, bench.options.rate, 1, 0)
    with Live(name.removeprefix("ours_"), bench.options.log, [list(range(workload.targets))], workload) as live:
        live.begin()
        time.sleep(1)
        live.forget()
        before = live.usage()
        time.sleep(1 if bench.options.quick else 10)
        after = live.usage()
        entries = len(live.producer.ask("take")) // 4
        live.producer.ask("finish")
    spent = {f"{who}_cpu_us": (after[who]["cpu_s"] - before[who]["cpu_s"]) / entries * 1e6 for who in after}
    bench.raw.note_measure("cost", name, nth, what="entry", targets=workload.targets, keys=10, **spent)


def _per_target(bench: Bench, name: str, nth: int) -> None:
    """Memory of fresh processes with few and with many idle targets; the start is the one with few."""
    few, many = (2, 12) if bench.options.quick else (FEW, MANY)
    found = {}
    for count in (few, many):
        workload = Workload(count, 10, bench.options.rate, 1, 0)
        with Live(name.removeprefix("ours_"), bench.options.log, [list(range(count))], workload) as live:
            found[count] = live.usage()
            live.player.stop()
            began = time.monotonic()
            live.player = Actor(Player)
            live.play()
            if count == few:
                seconds = time.monotonic() - began
                bench.raw.note_measure("cost", name, nth, what="start", targets=count, seconds=seconds)
    kb = {
        f"{who}_kb": (found[many][who]["memory_mb"] - found[few][who]["memory_mb"]) / (many - few) * 1024
        for who in ("player", "targets")
    }
    bench.raw.note_measure("cost", name, nth, what="target", player_mb=found[few]["player"]["memory_mb"], **kb)


def profile(bench: Bench) -> Iterator[Step]:
    """Where the player's time goes: stacks of its process under a steady load, for the flame graph."""
    for scheme in SCHEMES:
        name = f"ours_{scheme}"

        def act(name: str = name) -> None:
            _record(bench, name)

        yield Step("profile", name, 1, act)


def _record(bench: Bench, name: str) -> None:
    sampler = _find_sampler()
    workload = Workload(4 if bench.options.quick else 10, 10, PROFILE_RATE, 1, 0)
    seconds = 1 if bench.options.quick else 20
    out = bench.raw.folder / f"profile-{name}.txt"
    with Live(name.removeprefix("ours_"), bench.options.log, [list(range(workload.targets))], workload) as live:
        live.begin()
        time.sleep(0.5)
        before = live.usage()["player"]
        command = [sampler, "record", "--pid", live.player.pid, "--duration", seconds, "--rate", PROFILE_HZ]
        done = subprocess.run(
            [*map(str, command), "--format", "raw", "--function", "-o", str(out)], capture_output=True, text=True
        )
        after = live.usage()["player"]
        live.producer.ask("finish")
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["nothing"]
        raise UserError(f"py-spy cannot look into the player's process: {last[0]}; it needs the right to trace it")
    busy = (after["cpu_s"] - before["cpu_s"]) / ((after["at_ns"] - before["at_ns"]) / 1e9)
    bench.raw.note_measure("profile", name, 1, rate=PROFILE_RATE, targets=workload.targets, busy=busy)


def _find_sampler() -> str:
    beside = Path(sys.executable).parent / "py-spy"
    with contextlib.suppress(OSError):
        if beside.exists():
            return str(beside)
    found = shutil.which("py-spy")
    if not found:
        raise UserError("the profile needs py-spy: pip install 'logplayer[bench]'")
    return found
