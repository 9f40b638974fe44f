"""A flame graph from recorded stacks, as an SVG of its own: the width of a box is its share of the samples."""

from __future__ import annotations

import html
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

WIDTH, ROW, TEXT = 1200.0, 17, 11
NARROW = 0.6  # Boxes below this many pixels are not drawn.
LETTER = 6.2  # Pixels of a letter, about.


@dataclass
class Frame:
    """A function on the stack, with everything that it called."""

    name: str
    count: int = 0
    own: int = 0
    calls: dict[str, Frame] = field(default_factory=dict)


def parse(text: str) -> Frame:
    """Lines ``outer;inner;innermost COUNT``, as samplers write them."""
    root = Frame("all")
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        if not stack or not count.isdigit():
            continue
        root.count += int(count)
        frame = root
        for name in stack.split(";"):
            frame = frame.calls.setdefault(name, Frame(name))
            frame.count += int(count)
        frame.own += int(count)
    while len(root.calls) == 1 and not root.own:  # What starts the process is on every stack and tells nothing.
        [root] = root.calls.values()
    return root


def top(root: Frame, limit: int = 15) -> list[tuple[str, float, float]]:
    """Functions by the time spent in themselves: name, own share, share with everything that they call."""
    own: dict[str, int] = {}
    total: dict[str, int] = {}

    def walk(frame: Frame, above: frozenset[str]) -> None:
        own[frame.name] = own.get(frame.name, 0) + frame.own
        if frame.name not in above:  # Recursion counts once.
            total[frame.name] = total.get(frame.name, 0) + frame.count
        for call in frame.calls.values():
            walk(call, above | {frame.name})

    for call in root.calls.values():
        walk(call, frozenset())
    ordered = sorted(own, key=lambda name: -own[name])[:limit]
    return [(name, own[name] / root.count, total[name] / root.count) for name in ordered if root.count]


def draw(root: Frame) -> str:
    """The graph, callers above what they call."""
    boxes = list(_boxes(root, 0.0, 0, WIDTH / max(1, root.count)))
    height = (max((depth for _, _, depth, _ in boxes), default=0) + 1) * ROW + 4
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height}" font-family="monospace" '
        f'font-size="{TEXT}">'
    ]
    for frame, left, depth, width in boxes:
        share = 100 * frame.count / max(1, root.count)
        fits = int(width / LETTER)
        label = frame.name if len(frame.name) <= fits else f"{frame.name[: fits - 1]}…" if fits > 3 else ""
        parts.append(
            f"<g><title>{html.escape(frame.name)}: {share:.1f} %</title>"
            f'<rect x="{left:.1f}" y="{depth * ROW}" width="{max(width - 0.5, 0.3):.1f}" height="{ROW - 1}" rx="1" '
            f'fill="{_colour(frame.name)}"/>'
            f'<text x="{left + 3:.1f}" y="{depth * ROW + 12}">{html.escape(label)}</text></g>'
        )
    return "".join([*parts, "</svg>"])


def _boxes(frame: Frame, left: float, depth: int, scale: float) -> Iterator[tuple[Frame, float, int, float]]:
    width = frame.count * scale
    if width < NARROW:
        return
    yield frame, left, depth, width
    for call in sorted(frame.calls.values(), key=lambda call: call.name):
        yield from _boxes(call, left, depth + 1, scale)
        left += call.count * scale


def _colour(name: str) -> str:
    """Warm, and the same for the same function in every graph; our own code is redder."""
    shade = zlib.crc32(name.encode()) % 40
    return (
        f"hsl({10 + shade // 3}, 85%, {62 + shade // 4}%)"
        if "logplayer" in name
        else f"hsl({45 + shade // 2}, 60%, 75%)"
    )
