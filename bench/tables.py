"""A result as text for a terminal; the report draws the same numbers."""

from __future__ import annotations

import statistics
from typing import Any

from bench.percentiles import SHARES
from bench.results import RATIOS, ratios_of

Result = dict[str, Any]
_NOT_A_FIGURE = {"experiment", "contestant", "round", "what", "targets", "keys", "players", "rate"}


def result_text(result: Result) -> str:
    """Delays, single figures and ratios."""
    lines = []
    if result["delays"]:
        head = ("experiment", "contestant", "targets", "KB", "rate/s", "delay ms", "mean", *SHARES, "n")
        rows = [
            (
                row["experiment"],
                row["contestant"],
                row["targets"],
                row["keys"],
                f"{row['rate']:g}",
                kind,
                *_figures(row[kind]),
            )
            for row in result["delays"]
            for kind in ("player", "apply")
        ]
        lines += table(head, rows)
    if result["measures"]:
        lines += ["", *table(("experiment", "contestant", "", "figure", "median", "of"), medians(result))]
    ratios, missing = ratios_of(result)
    told = [
        (r.name, f"{ratios[r.name]:g}", r.goal, verdict(r.holds(ratios[r.name]))) for r in RATIOS if r.name in ratios
    ]
    if told:
        lines += ["", *table(("ratio", "", "goal", ""), told)]
    lines += [f"no {name}: {why}" for name, why in missing.items()]
    return "\n".join(lines)


def verdict(holds: bool) -> str:
    return "holds" if holds else "falls short"


def _figures(found: dict[str, float]) -> list[str]:
    return [f"{found[key]:.3f}" for key in ("mean", *SHARES)] + [str(found["n"])]


def medians(result: Result) -> list[tuple[str, ...]]:
    """Each single figure: experiment, contestant, point, name, median over the rounds, number of rounds."""
    values: dict[tuple[str, str, str, str], list[float]] = {}
    for line in result["measures"]:
        point = ", ".join(f"{key} {line[key]}" for key in ("what", "targets", "players") if key in line)
        for key, value in line.items():
            if key not in _NOT_A_FIGURE and isinstance(value, int | float):
                values.setdefault((line["experiment"], line["contestant"], point, key), []).append(value)
    return [(*key, f"{statistics.median(found):.4g}", str(len(found))) for key, found in values.items()]


def table(head: tuple[Any, ...], rows: list[tuple[Any, ...]]) -> list[str]:
    """Columns as wide as they need to be; numbers to the right."""
    cells = [tuple(map(str, row)) for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]

    def line(row: tuple[str, ...]) -> str:
        done = [
            cell.rjust(width) if _is_number(cell) else cell.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        ]
        return "  ".join(done).rstrip()

    return [line(row) for row in cells]


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).replace("-", "", 1).isdigit()
