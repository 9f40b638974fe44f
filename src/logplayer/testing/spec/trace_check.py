"""Is a recorded run of the real code a behaviour of ``spec/LogPlayer.tla``? TLC decides.

    verdict = check(simulation.trace_lines())
    assert verdict.accepted, str(verdict)

The trace's form is in :mod:`logplayer.testing.spec.trace_module`. A verdict is about safety: a trace that ends too
early, with entries undelivered, is accepted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from logplayer.errors import LogPlayerError
from logplayer.java import find_java
from logplayer.testing.spec.tlc import Tlc, TlcRun, spec_dir
from logplayer.testing.spec.trace_module import Trace, TraceLine, module_text, parse, read_lines

__all__ = ["TraceLine", "TraceVerdict", "Unexplained", "check", "read_lines"]

_CONSTANTS = {
    "Players": "TracePlayers",
    "Targets": "TraceTargets",
    "Dest": "TraceDest",
    "Absent": "TraceAbsent",
    "QueueCountMax": "Trace_queue_count_max",
    "WindowBatchesMax": "Trace_window_batches_max",
    "BatchCountMax": "Trace_batch_count_max",
}


@dataclass(frozen=True, slots=True)
class Unexplained:
    """A line that no order of the nodes explains: the first such line of its node."""

    node: str
    line: TraceLine
    why: str

    def __str__(self) -> str:
        return f"{self.node}: {json.dumps(dict(self.line))}: {self.why}"


@dataclass(frozen=True, slots=True)
class TraceVerdict:
    """What TLC says of a trace."""

    accepted: bool
    matched: int  # Lines that were explained.
    total: int
    unexplained: tuple[Unexplained, ...]  # Of each node that could not go on. One is at fault; others may wait for it.
    states: int
    seconds: float
    broken: tuple[str, ...] = ()  # Invariants that fail after the matched lines.

    def __str__(self) -> str:
        told = f"{self.matched} of {self.total} lines explained, {self.states} states, {self.seconds:.1f} s"
        if self.accepted:
            return f"accepted: {told}"
        reasons = [f"breaks {', '.join(self.broken)}"] if self.broken else []
        return "\n  ".join([f"rejected: {told}", *reasons, *map(str, self.unexplained)])


def check(
    trace_lines: Iterable[str | TraceLine],
    *,
    tlc: Tlc | None = None,
    directory: Path | None = None,
    seconds_max: float = 600,
) -> TraceVerdict:
    """Check one trace. Raises UserError if its form is wrong, and LogPlayerError if TLC itself fails.

    Callers that check many traces make one ``Tlc`` and pass it: finding Java costs a process start each time.
    """
    trace = parse(trace_lines)
    tlc = tlc or Tlc(find_java(), spec_dir(directory))
    asked = TlcRun(
        module="TraceLogPlayer",
        specification="TraceSpec",
        constants=_CONSTANTS,
        constraints=["Report"],
        extra_modules={"TraceData": module_text(trace)},
    )
    result = tlc.run(asked, seconds_max)
    if result.outcome != "pass":
        raise LogPlayerError(f"TLC could not check the trace: {result.outcome}\n{result.output[-2000:]}")
    return _verdict(trace, result.output, result.distinct, result.seconds)


def _verdict(trace: Trace, output: str, states: int, seconds: float) -> TraceVerdict:
    said = re.search(r"trace (accepted|stuck|broken)((?: \w+)*?)(?: at((?: \d+)*))?\"", output)
    if said is None:
        raise LogPlayerError(f"TLC ended without a verdict on the trace:\n{output[-2000:]}")
    if said.group(1) == "accepted":
        return TraceVerdict(True, trace.total, trace.total, (), states, seconds)
    nexts = [int(number) for number in (said.group(3) or "").split()]
    reasons = {int(node): why for node, why in re.findall(r"trace why (\d+) ([^\"]*)\"", output)}
    unexplained = tuple(
        Unexplained(node, lines[at - 1], reasons.get(number, ""))
        for number, ((node, lines), at) in enumerate(zip(trace.nodes.items(), nexts, strict=True), 1)
        if at <= len(lines) and said.group(1) == "stuck"
    )
    matched = sum(at - 1 for at in nexts)
    return TraceVerdict(False, matched, trace.total, unexplained, states, seconds, tuple(said.group(2).split()))
