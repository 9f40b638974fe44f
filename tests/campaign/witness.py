"""The order in which a source committed, by a reader of its own: PostgreSQL's ``test_decoding``.

Every transaction of the campaign raises the ``version`` of one row that places rows: of a branch or of a store. A state
that a shard shows is a prefix of the source's history if and only if its versions are those after some number of
commits, of the commits that concern this shard.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

import psycopg

Place = tuple[str, int]
SLOT = "witness"
_UPDATE = re.compile(
    r"^table public\.(branches|stores): UPDATE: .*?\b(?:bid|store)\[integer\]:(\d+).* version\[bigint\]:(\d+)"
)


_HISTORY = re.compile(r"^table public\.pgbench_history: INSERT: tid\[integer\]:(\d+) .* delta\[integer\]:(-?\d+) ")


def open_witness(url: str, slot: str) -> None:
    """A slot that nobody confirms: at the end it tells everything from here on."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", (slot,))


class Witness:
    """A slot that nobody confirms: at the end it tells everything from the beginning on."""

    def __init__(self, url: str) -> None:
        self._url = url
        open_witness(url, SLOT)

    def commits(self) -> list[tuple[Place, int]]:
        """The row that each transaction raised and its new version, in commit order."""
        found = []
        with psycopg.connect(self._url, autocommit=True) as db:
            query = "SELECT data FROM pg_logical_slot_peek_changes(%s, NULL, NULL) WHERE data LIKE 'table public.%%'"
            for (data,) in db.execute(query, (SLOT,)):
                match = _UPDATE.match(data)
                if match:
                    found.append(((match[1], int(match[2])), int(match[3])))
        return found


def not_prefixes(commits: list[tuple[Place, int]], samples: list[dict[Place, int]]) -> list[dict[Place, int]]:
    """The samples that are no prefix of the commits that concern their places."""
    order: dict[tuple[Place, int], int] = {commit: nth for nth, commit in enumerate(commits)}
    assert len(order) == len(commits), "a version was reached twice"
    wrong = []
    for sample in samples:
        reached = [order.get((place, version), len(commits)) for place, version in sample.items() if version]
        through = max(reached, default=-1)
        expected = Counter(place for place, _ in commits[: through + 1] if place in sample)
        if through == len(commits) or any(expected[place] != version for place, version in sample.items()):
            wrong.append(sample)
    return wrong


def teller_deltas(url: str, slot: str) -> list[tuple[int, int]]:
    """Of each transaction of pgbench's own script the teller and the amount, in commit order."""
    with psycopg.connect(url, autocommit=True) as db:
        query = "SELECT data FROM pg_logical_slot_peek_changes(%s, NULL, NULL) WHERE data LIKE '%%pgbench_history%%'"
        found = [_HISTORY.match(data) for (data,) in db.execute(query, (slot,))]
    return [(int(match[1]), int(match[2])) for match in found if match]


def not_teller_prefixes(deltas: list[tuple[int, int]], samples: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The samples (a balance for each teller, who all began with nothing) that were never the source's state."""
    wanted = set(samples)
    balances = [0] * max((len(sample) for sample in wanted), default=0)
    wanted.discard(tuple(balances))
    for teller, delta in deltas:
        balances[teller - 1] += delta
        wanted.discard(tuple(balances))
    return [sample for sample in samples if sample in wanted]


def require_work(samples: Mapping[str, int], transactions: Mapping[str, int]) -> None:
    """Refuse a campaign that has proved nothing: a replica was never asked, or a load never ran under the faults."""
    idle = [f"{name} was never sampled" for name, count in samples.items() if count < 1]
    idle += [f"{name} committed nothing" for name, count in transactions.items() if count < 1]
    assert not idle, "; ".join(idle)
