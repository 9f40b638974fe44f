"""The flame graph: its boxes are as wide as their share."""

from __future__ import annotations

import re

from bench import flame

STACKS = "main;loop;send;join 30\nmain;loop;send 10\nmain;loop;read <x> 60\nno number\n"


def test_shares_are_those_of_the_samples() -> None:
    root = flame.parse(STACKS)
    assert (root.name, root.count) == ("loop", 100), "what is on every stack is left out"
    assert flame.top(root)[:2] == [("read <x>", 0.6, 0.6), ("join", 0.3, 0.3)]
    assert ("send", 0.1, 0.4) in flame.top(root)


def test_boxes_are_drawn_below_their_callers() -> None:
    drawn = flame.draw(flame.parse(STACKS))
    boxes = re.findall(r'<title>(.*?): ([\d.]+) %</title><rect x="([\d.]+)" y="(\d+)"', drawn)
    by_name = {name: (float(share), float(left), int(top)) for name, share, left, top in boxes}
    assert by_name["loop"] == (100.0, 0.0, 0)
    assert by_name["read &lt;x&gt;"] == (60.0, 0.0, flame.ROW)
    assert by_name["send"] == (40.0, flame.WIDTH * 0.6, flame.ROW)
    assert by_name["join"][2] == 2 * flame.ROW


def test_recursion_counts_once() -> None:
    root = flame.parse("a;b;a;b 5\na 5\n")
    assert {name: total for name, _, total in flame.top(root)} == {"b": 0.5, "a": 0.5}
