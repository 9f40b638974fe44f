"""The page's view in a terminal, drawn with rich."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from logplayer.player.status_table import headline, is_held, stuck_lines, target_cells, trouble_lines
from logplayer.wording import milliseconds, plural, size

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
PRODUCERS_MAX = 3
WRONG = "WRONG"


def view(status: Mapping[str, Any], timeline: Sequence[Mapping[str, Any]]) -> RenderableType:
    """The player's lines, the targets with the worst first, what else an operator should know, the newest items."""
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
    parts: list[RenderableType] = [Text(headline(status), style="bold")]
    parts += [*(Text(line, style="red") for line in stuck_lines(status)), Text(), _facts(status), Text()]
    parts += [table, *(Text(line, style="yellow") for line in trouble_lines(status)), Text()]
    for item in timeline[-ITEMS:]:
        at = time.strftime("%H:%M:%S", time.localtime(item["at"]))
        parts.append(Text(f"{at}  {item['text']}", style="red" if item["level"] in ("error", "warning") else "dim"))
    return Group(*parts)


def _facts(status: Mapping[str, Any]) -> Table:
    """What the page shows above its targets: a line for each."""
    table = Table.grid(padding=(0, 2))
    lines = {
        "delay": _delay(status),
        "log": _log(status),
        "producers": _producers(status["producers"]),
        "groups": ", ".join(f"{group['group']}: {_player_of(group)}" for group in status.get("groups", ())),
        "audit": _audit(status.get("audit")),
    }
    for name, text in lines.items():
        if text:
            table.add_row(Text(name, style="dim"), Text(text, style="red" if text.startswith(WRONG) else ""))
    return table


def _delay(status: Mapping[str, Any]) -> str:
    if not status["delay_p50_ms"]:
        return "nothing was acked just now"
    p50, p90, p99 = (milliseconds(status[f"delay_{name}_ms"]) for name in ("p50", "p90", "p99"))
    return f"median {p50}, p90 {p90}, p99 {p99}"


def _log(status: Mapping[str, Any]) -> str:
    text = f"entries {status['log_first']} to {status['log_last']}"
    text += f", {size(status['log_bytes'])}" if status["log_bytes"] else ""
    return text + (f"; up to {status['trim_point']} nobody needs it any more" if status["trim_point"] else "")


def _producers(names: Sequence[str]) -> str:
    more = f", and {len(names) - PRODUCERS_MAX} more" if len(names) > PRODUCERS_MAX else ""
    return ", ".join(names[:PRODUCERS_MAX]) + more if names else "none just now"


def _player_of(group: Mapping[str, Any]) -> str:
    worker = str(group["worker"]).removeprefix("spark ")
    return worker if group["state"] == "playing" else f"{worker} {group['state']}".strip()


def _audit(audit: Mapping[str, Any] | None) -> str:
    if audit is None:
        return "not run"
    at = time.strftime("%H:%M:%S", time.localtime(audit["at"]))
    text = f"{'right' if audit['right'] else WRONG}, {plural(audit['targets'], 'target')}, {at}"
    return text if audit["right"] else f"{text}: {', '.join(audit['wrong'])}"


def _outlook(target: Mapping[str, Any]) -> str:
    return "held" if is_held(target) else str(target["outlook"])
