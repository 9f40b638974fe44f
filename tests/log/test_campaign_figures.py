"""What the campaigns of the log print and judge: counted, and compared with what the documentation promises."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from logplayer.log import local_cluster
from logplayer.log.protocol import Info, Kind, Record
from logplayer.testing.conformance.log_check import payload
from tests.campaign import failover
from tests.campaign.outcome import Outcome, count_outcome


class Held:
    """A log with these records, whatever is wrong with them."""

    def __init__(self, *held: tuple[int, int], damage: int = 0) -> None:
        self._records = [
            Record(
                index, Kind.DATA, "p", sequence, 0, payload("p", sequence) if index != damage else bytes(200), b"", 0
            )
            for index, sequence in held
        ]

    async def info(self) -> Info:
        return Info("held", 1, max(record.index for record in self._records), 0, 0)

    async def read(self, first: int, last: int | None = None) -> AsyncIterator[list[Record]]:
        yield self._records


ACKED = {("p", 1): 1, ("p", 2): 2, ("p", 3): 3}


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (Held((1, 1), (2, 2), (3, 3), (4, 4)), (4, 3, 0, 0, 0)),
        (Held((1, 1), (3, 3)), (2, 3, 1, 0, 0)),
        (Held((1, 1), (2, 2), (3, 3), damage=2), (3, 3, 1, 0, 0)),
        (Held((1, 1), (2, 2), (3, 3), (4, 3)), (4, 3, 0, 1, 0)),
        (Held((1, 1), (2, 3), (3, 2)), (3, 3, 2, 0, 1)),
        (Held((2, 2), (1, 1), (3, 3)), (3, 3, 0, 0, 1)),
    ],
    ids=["right", "lost", "changed", "twice", "swapped", "read in the wrong order"],
)
async def test_what_is_wrong_is_counted(log: Held, found: tuple[int, ...]) -> None:
    outcome = await count_outcome(log, ACKED)  # type: ignore[arg-type]
    assert outcome == Outcome(*found)
    assert outcome.holds is (found[2:] == (0, 0, 0))


def test_bounds_on_the_failover() -> None:
    """etcd's median with every kind of kill, the death of a log server over any cluster, a frozen one over etcd."""
    kinds = ("leader", "all", "follower", "log server", "log server frozen")
    good = {kind: {"kills": 50, "median": 0.7, "worst": 1.9} for kind in kinds}
    assert failover.over_bounds("etcd", good) == []
    slow = good | {"leader": {"kills": 50, "median": 1.51, "worst": 9.0}}
    assert failover.over_bounds("etcd", slow) == ["etcd, leader: the median of 1.51 s is over 1.5 s"]
    assert failover.over_bounds("nats", slow) == []
    for kind in kinds[3:]:
        late = good | {kind: {"kills": 50, "median": 1.6, "worst": 2.01}}
        for engine in ("etcd", "nats"):
            over = (
                []
                if (engine, kind) == ("nats", failover.FROZEN)
                else [f"{engine}, {kind}: the worst of 2.01 s is over 2.0 s"]
            )
            assert failover.over_bounds(engine, late) == over


@pytest.mark.parametrize("bounds", [True, False])
def test_a_campaign_above_the_bounds_fails_if_asked(
    bounds: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def campaign(engine: str, folder: Path, kills: int) -> list[str]:
        return [f"{engine} took {kills} s"]

    monkeypatch.setattr(failover, "campaign", campaign)
    monkeypatch.setattr("sys.argv", ["failover", "--kills", "7", "--engine", "etcd", *["--bounds"] * bounds])
    monkeypatch.setattr(failover, "end_with_this_process", lambda: None)
    monkeypatch.setattr(local_cluster, "START_SECONDS", local_cluster.START_SECONDS)
    if not bounds:
        failover.main()
        return
    with pytest.raises(SystemExit) as ended:
        failover.main()
    assert ended.value.code == 1
    assert "etcd took 7 s" in capsys.readouterr().err
