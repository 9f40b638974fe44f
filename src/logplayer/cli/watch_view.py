"""The page's view in a terminal, drawn with rich."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from logplayer.player.status_table import headline, is_held, target_cells, trouble_lines

STYLES = {  # From the best to the worst.
    "fine": "green",
    "held": "dim",
    "catches up": "yellow",
    "too early to say": "yellow",
    "falls behind": "red",
    "is tried again": "red",
    "needs you": "bold red",
}
COLUMNS = ("TARGET", "STATE", "INDEX", "LAG", "AGE", "RATE/S", "WILL IT CATCH UP?", "WHY")
ROWS_MAX = 200
ITEMS = 8


def view(status: Mapping[str, Any], timeline: Sequence[Mapping[str, Any]]) -> RenderableType:
    """The player's line, the targets with the worst first, what else an operator should know, the newest items."""
    table = Table(box=None, pad_edge=False, expand=True)
    for name in COLUMNS:
        table.add_column(
            name, justify="right" if name in ("INDEX", "LAG", "AGE", "RATE/S") else "left", no_wrap=name != "WHY"
        )
    ranks = list(STYLES)
    ordered = sorted(status["targets"], key=lambda one: (-ranks.index(_outlook(one)), one["target"]))
    for target in ordered[:ROWS_MAX]:
        style = STYLES[_outlook(target)]
        cells = target_cells(target)
        table.add_row(*(Text(cell, style=style if nth in (1, 6) else "") for nth, cell in enumerate(cells)))
    parts: list[RenderableType] = [Text(headline(status), style="bold"), Text()]
    parts += [table, *(Text(line, style="yellow") for line in trouble_lines(status)), Text()]
    for item in timeline[-ITEMS:]:
        at = time.strftime("%H:%M:%S", time.localtime(item["at"]))
        parts.append(Text(f"{at}  {item['text']}", style="red" if item["level"] in ("error", "warning") else "dim"))
    return Group(*parts)


def _outlook(target: Mapping[str, Any]) -> str:
    return "held" if is_held(target) else str(target["outlook"])
