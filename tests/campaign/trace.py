"""The traces of a campaign's processes as one trace that the spec can be asked about.

A process that is killed may have committed a change without noting it: its thread does one at a time, so that is one
line at most. The line that it writes when it is served again tells the index and the session it found in its store,
and from these the missing line follows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from logplayer.core.limits import Limits
from logplayer.core.trace import config
from logplayer.log.protocol import Record
from tests.campaign.check import Owner, destinations

Line = dict[str, Any]


def merged(
    directory: Path, records: Iterable[Record], targets: Sequence[str], owner: Owner, limits: Limits
) -> list[Line]:
    """The config line, and every line of every process; only the order of each process's own lines matters."""
    entries = [(record.index, [n for n in destinations(record, owner) if n in targets]) for record in records]
    lines: list[Line] = [
        config(entries, targets, limits.queue_count_max, limits.flight_batches_max, limits.batch_count_max)
    ]
    for path in sorted(directory.glob("player*.trace")):
        lines += read(path)
    for name in targets:
        lines += repaired(read(directory / f"{name}.trace"))
    return lines


def read(path: Path) -> list[Line]:
    """The whole lines of a trace file."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1] if line]


def repaired(lines: Iterable[Line]) -> list[Line]:
    """A target's lines, with the one in front of each crash that the crash swallowed."""
    whole: list[Line] = []
    index, session = 0, (0, 0)
    for line in lines:
        at = (line.get("epoch", 0), line.get("term", 0))
        if line["ev"] == "crash":
            if at != session:
                whole.append({**line, "ev": "accept", "index": index})
            if line["index"] != index:
                whole.append({**line, "ev": "apply"})
        if line["ev"] in ("accept", "apply", "crash"):
            index, session = line["index"], at
        whole.append(line)
    return whole
