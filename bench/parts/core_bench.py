"""What the core costs: one entry to 20 targets, from ``Fetched`` to the last ``Acked``, without any I/O.

    python bench/parts/core_bench.py [--json] [--targets 20] [--entries 20000]

One delivery is one entry at one target: routed, queued, taken into a batch, written, acked.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import time

from logplayer.core.control_state import ControlState
from logplayer.core.effects import OpenSession, SendBatch
from logplayer.core.entry import Entry, ExplicitMap, HashMap
from logplayer.core.events import Acked, Fetched, Opened, Ticked, Written
from logplayer.core.player import Player
from logplayer.wire.entries import encode_mutation, route_transaction


def ready_player(names: tuple[str, ...], explicit: bool) -> Player:
    """A player whose targets are all LIVE at index 0."""
    player = Player(
        1, 0, ControlState.start(ExplicitMap() if explicit else HashMap(names), names), cut=route_transaction
    )
    for effect in player.step(Ticked(0)):
        assert isinstance(effect, OpenSession)
        player.step(Opened(effect.target, effect.session, 0))
    return player


def deliver(player: Player, entries: list[Entry], per_fetch: int) -> int:
    """Play the entries, answering every effect at once. Returns the number of deliveries."""
    step = player.step
    delivered = 0
    for first in range(0, len(entries), per_fetch):
        for effect in step(Fetched(entries[first : first + per_fetch])):
            assert type(effect) is SendBatch
            delivered += len(effect.messages)
            step(Written(effect.target, effect.session))
            step(Acked(effect.target, effect.session, effect.to))
    return delivered


def measure(targets: int, count: int, per_fetch: int, explicit: bool) -> float:
    """Microseconds per delivery."""
    names = tuple(f"t{i}" for i in range(targets))
    player = ready_player(names, explicit)
    payload = bytes(512)
    entries = [
        Entry(i, b"".join(encode_mutation(b"%d/%d" % (i, k), payload, name).encoded for k, name in enumerate(names)))
        for i in range(1, count + 1)
    ]
    gc.collect()
    gc.freeze()  # The entries made above are the harness; they are not to be walked by the collector while we measure.
    started = time.process_time()  # CPU time: what the core costs, whatever else the machine does.
    delivered = deliver(player, entries, per_fetch)
    spent = time.process_time() - started
    assert delivered == targets * count, (delivered, targets * count)
    return spent / delivered * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=int, default=20)
    parser.add_argument("--entries", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result: dict[str, object] = {
        "python": platform.python_version(),
        "machine": platform.processor() or platform.machine(),
        "targets": options.targets,
    }
    for per_fetch in (1, 16):
        rounds = [measure(options.targets, options.entries, per_fetch, True) for _ in range(options.rounds)]
        result[f"us_per_delivery_fetch_{per_fetch}"] = round(statistics.median(rounds), 2)
    if options.json:
        print(json.dumps(result))
    else:
        for key, value in result.items():
            print(f"{key:28} {value}")


if __name__ == "__main__":
    main()
