"""The raw material of a run: a directory that every piece of the run adds to, and from which all results are computed.

RUN/pieces.jsonl      one line per command that added to the run: when, how, on what machine, how loaded
RUN/measures.jsonl    one line per single figure: throughput, seconds to detect, CPU per entry
RUN/missing.json      contestants that could not take part, and why
RUN/samples/*.parquet one row per transaction and target, with all its time-stamps
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.contest import Sample, Workload
from logplayer.errors import UserError

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")


class Raw:
    """One run's raw material."""

    def __init__(self, folder: Path, run: str) -> None:
        if not NAME.match(run):
            raise UserError(f"{run!r} is no name for a run: use letters, digits, dots, dashes and underscores")
        self.run = run
        self.folder = folder / run
        self.samples_folder = self.folder / "samples"
        self.samples_folder.mkdir(parents=True, exist_ok=True)
        self.piece = len(self.pieces()) + 1

    def pieces(self) -> list[dict[str, Any]]:
        return _lines(self.folder / "pieces.jsonl")

    def measures(self) -> list[dict[str, Any]]:
        return _lines(self.folder / "measures.jsonl")

    def missing(self) -> dict[str, str]:
        path = self.folder / "missing.json"
        found: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def note_piece(self, facts: dict[str, Any]) -> None:
        _append(self.folder / "pieces.jsonl", facts)

    def note_missing(self, missing: dict[str, str], took_part: set[str]) -> None:
        """Who is missing now; whoever took part in any piece is not."""
        found = {name: why for name, why in (self.missing() | missing).items() if name not in took_part}
        (self.folder / "missing.json").write_text(json.dumps(found, indent=2))

    def note_measure(self, experiment: str, contestant: str, nth: int, **facts: Any) -> None:
        """One figure, or several of one moment."""
        line = {"experiment": experiment, "contestant": contestant, "round": f"{self.piece}.{nth}", **facts}
        _append(self.folder / "measures.jsonl", line)

    def note_samples(
        self, experiment: str, contestant: str, nth: int, workload: Workload, samples: Sequence[Sample]
    ) -> None:
        """The samples of one workload, as a file of their own."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        asked = [sample.asked_ns or sample.commit_ns for sample in samples]
        begun = min(asked)
        span = max(1, workload.count - workload.warm_up)
        columns = {
            "transaction": [sample.transaction for sample in samples],
            "target": [sample.target for sample in samples],
            "asked_ns": asked,
            "commit_ns": [sample.commit_ns for sample in samples],
            "dispatch_ns": [sample.dispatch_ns for sample in samples],
            "apply_ns": [sample.apply_ns for sample in samples],
            "at_s": [(at - begun) / 1e9 for at in asked],
            "share": [(sample.transaction - workload.warm_up) / span for sample in samples],
        }
        rows = len(samples)
        facts = {
            "experiment": experiment,
            "contestant": contestant,
            "round": f"{self.piece}.{nth}",
            "targets": workload.targets,
            "keys": workload.keys,
            "rate": float(workload.rate),
        }
        table = pa.table(columns | {name: [value] * rows for name, value in facts.items()})
        name = f"{experiment}-{contestant}-{workload.targets}x{workload.keys}-{self.piece}.{nth}.parquet"
        pq.write_table(table, self.samples_folder / name)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _append(path: Path, line: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
