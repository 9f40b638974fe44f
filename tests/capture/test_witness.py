"""The campaign's own checker: it finds a sample that is no prefix of the source's history."""

from __future__ import annotations

import subprocess

import pytest

from tests.campaign.witness import (
    Place,
    Witness,
    not_prefixes,
    not_teller_prefixes,
    open_witness,
    require_work,
    teller_deltas,
)
from tests.capture.capture_support import Source

A, B, C = ("branches", 1), ("branches", 2), ("stores", 1)
COMMITS = [(A, 1), (B, 1), (A, 2), (C, 1), (B, 2)]


@pytest.mark.parametrize(
    ("sample", "right"),
    [
        ({A: 0, B: 0}, True),
        ({A: 1, B: 0}, True),
        ({A: 2, B: 1}, True),
        ({A: 2, C: 1}, True),  # B is another shard's.
        ({A: 0, B: 1}, False),  # The first commit is missing.
        ({A: 2, B: 0}, False),
        ({A: 2, B: 2, C: 0}, False),
        ({A: 3, B: 1}, False),  # Nobody has committed that.
    ],
)
def test_prefixes(sample: dict[Place, int], right: bool) -> None:
    assert not_prefixes(COMMITS, [sample]) == ([] if right else [sample])


def test_the_order_comes_from_the_source(source: Source) -> None:
    source.run(
        "CREATE TABLE branches (bid int PRIMARY KEY, note text, version bigint)",
        "CREATE TABLE stores (store int PRIMARY KEY, title text, version bigint)",
        "INSERT INTO branches VALUES (1, 'bid[integer]:7', 0)",
        "INSERT INTO stores VALUES (1, 'it''s', 0)",
    )
    witness = Witness(source.url)
    for statement in ("branches SET version = 1", "stores SET version = 1", "branches SET version = 2"):
        source.run(f"UPDATE {statement}")
    assert witness.commits() == [(A, 1), (C, 1), (A, 2)]
    assert witness.commits() == [(A, 1), (C, 1), (A, 2)], "it confirms nothing"


def test_what_pgbench_did_comes_from_the_source(source: Source) -> None:
    """Its own tables and its own script, as they are."""
    subprocess.run(["pgbench", "-q", "-i", "-s", "1", "--foreign-keys", source.url], check=True, capture_output=True)
    open_witness(source.url, f"{source.slot}_w")
    subprocess.run(["pgbench", "-n", "-c", "2", "-t", "5", source.url], check=True, capture_output=True)
    deltas = teller_deltas(source.url, f"{source.slot}_w")
    assert len(deltas) == 10
    now = tuple(row[0] for row in source.db.execute("SELECT tbalance FROM pgbench_tellers ORDER BY tid"))
    torn = list(now)
    torn[deltas[-1][0] - 1] += 1
    assert not_teller_prefixes(deltas, [now, (0,) * 10, tuple(torn), now]) == [tuple(torn)]
    assert not_teller_prefixes(deltas[:-1], [now]) == [now]


@pytest.mark.parametrize(
    ("samples", "transactions", "said"),
    [({"east": 0, "west": 2}, {"bank": 1}, "east was never sampled"), ({"east": 1}, {"bank": 0}, "bank committed")],
)
def test_a_campaign_that_proves_nothing_fails(samples: dict[str, int], transactions: dict[str, int], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        require_work(samples, transactions)
    require_work({"east": 1}, {"bank": 1})
