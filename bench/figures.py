"""The figures of a result: the paper's own, and those that users ask for. A figure without data is left out."""

from __future__ import annotations

import io
import re
import statistics
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.percentiles import SHARES
from bench.results import kept_up
from logplayer.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Result = dict[str, Any]
LINES = ("mean", *SHARES)
NAMES = {"p999": "p99.9"}
AXES = {"targets": "targets", "size": "keys"}
PANELS = {"ours_grpc": "gRPC", "ours_tcp": "framed TCP"}
COLOURS = {
    "ours_grpc": "#c0392b",
    "ours_tcp": "#e67e22",
    "bare_grpc": "#7f8c8d",
    "bare_tcp": "#bdc3c7",
    "kafka_eos": "#1f4e79",
    "kafka_plain": "#2e86c1",
    "kafka_two_level": "#6c3483",
}
SAVE: dict[Any, Any] = {"svg.fonttype": "none", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}


class Drawing(NamedTuple):
    """A figure that could be drawn."""

    name: str
    title: str
    caption: str
    svg: str
    png: bytes


class Plan(NamedTuple):
    """How a figure is drawn; ``draw`` says whether there was anything to draw."""

    name: str
    title: str
    caption: str
    panels: int
    draw: Callable[[Result, list[Axes]], bool]


def draw_all(result: Result) -> Iterator[Drawing]:
    """Every figure that the result has data for."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise UserError("the report needs matplotlib: pip install 'logplayer[bench]'") from None
    for plan in PLANS:
        with matplotlib.rc_context({**SAVE, "svg.hashsalt": plan.name}):
            figure = Figure(figsize=(4.6 * plan.panels, 3.2), layout="constrained")
            axes = [figure.add_subplot(1, plan.panels, number + 1) for number in range(plan.panels)]
            if plan.draw(result, axes):
                yield Drawing(plan.name, plan.title, plan.caption, _svg(figure), _png(figure))


def _svg(figure: Figure) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = re.sub(r"(?s)<metadata>.*?</metadata>", "", out.getvalue())
    return text[text.index("<svg") :]


def _png(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=130, metadata={"Software": None})
    return out.getvalue()


# --- Delays ---


def rows(result: Result, experiment: str, contestant: str, axis: str, rate: float | None = None) -> list[Result]:
    """The rows of one contestant at one rate (the highest that was measured), by the axis."""
    found = [row for row in result["delays"] if (row["experiment"], row["contestant"]) == (experiment, contestant)]
    rate = rate or max((row["rate"] for row in found), default=0)
    return sorted((row for row in found if row["rate"] == rate), key=lambda row: row[axis])


def fair_rate(result: Result, experiment: str, rival: str) -> float | None:
    """The highest rate at which a rival kept up at every point; None if there is none."""
    found: dict[float, list[bool]] = {}
    for row in result["delays"]:
        if (row["experiment"], row["contestant"]) == (experiment, rival):
            found.setdefault(row["rate"], []).append(kept_up(row))
    return max((rate for rate, kept in found.items() if all(kept)), default=None)


def _spread(kind: str, experiment: str) -> Callable[[Result, list[Axes]], bool]:
    """Mean and percentiles of our delay, one panel per transport, with the limit."""
    axis = AXES[experiment]

    def draw(result: Result, axes: list[Axes]) -> bool:
        drawn = False
        for panel, (contestant, title) in zip(axes, PANELS.items(), strict=True):
            found = rows(result, experiment, contestant, axis)
            for line in LINES if found else ():
                panel.plot(*_line(found, axis, kind, line), marker="o", markersize=3, label=NAMES.get(line, line))
            limit = rows(result, experiment, contestant.replace("ours", "bare"), axis) if kind == "player" else []
            for line, style in (("p50", ":"), ("p99", "--")) if limit else ():
                panel.plot(*_line(limit, axis, kind, line), style, color="#555555", label=f"bare {line}")
            drawn = drawn or bool(found)
            _label(panel, f"{title}, {found[0]['rate']:g} transactions/s" if found else title, _axis_name(axis), "ms")
        return drawn

    return draw


def _against(rival: str, experiment: str) -> Callable[[Result, list[Axes]], bool]:
    """Mean and p99 of the apply delay: a rival's and ours."""
    axis = AXES[experiment]

    def draw(result: Result, axes: list[Axes]) -> bool:
        if not rows(result, experiment, rival, axis):
            return False
        rate = fair_rate(result, experiment, rival) or rows(result, experiment, rival, axis)[0]["rate"]
        for panel, line in zip(axes, ("mean", "p99"), strict=True):
            for contestant in (rival, *PANELS):
                found = rows(result, experiment, contestant, axis, rate)
                if found:
                    colour = COLOURS.get(contestant, "#333333")
                    panel.plot(*_line(found, axis, "apply", line), marker="o", color=colour, label=contestant)
            panel.set_ylim(bottom=0)
            _label(panel, f"{line}, {rate:g} transactions/s", _axis_name(axis), "ms")
        return True

    return draw


def _everybody(targets: int) -> Callable[[Result, list[Axes]], bool]:
    def draw(result: Result, axes: list[Axes]) -> bool:
        found = [
            row
            for row in result["delays"]
            if (row["experiment"], row["targets"], row["keys"]) == ("targets", targets, 10)
            and not row["contestant"].startswith("bare")
            and kept_up(row)
        ]
        rates = [row["rate"] for row in found]
        rate = max(set(rates), key=lambda rate: (rates.count(rate), rate), default=0)  # Where most took part.
        found = [row for row in found if row["rate"] == rate]
        found.sort(key=lambda row: row["apply"]["mean"])
        for panel, line in zip(axes, ("mean", "p99"), strict=True):
            values = [row["apply"][line] for row in found]
            colours = [COLOURS.get(row["contestant"], "#16a085") for row in found]
            bars = panel.barh([row["contestant"] for row in found], values, color=colours)
            panel.bar_label(bars, [f" {value:.3g}" for value in values], fontsize=8)
            panel.set_xscale("log")
            panel.margins(x=0.2)
            panel.set_title(f"{line}, {rate:g} transactions/s")
            panel.set_xlabel("ms")
        return len(found) > 1

    return draw


def _over_time(result: Result, axes: list[Axes]) -> bool:
    names = sorted({line["contestant"] for line in result["backlog"]})
    for name in names:
        points = [(line["second"], line["apply"]) for line in result["backlog"] if line["contestant"] == name]
        axes[0].plot(*zip(*points, strict=True), color=COLOURS.get(name, "#333333"), label=name)
    axes[0].set_yscale("log")
    _label(axes[0], "", "seconds since the start", "ms, logarithmic")
    return bool(names)


# --- Single figures ---


def _medians(result: Result, experiment: str, what: str, axis: str) -> dict[str, list[tuple[float, float]]]:
    """Contestant to (point, median over the rounds)."""
    values: dict[str, dict[float, list[float]]] = {}
    for line in result["measures"]:
        if line["experiment"] == experiment and what in line and axis in line:
            values.setdefault(line["contestant"], {}).setdefault(line[axis], []).append(line[what])
    return {
        name: sorted((point, statistics.median(found)) for point, found in points.items())
        for name, points in values.items()
    }


def _speed(experiment: str, axis: str, name: str) -> Callable[[Result, list[Axes]], bool]:
    def draw(result: Result, axes: list[Axes]) -> bool:
        found = _medians(result, experiment, "mb_s", axis)
        for contestant, points in found.items():
            style = "--" if contestant.startswith("bare") else "-"
            colour = COLOURS.get(contestant)
            if not contestant.endswith("_no_log"):
                axes[0].plot(*zip(*points, strict=True), style, marker="o", color=colour, label=contestant)
        if axis == "targets":
            axes[0].set_xscale("log")
        axes[0].set_ylim(bottom=0)
        _label(axes[0], "", name, "MB/s")
        return bool(found)

    return draw


def _frozen(result: Result, axes: list[Axes]) -> bool:
    found = [row for row in result["delays"] if row["experiment"] == "frozen"]
    names = [row["contestant"] for row in found]
    for panel, line in zip(axes, ("p50", "p99"), strict=True):
        colours = ["#95a5a6" if name.endswith("+frozen") else "#c0392b" for name in names]
        bars = panel.bar(names, [row["player"][line] for row in found], color=colours)
        panel.bar_label(bars, fmt="%.2f", fontsize=8)
        panel.tick_params(axis="x", rotation=20)
        panel.set_title(f"player delay of the others, {line}")
        panel.set_ylabel("ms")
    return bool(found)


def _failover(result: Result, axes: list[Axes]) -> bool:
    values: dict[str, list[float]] = {}
    for line in result["measures"]:
        if line["experiment"] == "failover":
            values.setdefault(f"{line['what']} ({line['contestant'].removeprefix('ours_')})", []).append(
                line["seconds"]
            )
        elif line["experiment"] == "frozen" and line["what"] == "detect":
            values.setdefault(f"frozen target noticed ({line['contestant'].removeprefix('ours_')})", []).append(
                line["seconds"]
            )
    names = sorted(values, reverse=True)
    bars = axes[0].barh(names, [statistics.median(values[name]) for name in names], color="#e67e22")
    axes[0].bar_label(bars, fmt=" %.2f", fontsize=8)
    axes[0].margins(x=0.15)
    _label(axes[0], "", "seconds", "")
    return bool(names)


def _line(found: list[Result], axis: str, kind: str, line: str) -> tuple[list[float], list[float]]:
    return [row[axis] for row in found], [row[kind][line] for row in found]


def _axis_name(axis: str) -> str:
    return "targets" if axis == "targets" else "transaction, KB"


def _label(panel: Axes, title: str, below: str, beside: str) -> None:
    panel.set_title(title)
    panel.set_xlabel(below)
    panel.set_ylabel(beside)
    if panel.get_legend_handles_labels()[0]:
        panel.legend(fontsize=7)


_PLAYER = (
    "From the moment the player has an entry from the log to its apply at a target. Dotted and dashed: bare streams."
)
_APPLY = "From just before the application asks for the append to the apply at a target: durability included."
_PAIR = "Apply delay, mean and p99, of the rival and of this player over both transports."
PLANS = [
    Plan("player-targets", "Player delay against the number of targets", _PLAYER, 2, _spread("player", "targets")),
    Plan("apply-targets", "Apply delay against the number of targets", _APPLY, 2, _spread("apply", "targets")),
    Plan("player-size", "Player delay against the transaction's size", _PLAYER, 2, _spread("player", "size")),
    Plan("apply-size", "Apply delay against the transaction's size", _APPLY, 2, _spread("apply", "size")),
    Plan("two-level-targets", "Kafka with two levels of topics", _PAIR, 2, _against("kafka_two_level", "targets")),
    Plan("backlog", "Apply delay over time at one rate", "A backlog grows; what keeps up is flat.", 1, _over_time),
    Plan("plain-targets", "Kafka without transactions, by targets", _PAIR, 2, _against("kafka_plain", "targets")),
    Plan("plain-size", "Kafka without transactions, by size", _PAIR, 2, _against("kafka_plain", "size")),
    Plan("eos-targets", "Kafka with transactions, by targets", _PAIR, 2, _against("kafka_eos", "targets")),
    Plan("eos-size", "Kafka with transactions, by size", _PAIR, 2, _against("kafka_eos", "size")),
    Plan("everybody-10", "Everybody at 10 targets, 10 KB", "Apply delay, logarithmic.", 2, _everybody(10)),
    Plan("everybody-20", "Everybody at 20 targets, 10 KB", "Apply delay, logarithmic.", 2, _everybody(20)),
    Plan("throughput", "Throughput from a full log, by targets", "Median of the rounds; dashed: bare streams.", 1,
         _speed("throughput", "targets", "targets, logarithmic")),
    Plan("players", "Throughput by players that share 20 targets", "As processes, and as tasks on Spark.", 1,
         _speed("players", "players", "players")),
    Plan("frozen", "While one target is frozen", "Grey: one target is stopped by SIGSTOP.", 2, _frozen),
    Plan("failover", "From trouble to the next delivery", "Median of the rounds.", 1, _failover),
]  # fmt: skip
