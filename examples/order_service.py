"""An order service: eight workers share one producer, the process dies in the middle, and no order is lost or doubled.

Order number n is the service's n-th transaction. The producer has a name, so after a restart the log itself says how
many orders are in: ``producer.sequence``. No table of what was sent is needed.

    python examples/order_service.py --orders 200

runs the service until it crashes half-way, runs it again, and counts. It needs no server: the log, two shards and the
player live in the process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import logplayer as lp

WORKERS = 8
SHARDS = ("north", "south")


async def serve(directory: Path, orders: int, crash_after: int) -> None:
    """Take all orders that are not in the log yet; ``crash_after`` so many, die as a machine does."""
    stores = {name: lp.SqliteTarget(directory / f"{name}.db", name) for name in SHARDS}
    async with lp.open_log(f"file://{directory}/log") as log, lp.TargetServer(stores) as server:
        targets = dict.fromkeys(SHARDS, server.address)
        async with lp.Player(log, targets=targets, shards=lp.HashShards(*SHARDS)):
            producer = await log.producer("orders")
            print(f"starting after order {producer.sequence}", flush=True)
            waiting = iter(range(producer.sequence + 1, orders + 1))
            await asyncio.gather(*(work(producer, waiting, crash_after) for _ in range(WORKERS)))


async def work(producer: lp.Producer, waiting: Iterator[int], crash_after: int) -> None:
    """One worker: each order is a transaction over the customer's row and the order's row, wherever they live."""
    for number in waiting:
        customer = f"customer/{number % 10}"
        # Nothing is awaited between taking the order and append, so order n gets the number n.
        receipt = await producer.append(
            lp.put(f"order/{number}", lp.json_value({"customer": customer, "total": number * 10})),
            lp.put(customer, lp.json_value({"newest": number})),
        )
        assert receipt.sequence == number
        if receipt.sequence >= crash_after:
            os._exit(9)  # Other workers' orders are under way; their answers will never come.
        await receipt.applied()  # On both shards, so whoever asks for the order now finds it.


async def count(directory: Path) -> None:
    """What is in the log, and what is in the shards."""
    async with lp.open_log(f"file://{directory}/log", readonly=True) as log:
        info = await log.info()
        records = [record async for batch in log.read(info.first, info.last) for record in batch]
    numbers = [record.sequence for record in records if record.producer == "orders"]
    rows = [key for name in SHARDS for key, _ in lp.SqliteTarget(directory / f"{name}.db", name, read_only=True).scan()]
    orders = [key for key in rows if key.startswith(b"order/")]
    print(f"{len(numbers)} orders in the log, {len(set(numbers))} different; {len(orders)} in the shards")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=200)
    parser.add_argument("--directory", type=Path, help="where the service keeps its data; given: run it once")
    parser.add_argument("--crash-after", type=int, default=sys.maxsize)
    options = parser.parse_args()
    if options.directory is not None:
        asyncio.run(serve(options.directory, options.orders, options.crash_after))
        return
    with tempfile.TemporaryDirectory() as folder:
        again = [sys.executable, __file__, "--orders", str(options.orders), "--directory", folder]
        crashed = subprocess.run([*again, "--crash-after", str(options.orders // 2)], check=False)
        print(f"the service died with exit code {crashed.returncode}", flush=True)
        subprocess.run(again, check=True)
        asyncio.run(count(Path(folder)))


if __name__ == "__main__":
    main()
