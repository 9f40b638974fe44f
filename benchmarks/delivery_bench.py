"""Player delay and throughput, next to bare streams that carry the same bytes to the same targets in the same run.

    python benchmarks/delivery_bench.py [--json] [--targets 20] [--rate 200] [--count 1500] [--rounds 3]

A transaction is ten key-values of 1 KB, spread over the targets by hash. The targets live in a process of their own.
*Dispatch* is when the log's tail shows the entry, *apply* when the target has received the batch that holds it; both
are read from the same monotonic clock. For delay the bare streams are fed by the tail of the same kind of log, filled
by the same producer, and send one message per transaction and target; for throughput they join what is queued. That is
all that the player does, without its decoding, routing, core, sessions or fences.
Bare and ours alternate, so that noise of the machine meets both.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing as mp
import platform
import statistics
import tempfile
import time
from collections import deque
from multiprocessing.connection import Connection
from typing import Any
from zlib import crc32

import grpc
import grpc.aio
import uvloop

from logplayer.core.entry import HashMap
from logplayer.core.fence import Position
from logplayer.log.address import open_log
from logplayer.log.protocol import NewEntry, Record
from logplayer.player.config import PlayerConfig
from logplayer.player.shell import Shell
from logplayer.target import stream as target_stream
from logplayer.target.protocol import Change
from logplayer.target.server import TargetServer
from logplayer.wire.entries import encode_mutation
from logplayer.wire.framing import Deframer, frame
from logplayer.wire.grpc_link import CHANNEL_OPTIONS, SERVER_OPTIONS

VALUE = bytes(1000)
PER_TRANSACTION = 10
JOIN_BYTES = 256 * 1024
now = time.monotonic_ns


def transaction(number: int) -> list[tuple[bytes, bytes]]:
    """(key, encoded field) of each mutation of one transaction."""
    keys = [b"%08d/%d" % (number, k) for k in range(PER_TRANSACTION)]
    return [(key, encode_mutation(key, VALUE).encoded) for key in keys]


def parts(number: int, targets: int) -> dict[int, bytes]:
    """What each target gets of a transaction, with its number in front."""
    found: dict[int, list[bytes]] = {}
    for key, encoded in transaction(number):
        found.setdefault(crc32(key) % targets, []).append(encoded)
    return {target: number.to_bytes(8, "big") + b"".join(pieces) for target, pieces in found.items()}


# --- The targets' process ---------------------------------------------------------------------------------------------


class Sink:
    """A target that checks everything and keeps nothing, like the bare receivers, which do not even check."""

    inline = True

    def __init__(self) -> None:
        self._position = Position()

    def position(self) -> Position:
        return self._position

    def apply(self, change: Change) -> Position:
        self._position = change.check(self._position)
        return self._position


class Applied:
    """When each (target, transaction) arrived."""

    def __init__(self) -> None:
        self.samples: list[tuple[str, int, int]] = []
        self.bytes = 0


def run_targets(count: int, pipe: Connection) -> None:
    """Serve everything until the pipe says stop; "take" answers with the samples since the last time."""
    uvloop.run(_targets(count, pipe))


async def _targets(count: int, pipe: Connection) -> None:
    applied = Applied()
    original = target_stream.Stream._batch

    def note(self: Any, batch: Any, length: int) -> None:
        at = now()
        name = self._host.name if self._host else ""
        for message in batch.messages:
            applied.samples.append((name, message.index, at))
        original(self, batch, length)

    target_stream.Stream._batch = note  # type: ignore[method-assign]
    servers, addresses = [], []
    for i in range(count):
        server = TargetServer({f"t{i}": Sink()})
        servers.append(server)
        addresses.append(list(await server.start(grpc="127.0.0.1:0", tcp="127.0.0.1:0")))
    bare_grpc = [await _bare_grpc_server(f"t{i}", applied) for i in range(count)]
    bare_tcp = [await _bare_tcp_server(f"t{i}", applied) for i in range(count)]
    pipe.send({"ours": addresses, "grpc": [port for _, port in bare_grpc], "tcp": [port for _, port in bare_tcp]})
    loop = asyncio.get_running_loop()
    gc.freeze()
    while (asked := await loop.run_in_executor(None, pipe.recv)) != "stop":
        if asked == "take":
            pipe.send(applied.samples)
            applied.samples = []
        elif asked == "bytes":
            pipe.send(applied.bytes)
    for server in servers:
        await server.stop()
    for server, _ in bare_grpc:
        await server.stop(0)


async def _bare_grpc_server(name: str, applied: Applied) -> tuple[Any, int]:
    async def play(request: Any, context: Any) -> None:
        while (data := await context.read()) is not grpc.aio.EOF:
            _note_bare(name, data, applied)
            await context.write(data[:8])

    server = grpc.aio.server(options=SERVER_OPTIONS)
    handler = grpc.method_handlers_generic_handler("bare", {"Play": grpc.stream_stream_rpc_method_handler(play)})
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


def _note_bare(name: str, data: bytes, applied: Applied) -> None:
    at = now()
    applied.bytes += len(data)
    if len(data) < 64 * 1024:  # A joined batch is for throughput; only its bytes count.
        applied.samples.append((name, int.from_bytes(data[:8], "big"), at))


async def _bare_tcp_server(name: str, applied: Applied) -> tuple[Any, int]:
    class Peer(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            self.deframer = Deframer()

        def data_received(self, data: bytes) -> None:
            for message in self.deframer.feed(data):
                _note_bare(name, message, applied)
                self.transport.write(frame(message[:8]))

    server = await asyncio.get_running_loop().create_server(Peer, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


# --- Bare senders -----------------------------------------------------------------------------------------------------


class BareGrpc:
    """One stream with one writer task, and nothing else."""

    async def open(self, port: int) -> None:
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", CHANNEL_OPTIONS)
        self.call = self.channel.stream_stream("/bare/Play")()
        self.queue: deque[bytes] = deque()
        self.wake = asyncio.Event()
        self.acked = 0
        self.tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._read())]

    def send(self, data: bytes) -> None:
        self.queue.append(data)
        self.wake.set()

    async def _write(self) -> None:
        while True:
            await self.wake.wait()
            self.wake.clear()
            while self.queue:
                await self.call.write(_take(self.queue))

    async def _read(self) -> None:
        while (await self.call.read()) is not grpc.aio.EOF:
            self.acked += 1

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await self.channel.close()


class BareTcp(asyncio.Protocol):
    """One framed stream, and nothing else."""

    async def open(self, port: int) -> None:
        self.acked = 0
        self.deframer = Deframer()
        self.queue: deque[bytes] = deque()
        self.paused = False
        await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", port)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self._flush()

    def send(self, data: bytes) -> None:
        self.queue.append(data)
        self._flush()

    def _flush(self) -> None:
        while self.queue and not self.paused:
            self.transport.write(frame(_take(self.queue)))

    def data_received(self, data: bytes) -> None:
        self.acked += len(list(self.deframer.feed(data)))

    async def close(self) -> None:
        self.transport.close()


def _take(queue: deque[bytes]) -> bytes:
    """Everything that is queued, up to a limit, as one message."""
    first = queue.popleft()
    if not queue:
        return first
    taken, size = [first], len(first)
    while queue and size < JOIN_BYTES:
        size += len(queue[0])
        taken.append(queue.popleft())
    return b"".join(taken)


async def bare_delay(kind: str, ports: list[int], count: int, rate: float) -> dict[int, int]:
    """Append ``count`` transactions at ``rate`` to a real file log and send what its tail shows, and when."""
    links = [BareGrpc() if kind == "grpc" else BareTcp() for _ in ports]
    for link, port in zip(links, ports, strict=True):
        await link.open(port)
    work = [parts(number, len(ports)) for number in range(1, count + 1)]
    dispatched = {}

    async def send(log: Any) -> None:
        async for records in log.read(1):
            for record in records:
                dispatched[record.sequence] = now()
                for target, data in work[record.sequence - 1].items():
                    links[target].send(data)

    with tempfile.TemporaryDirectory() as folder:
        log = await open_log(f"file://{folder}/log")
        sender = asyncio.create_task(send(log))
        await append(log, count, rate)
        sender.cancel()
        await log.close()
    for link in links:
        await link.close()
    return dispatched


async def append(log: Any, count: int, rate: float) -> None:
    """The same producer for both: it does not wait for one append before the next."""
    payloads = [b"".join(encoded for _, encoded in transaction(number)) for number in range(1, count + 1)]
    await asyncio.sleep(0.5)
    gc.collect()
    gc.freeze()
    pending = set()
    async for number in paced(count, rate):
        task = asyncio.create_task(log.append([NewEntry("bench", number, payloads[number - 1])]))
        pending.add(task)
        task.add_done_callback(pending.discard)
    await asyncio.gather(*pending)
    await asyncio.sleep(0.3)


async def bare_throughput(kind: str, ports: list[int], count: int) -> float:
    """Bytes per second with batching, from the first write to the last byte's arrival."""
    links = [BareGrpc() if kind == "grpc" else BareTcp() for _ in ports]
    for link, port in zip(links, ports, strict=True):
        await link.open(port)
    work = [parts(number, len(ports)) for number in range(1, count + 1)]
    total = sum(len(data) for part in work for data in part.values())
    started = time.perf_counter()
    for part in work:
        for target, data in part.items():
            links[target].send(data)
        while sum(len(link.queue) for link in links) > 20_000:
            await asyncio.sleep(0)
    while any(link.queue for link in links):
        await asyncio.sleep(0.001)
    BARE_PIPE.send("bytes")
    want = BARE_SENT[0] + total
    while BARE_PIPE.recv() < want:
        await asyncio.sleep(0.002)
        BARE_PIPE.send("bytes")
    BARE_SENT[0] = want
    spent = time.perf_counter() - started
    for link in links:
        await link.close()
    return total / spent


BARE_PIPE: Any = None
BARE_SENT = [0]


async def paced(count: int, rate: float) -> Any:
    """Numbers 1..count at a steady rate, without catching up by bursts more than it must."""
    start = time.perf_counter()
    for number in range(1, count + 1):
        wait = start + number / rate - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        yield number


# --- The player -------------------------------------------------------------------------------------------------------


async def our_delay(addresses: list[str], count: int, rate: float) -> dict[int, int]:
    """Append ``count`` transactions at ``rate`` to a real file log; when the player dispatched each."""
    dispatched: dict[int, int] = {}

    def note(records: list[Record]) -> None:
        at = now()
        for record in records:
            dispatched[record.index] = at

    async with playing(addresses) as (log, shell):
        shell.on_dispatch = note
        await append(log, count, rate)
    return dispatched


async def our_throughput(addresses: list[str], count: int) -> float:
    """Payload bytes per second from a log that is already full, from the first dispatch to the last ack."""
    with tempfile.TemporaryDirectory() as folder:
        log = await open_log(f"file://{folder}/log")
        total = last = 0
        for first in range(1, count + 1, 100):
            payloads = [b"".join(e for _, e in transaction(n)) for n in range(first, min(first + 100, count + 1))]
            total += sum(map(len, payloads))
            last = (await log.append([NewEntry("bench", first + i, p) for i, p in enumerate(payloads)]))[-1]
        targets = {f"t{i}": address for i, address in enumerate(addresses)}
        shell = Shell(log, PlayerConfig(targets=targets, map=HashMap(tuple(targets))))
        began: list[float] = []
        shell.on_dispatch = lambda records: began or began.append(time.perf_counter())  # type: ignore[func-returns-value]
        task = asyncio.create_task(shell.run())
        while not hasattr(shell, "core") or any(q.acked < last for q in shell.core.queues.values()):
            if task.done():
                raise SystemExit(f"the player ended: {task.result()}")
            await asyncio.sleep(0.005)
        spent = time.perf_counter() - began[0]
        shell.request_stop()
        await task
        await log.close()
    return total / spent


class playing:
    """A player on a fresh file log, with all targets LIVE."""

    def __init__(self, addresses: list[str]) -> None:
        self.targets = {f"t{i}": address for i, address in enumerate(addresses)}
        self.folder = tempfile.TemporaryDirectory()

    async def __aenter__(self) -> tuple[Any, Shell]:
        self.log = await open_log(f"file://{self.folder.name}/log")
        self.shell = Shell(self.log, PlayerConfig(targets=self.targets, map=HashMap(tuple(self.targets))))
        self.task = asyncio.create_task(self.shell.run())
        while not hasattr(self.shell, "core") or any(q.state.value != "LIVE" for q in self.shell.core.queues.values()):
            if self.task.done():
                raise SystemExit(f"the player ended: {self.task.result()}")
            await asyncio.sleep(0.01)
        return self.log, self.shell

    async def __aexit__(self, *_: object) -> None:
        self.shell.request_stop()
        await self.task
        await self.log.close()
        self.folder.cleanup()


# --- The run ----------------------------------------------------------------------------------------------------------


class Targets:
    """The targets' process; a fresh one per round, since a target belongs to one log."""

    def __init__(self, count: int) -> None:
        context = mp.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=run_targets, args=(count, theirs))
        self.process.start()
        self.ports = self.pipe.recv()
        global BARE_PIPE
        BARE_PIPE = self.pipe
        BARE_SENT[0] = 0

    def ours(self, scheme: str) -> list[str]:
        return [next(a for a in pair if a.startswith(scheme)) for pair in self.ports["ours"]]

    def take(self) -> list[tuple[str, int, int]]:
        self.pipe.send("take")
        return self.pipe.recv()  # type: ignore[no-any-return]

    def stop(self) -> None:
        self.pipe.send("stop")
        self.process.join(10)


def delays(dispatched: dict[int, int], samples: list[tuple[str, int, int]]) -> list[float]:
    """Milliseconds from dispatch to apply, one per transaction and target."""
    return [(at - dispatched[number]) / 1e6 for _, number, at in samples if number in dispatched]


def figures(samples: list[float]) -> dict[str, float]:
    cut = statistics.quantiles(samples, n=1000, method="inclusive")
    return {
        "mean": round(statistics.fmean(samples), 3),
        "p50": round(cut[499], 3),
        "p90": round(cut[899], 3),
        "p99": round(cut[989], 3),
        "p999": round(cut[998], 3),
        "samples": len(samples),
    }


def one_round(options: argparse.Namespace, results: dict[str, Any]) -> None:
    for scheme in options.transports.split(","):
        targets = Targets(options.targets)
        ports = targets.ports[scheme]
        sent = uvloop.run(bare_delay(scheme, ports, options.count, options.rate))
        results.setdefault(f"bare_{scheme}", []).extend(delays(sent, targets.take()))
        sent = uvloop.run(our_delay(targets.ours(scheme), options.count, options.rate))
        results.setdefault(f"ours_{scheme}", []).extend(delays(sent, targets.take()))
        targets.stop()
        if not options.throughput:
            continue
        targets = Targets(options.targets)
        bare = uvloop.run(bare_throughput(scheme, targets.ports[scheme], options.throughput))
        ours = uvloop.run(our_throughput(targets.ours(scheme), options.throughput))
        results.setdefault(f"throughput_bare_{scheme}", []).append(bare / 1e6)
        results.setdefault(f"throughput_ours_{scheme}", []).append(ours / 1e6)
        targets.stop()


def summarize(results: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    told: dict[str, Any] = {
        "machine": {"cpus": mp.cpu_count(), "arch": platform.machine(), "python": platform.python_version()},
        "versions": {"grpcio": grpc.__version__, "uvloop": uvloop.__version__},
        "options": vars(options),
        "delay_ms": {name: figures(samples) for name, samples in results.items() if not name.startswith("throughput")},
        "throughput_mb_s": {name: [round(x, 1) for x in v] for name, v in results.items() if name.startswith("thr")},
        "ratios": {},
    }
    delay, ratios = told["delay_ms"], told["ratios"]
    for scheme in options.transports.split(","):
        for key in ("p50", "p99"):
            ratios[f"player_vs_bare_{key}_{scheme}"] = delay[f"ours_{scheme}"][key] / delay[f"bare_{scheme}"][key]
        if options.throughput:
            ours, bare = results[f"throughput_ours_{scheme}"], results[f"throughput_bare_{scheme}"]
            ratios[f"throughput_vs_bare_{scheme}"] = statistics.median(ours) / statistics.median(bare)
    if {"ours_grpc", "ours_tcp"} <= delay.keys():
        ratios["tcp_vs_grpc_mean"] = delay["ours_tcp"]["mean"] / delay["ours_grpc"]["mean"]
    told["ratios"] = {name: round(value, 2) for name, value in ratios.items()}
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=int, default=20)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--throughput", type=int, default=20000, help="Transactions for throughput; 0 leaves it out.")
    parser.add_argument("--transports", default="grpc,tcp")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for _ in range(options.rounds):
        one_round(options, results)
    told = summarize(results, options)
    if options.json:
        print(json.dumps(told))
        return
    for name, row in told["delay_ms"].items():
        print(f"{name:12}", "  ".join(f"{key} {value}" for key, value in row.items()))
    for name, values in told["throughput_mb_s"].items():
        print(f"{name:24} {values} MB/s")
    for name, value in told["ratios"].items():
        print(f"{name:28} {value}")


if __name__ == "__main__":
    main()
