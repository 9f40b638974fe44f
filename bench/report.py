"""The report: figures as SVG and PNG, and one page that needs nothing but itself."""

from __future__ import annotations

import html
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench import flame
from bench.figures import Drawing, draw_all
from bench.percentiles import SHARES
from bench.results import RATIOS, read
from bench.tables import medians, verdict

Result = dict[str, Any]
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; font-size: 13px; }
td, th { border-bottom: 1px solid #ddd; padding: 3px 10px; text-align: left; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
.holds { color: #1e8449; } .short { color: #c0392b; font-weight: bold; }
figure { margin: 2em 0; } figure svg { max-width: 100%; height: auto; } figcaption { color: #555; }
code { background: #f4f4f4; padding: 1px 4px; }
"""


def write_report(results: Path, out: Path) -> Path:
    """Draw the result that the summary in ``results`` is about; the page."""
    result, summary = read(results)
    out.mkdir(parents=True, exist_ok=True)
    drawings = list(draw_all(result))
    for drawing in drawings:
        (out / f"{drawing.name}.svg").write_text(drawing.svg)
        (out / f"{drawing.name}.png").write_bytes(drawing.png)
    profiles = {}
    for path in sorted(results.glob(f"{result['run']}.profile-*.txt")):
        name = path.stem.rpartition("profile-")[2]
        profiles[name] = flame.parse(path.read_text())
        (out / f"flame-{name}.svg").write_text(flame.draw(profiles[name]))
    page = out / "index.html"
    page.write_text(_page(result, summary, drawings, profiles))
    return page


def _page(result: Result, summary: dict[str, Any], drawings: list[Drawing], profiles: dict[str, flame.Frame]) -> str:
    body = [
        f"<h1>LogPlayer, run {_text(result['run'])}</h1>",
        _about(result),
        "<h2>Ratios</h2>",
        _ratios(summary),
        *(_figure(drawing) for drawing in drawings),
        "<h2>Delays</h2>",
        _delays(result),
        "<h2>Single figures</h2>",
        _table(("experiment", "contestant", "", "figure", "median", "rounds"), medians(result)),
        *(_profile(name, root, result) for name, root in profiles.items()),
        "<h2>How it was run</h2>",
        _runs(result),
    ]
    head = f'<meta charset="utf-8"><title>LogPlayer, run {_text(result["run"])}</title><style>{_STYLE}</style>'
    return f"<!doctype html><html lang=en><head>{head}</head><body>{''.join(body)}</body></html>\n"


def _about(result: Result) -> str:
    facts = [f"{key} {value}" for key, value in (result["machine"] | result["versions"]).items()]
    return f"<p>{_text(', '.join(facts))}.</p>"


def _ratios(summary: dict[str, Any]) -> str:
    rows = []
    for ratio in RATIOS:
        if ratio.name in summary["ratios"]:
            value = summary["ratios"][ratio.name]
            holds = ratio.holds(value)
            mark = f'<span class="{"holds" if holds else "short"}">{verdict(holds)}</span>'
            rate = summary["rates"][ratio.name]
            rows.append((_text(ratio.name), _text(ratio.text), _text(rate), f"{value:g}", _text(ratio.goal), mark))
        else:
            why = summary["missing"].get(ratio.name, "")
            rows.append((_text(ratio.name), _text(ratio.text), "", "", _text(ratio.goal), _text(f"missing: {why}")))
    return _table(("ratio", "what", "at", "value", "goal", ""), rows, escape=False)


def _figure(drawing: Drawing) -> str:
    caption = f"<figcaption>{_text(drawing.caption)}</figcaption>"
    return f'<figure id="{drawing.name}"><h2>{_text(drawing.title)}</h2>{drawing.svg}{caption}</figure>'


def _delays(result: Result) -> str:
    head = (
        "experiment",
        "contestant",
        "guarantee",
        "targets",
        "KB",
        "rate/s",
        "reached",
        "delay",
        "mean",
        *SHARES,
        "n",
        "growth",
    )
    rows = [
        (
            row["experiment"], row["contestant"], result["guarantees"].get(row["contestant"], ""),
            row["targets"], row["keys"], f"{row['rate']:g}", _reached(row), kind,
            *(f"{row[kind][key]:.3f}" for key in ("mean", *SHARES)), row[kind]["n"],
            "" if row["growth"] is None else f"{row['growth']:g}",
        )
        for row in result["delays"]
        for kind in ("player", "apply", "commit")
    ]  # fmt: skip
    text = (
        "<p>Milliseconds. <b>player</b>: dispatch to apply. <b>apply</b>: asked to apply. <b>commit</b>: asked to "
        "durable. <b>growth</b>: the median apply delay of a run's last quarter over its first; a backlog grows. "
        "<b>reached</b>: the rate that was really asked for, where a contestant waits for its own commits.</p>"
    )
    return text + _table(head, rows)


def _reached(row: Result) -> str:
    """The lowest rate of the rounds that was really asked for."""
    found = [part["reached_rate"] for part in row["rounds"] if part["reached_rate"]]
    return f"{min(found):g}" if found else ""


def _profile(name: str, root: flame.Frame, result: Result) -> str:
    [*found] = [line for line in result["measures"] if (line["experiment"], line["contestant"]) == ("profile", name)]
    busy = f" It was busy for {100 * found[-1]['busy']:.0f} % of the time." if found else ""
    rows = [(function, f"{100 * own:.1f} %", f"{100 * total:.1f} %") for function, own, total in flame.top(root)]
    return (
        f'<figure id="flame-{name}"><h2>Where the player\'s time goes: {_text(name)}</h2>{flame.draw(root)}'
        f"<figcaption>Stacks of the player's process under a steady load, callers above what they call.{busy}"
        f"</figcaption></figure>{_table(('function', 'itself', 'with what it calls'), rows)}"
    )


def _runs(result: Result) -> str:
    rows = [
        (
            piece["at"],
            piece["commit"],
            piece["command"],
            f"{piece['seconds']:g} s",
            f"{piece['load_before']} → {piece['load_after']}",
        )
        for piece in result["pieces"]
    ]
    told = _table(("when", "commit", "command", "took", "load average"), rows)
    for title, found in (("Missing", result["missing"]), ("Failed", result["failed"])):
        if found:
            told += f"<h3>{title}</h3>{_table(('', 'why'), list(found.items()))}"
    return told


def _table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]], escape: bool = True) -> str:
    def cell(value: Any) -> str:
        text = _text(value) if escape else str(value)
        number = str(value).replace(".", "", 1).replace(" %", "").isdigit()
        return f'<td class="n">{text}</td>' if number else f"<td>{text}</td>"

    lines = ["<tr>" + "".join(f"<th>{_text(name)}</th>" for name in head) + "</tr>"]
    lines += ["<tr>" + "".join(map(cell, row)) + "</tr>" for row in rows]
    return f"<table>{''.join(lines)}</table>"


def _text(value: Any) -> str:
    return html.escape(str(value))
