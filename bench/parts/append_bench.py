"""What the way through the log server costs an append: the embedded log and a served one, in turn and in one run.

    python bench/parts/append_bench.py [--json] [--scale 1.0] [--dir DIR]
    python bench/parts/append_bench.py --profile [--dir DIR]

Three questions, entries of 10 KB. One client process with 100 waiting producers: how much of the embedded log's
throughput is left. Eight client processes with 12 producers each: what they reach together, and whose CPU time it is.
One lone append: its p50 beside twice that of the embedded log plus a bare gRPC round trip of the same bytes.

All of it takes turns, so that each meets the same machine; trust ratios more than figures. What counts for the first
question is the median of the five rounds, each of which is a ratio; of several runs, the median of these.

``--profile`` shows where the server's time goes instead: py-spy looks 200 times a second at who holds Python's lock,
while one client process appends.
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
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import uvloop

from logplayer.log.open import open_log
from logplayer.log.protocol import Log, NewEntry
from logplayer.testing.conformance.log_harness import ServerProcess

ENTRY_BYTES = 10 * 1024
PAYLOAD = os.urandom(ENTRY_BYTES)
ROUNDS = 5
TICKS = os.sysconf("SC_CLK_TCK")
Result = dict[str, Any]
Once = Callable[[], Awaitable[Any]]


class Producers:
    """Appends ``count`` entries with ``waiting`` of them under way at any time; can be asked again and again."""

    def __init__(self, log: Log, name: str, waiting: int) -> None:
        self._log = log
        self._newest = {f"{name}-{nth}": 0 for nth in range(waiting)}

    async def append(self, count: int) -> float:
        """Seconds that it took."""
        each = max(1, count // len(self._newest))
        started = time.perf_counter()
        await asyncio.gather(*(self._produce(producer, each) for producer in self._newest))
        return time.perf_counter() - started

    async def _produce(self, producer: str, count: int) -> None:
        for _ in range(count):
            self._newest[producer] += 1
            await self._log.append([NewEntry(producer, self._newest[producer], PAYLOAD)])


def cpu_seconds(pid: int) -> float:
    """The processor time that a process has used, in user space and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def mb_s(count: int, seconds: float) -> float:
    return round(count * ENTRY_BYTES / seconds / 1e6, 1)


def median(values: list[float]) -> float:
    return round(statistics.median(values), 3)


async def one_process(embedded: Log, served: Log, server: int, scale: float) -> Result:
    """100 waiting producers, embedded and served in turn."""
    count = int(8000 * scale)
    ours = {"embedded": Producers(embedded, "many", 100), "served": Producers(served, "many", 100)}
    rates: dict[str, list[float]] = {name: [] for name in ours}
    cpu = {"embedded": 0.0, "client": 0.0, "server": 0.0}
    for producers in ours.values():
        await producers.append(count)  # From its third segment on a file log is in its steady state.
        await producers.append(count)
    for nth in range(ROUNDS):
        for name in sorted(ours, reverse=nth % 2 == 1):
            before, before_server = time.process_time(), cpu_seconds(server)
            rates[name].append(mb_s(count, await ours[name].append(count)))
            cpu["embedded" if name == "embedded" else "client"] += time.process_time() - before
            if name == "served":
                cpu["server"] += cpu_seconds(server) - before_server
            await asyncio.sleep(0.2)  # What the log still moves in the background must not burden the next one.
    shares = [mine / theirs for mine, theirs in zip(rates["served"], rates["embedded"], strict=True)]
    return {
        "embedded_mb_s": median(rates["embedded"]),
        "served_mb_s": median(rates["served"]),
        "served_to_embedded": median(shares),
        "cpu_ms_per_mb": per_mb(cpu, ROUNDS * count),
    }


def per_mb(cpu: dict[str, float], count: int) -> dict[str, float]:
    """Milliseconds of processor time for each megabyte; what else the machine does changes them less than the rates."""
    return {who: round(seconds * 1e3 / (count * ENTRY_BYTES / 1e6), 2) for who, seconds in cpu.items()}


async def lone(embedded: Log, served: Log, bare: Once, scale: float) -> Result:
    """One append at a time: embedded, served and a bare round trip by turns."""
    logs = {"embedded": Producers(embedded, "lone", 1), "served": Producers(served, "lone", 1)}
    calls: dict[str, Once] = {name: lambda one=one: one.append(1) for name, one in logs.items()}  # type: ignore[misc]
    calls["bare"] = bare
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for nth in range(int(1200 * scale) + 50):
        for name, call in calls.items():
            started = time.perf_counter()
            await call()
            if nth >= 50:
                seconds[name].append(time.perf_counter() - started)
    p50 = {name: statistics.median(values) * 1e3 for name, values in seconds.items()}
    bound = 2 * p50["embedded"] + p50["bare"]
    return {
        **{f"{name}_p50_ms": round(value, 3) for name, value in p50.items()},
        "bound_ms": round(bound, 3),
        "served_to_bound": round(p50["served"] / bound, 2),
    }


def spawn(command: list[str]) -> Any:
    """Not by uvloop: a child that it forks while a gRPC stream is open here may crash in gRPC's fork handlers."""
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


async def eight_processes(where: str, server: int, scale: float) -> Result:
    """What eight clients reach together, and where the processor time goes while they do."""
    each = int(2000 * scale) // 12 * 12
    command = [sys.executable, __file__, "--client", where, "--count", str(each)]
    clients = [spawn([*command, "--name", f"client-{nth}"]) for nth in range(8)]
    for client in clients:
        await asyncio.to_thread(client.stdout.readline)  # It is connected and warm.
    before, started = cpu_seconds(server), time.perf_counter()
    for client in clients:
        client.stdin.write(b"go\n")
        client.stdin.flush()
    told = [json.loads((await asyncio.to_thread(client.communicate))[0]) for client in clients]
    seconds = max(one["ended"] for one in told) - started
    cpu = {"clients": sum(one["cpu"] for one in told), "server": cpu_seconds(server) - before}
    return {"served_mb_s": mb_s(8 * each, seconds), "cpu_ms_per_mb": per_mb(cpu, 8 * each)}


async def client(where: str, name: str, count: int) -> None:
    """One of the eight: 12 producers that begin when they are told to."""
    log = await open_log(f"grpc://{where}")
    producers = Producers(log, name, 12)
    await producers.append(240)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    cpu = time.process_time()
    await producers.append(count)
    print(json.dumps({"ended": time.perf_counter(), "cpu": time.process_time() - cpu}), flush=True)
    await log.close()


async def echo() -> None:
    """A bare gRPC server: takes the bytes and answers with nothing."""

    async def answer(body: bytes, context: Any) -> bytes:
        return b""

    server = grpc.aio.server()
    handler: Any = grpc.unary_unary_rpc_method_handler(answer)  # No serializers: bytes in, bytes out.
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare.Bare", {"Trip": handler}),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(None)


@contextlib.asynccontextmanager
async def bare_round_trip() -> AsyncIterator[Once]:
    """A unary gRPC call with the same bytes to a process that does nothing with them."""
    process = await asyncio.create_subprocess_exec(sys.executable, __file__, "--echo", stdin=-1, stdout=-1)
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        trip: Any = channel.unary_unary("/bare.Bare/Trip", None, None)
        yield lambda: trip(PAYLOAD)
    await process.communicate(b"")


async def measure(scale: float, folder: Path) -> Result:
    server = ServerProcess(f"file://{folder}/served")
    await server.start()
    embedded, served = await open_log(f"file://{folder}/embedded"), await open_log(f"grpc://{server.where}")
    try:
        async with bare_round_trip() as bare:
            return {
                "one_process": await one_process(embedded, served, server.pid, scale),
                "lone": await lone(embedded, served, bare, scale),
                "eight_processes": await eight_processes(server.where, server.pid, scale),
            }
    finally:
        await served.close()
        await embedded.close()
        await server.stop()


async def profile(folder: Path, seconds: float) -> str:
    """Which of our functions the server is in, with what they call, while it holds Python's lock."""
    server = ServerProcess(f"file://{folder}/served")
    await server.start()
    stacks, spy = folder / "stacks", Path(sys.executable).with_name("py-spy")
    command = [
        str(spy),
        "record",
        "--gil",
        "-d",
        str(max(1, round(seconds))),
        "-r",
        "200",
        "-f",
        "raw",
        "-o",
        str(stacks),
    ]
    with contextlib.closing(spawn([*command, "--pid", str(server.pid)]).stdout) as said:
        served = await open_log(f"grpc://{server.where}")
        producers = Producers(served, "many", 100)
        ended = asyncio.ensure_future(asyncio.to_thread(said.read))
        while not ended.done():
            await producers.append(2000)
    await served.close()
    await server.stop()
    seen: Counter[str] = Counter()
    for line in stacks.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        names = {frame.partition(":")[0].rstrip(")") for frame in stack.split(";") if "logplayer/" in frame}
        seen.update({name: int(count) for name in (*names, "")})
    samples = seen.pop("")
    shares = [f"{100 * count / samples:5.1f} %  {name})" for name, count in seen.most_common(25)]
    return "\n".join([f"{samples} samples", *shares])


def table(result: Result) -> str:
    one, lone, eight = result["one_process"], result["lone"], result["eight_processes"]

    def cpu(used: Result) -> str:
        return ", ".join(f"{name} {value}" for name, value in used.items())

    return "\n".join(
        (
            f"entries of {ENTRY_BYTES} bytes; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
            f"1 process, 100 producers   embedded {one['embedded_mb_s']:.0f} MB/s, served "
            f"{one['served_mb_s']:.0f} MB/s",
            f"  served to embedded       {one['served_to_embedded']} (at least 0.5)",
            f"  CPU ms per MB            {cpu(one['cpu_ms_per_mb'])}",
            f"8 processes, 12 producers  served {eight['served_mb_s']:.0f} MB/s",
            f"  CPU ms per MB            {cpu(eight['cpu_ms_per_mb'])}",
            f"1 lone append, p50         embedded {lone['embedded_p50_ms']} ms, bare gRPC {lone['bare_p50_ms']} ms, "
            f"served {lone['served_p50_ms']} ms",
            f"  served to 2 x embedded + bare   {lone['served_to_bound']} (at most 1)",
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="times the default number of entries")
    parser.add_argument("--dir", type=Path, help="where to write; the disk to be measured")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--profile", action="store_true", help="where the server's time goes, instead; needs py-spy")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--name", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--echo", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.echo:
        return uvloop.run(echo())
    if options.client:
        return uvloop.run(client(options.client, options.name, options.count))
    folder = Path(tempfile.mkdtemp(prefix="append-bench-", dir=options.dir))
    try:
        if options.profile:
            return print(uvloop.run(profile(folder, 10 * options.scale)))
        result = uvloop.run(measure(options.scale, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(result, indent=2) if options.json else table(result))
    return None


if __name__ == "__main__":
    main()
