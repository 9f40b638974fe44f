"""A process that appends to a log until it is killed: ``python -m logplayer.testing.conformance.log_child ADDRESS``.

Each acknowledged entry is one line on stdout, ``producer sequence index``, written before the next one is sent. What
was appended but never printed is what a crash leaves in doubt: the next run sends the same sequence again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys

from logplayer import crashpoint
from logplayer.errors import LogError, LogFull, LogUnavailable
from logplayer.log.open import open_log
from logplayer.log.protocol import Log
from logplayer.testing.conformance.log_check import entry


def say(line: str) -> None:
    """One write per line: a kill leaves whole lines."""
    os.write(1, f"{line}\n".encode())


async def produce(log: Log, producer: str, sequence: int, options: argparse.Namespace) -> None:
    """Append one entry, or a group, at a time; an answer that never came is asked for again."""
    last = sequence + options.count if options.count else None
    while last is None or sequence < last:
        group = [entry(producer, sequence + 1 + i, options.bytes) for i in range(options.group)]
        try:
            indexes = await log.append(group)
        except (LogFull, LogUnavailable) as error:
            say(f"# {type(error).__name__} {error}")
            await asyncio.sleep(0.05)
            continue
        for made, index in zip(group, indexes, strict=True):
            say(f"{made.producer} {made.sequence} {index}")
        sequence += options.group


async def trim_now_and_then(log: Log, every: int) -> None:
    """Keep about ``every`` entries."""
    while True:
        await asyncio.sleep(0.01)
        info = await log.info()
        if info.last - info.first >= 2 * every:
            await log.trim(info.last - every)
            say(f"# trimmed {info.last - every}")


async def run(options: argparse.Namespace) -> None:
    crashpoint.armed = options.crash_at
    extra = {"segment_bytes": options.segment_bytes} if options.segment_bytes else {}
    log = await open_log(options.address, **extra)
    say("# open")
    newest = json.loads(options.newest)
    trimming = asyncio.create_task(trim_now_and_then(log, options.trim_every)) if options.trim_every else None
    producers = [f"{options.prefix}{i}" for i in range(options.producers)]
    await asyncio.gather(*(produce(log, p, newest.get(p, 0), options) for p in producers))
    if trimming:
        trimming.cancel()
    await log.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--producers", type=int, default=4)
    parser.add_argument("--prefix", default="p")
    parser.add_argument("--bytes", type=int, default=200)
    parser.add_argument("--count", type=int, default=0, help="entries per producer; 0 is endless")
    parser.add_argument("--group", type=int, default=1)
    parser.add_argument("--newest", default="{}", help="JSON: producer -> newest acknowledged sequence")
    parser.add_argument("--crash-at", default=None)
    parser.add_argument("--segment-bytes", type=int, default=0)
    parser.add_argument("--trim-every", type=int, default=0)
    try:
        asyncio.run(run(parser.parse_args()))
    except LogError as error:
        say(f"# {type(error).__name__} {error}")
        sys.exit(3)


if __name__ == "__main__":
    main()
