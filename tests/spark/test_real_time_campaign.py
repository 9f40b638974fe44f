"""What the campaign of queries in real time counts as done, without a cluster."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.campaign.realtime import KINDS, next_kind, shortfall


@pytest.mark.parametrize(
    ("kills", "wanted", "kinds", "said"),
    [
        ({"log": 2, "driver": 1}, 3, ("log", "driver"), []),
        ({"log": 2, "driver": 1}, 5, ("log", "driver"), ["3 of 5 kills"]),
        ({"log": 3}, 3, ("log", "driver", "freeze"), ["no kill of driver", "no kill of freeze"]),
        ({"log": 2}, 2, ("log", "driver", "freeze"), []),  # Fewer than there are kinds.
        ({}, 4, ("log",), ["0 of 4 kills", "no kill of log"]),
    ],
)
def test_a_campaign_that_did_less_than_asked_fails(
    kills: dict[str, int], wanted: int, kinds: tuple[str, ...], said: list[str]
) -> None:
    assert shortfall(kills, wanted, kinds) == said


@pytest.mark.parametrize("seed", range(50))
def test_every_kind_has_its_turn(seed: int) -> None:
    rng, kinds, wanted = random.Random(seed), tuple(KINDS), len(KINDS) + 1
    kills: Counter[str] = Counter()
    for _ in range(wanted):
        kills[next_kind(rng, kinds, kills, wanted)] += 1
    assert shortfall(kills, wanted, kinds) == []


def test_without_a_need_kinds_are_chosen_by_their_weights() -> None:
    rng, kinds = random.Random(1), tuple(KINDS)
    found = Counter(next_kind(rng, kinds, dict.fromkeys(kinds, 1), 10_000) for _ in range(3000))
    assert all(abs(found[kind] / 3000 - KINDS[kind] / sum(KINDS.values())) < 0.05 for kind in kinds)
