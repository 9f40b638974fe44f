"""When and in which order the members of an etcd cluster are compacted and defragmented, by a link that records."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from logplayer.errors import LogFull
from logplayer.log.etcd import api
from logplayer.log.etcd import etcd_pb2 as pb
from logplayer.log.etcd import keeper as keepers
from logplayer.log.etcd.api import EtcdAway
from logplayer.log.etcd.keeper import EtcdKeeper
from logplayer.log.etcd.keys import Keys
from logplayer.testing.conformance.log_check import entry
from logplayer.wire.security import NONE

QUOTA = 1000


class Member:
    """A member with a file of so many bytes, of which so many are in use."""

    def __init__(self, number: int, file: int, in_use: int) -> None:
        self.host = f"n{number}"
        self.number = number
        self.file = file
        self.in_use = in_use


class RecordedLink:
    """Stands for ``EtcdLink``: three members, the first of which leads; notes what is asked of which member."""

    where = "etcd://n1,n2,n3/x"
    security = NONE
    keys = Keys("x")
    revision = 7

    def __init__(self, *members: Member, away: str = "") -> None:
        self.members = members
        self.asked: list[tuple[str, str]] = []
        self.compacted: list[int] = []
        self._away = away
        self._busy = 0

    async def statuses(self) -> list[tuple[Member, pb.StatusResponse]]:
        return [
            (
                one,
                pb.StatusResponse(
                    header=pb.ResponseHeader(member_id=one.number),
                    leader=self.members[0].number,
                    db_size=one.file,
                    db_size_in_use=one.in_use,
                    db_size_quota=QUOTA,
                ),
            )
            for one in self.members
        ]

    async def head(self) -> tuple[None, int]:
        return None, self.revision

    async def once(self, method: Any, request: Any, seconds: float, member: Member | None = None) -> Any:
        if method is api.TXN:
            return
        if method is api.COMPACT:
            if self._away:
                raise EtcdAway("it does not answer")
            self.compacted.append(request.revision)
            return
        assert method is api.DEFRAGMENT
        assert member is not None
        assert not self._busy, "two members are closed at the same time"
        self.asked.append(("defragment", member.host))
        self._busy += 1
        await asyncio.sleep(0.01)
        self._busy -= 1
        if member.host == self._away:
            raise EtcdAway("it does not answer")
        member.file = member.in_use


def cluster(*rooms: tuple[int, int], away: str = "") -> tuple[RecordedLink, EtcdKeeper]:
    link = RecordedLink(*(Member(nth, *room) for nth, room in enumerate(rooms, 1)), away=away)
    return link, EtcdKeeper(link)  # type: ignore[arg-type]


@pytest.mark.parametrize("away", ["", "n2"])
async def test_one_member_after_the_other_and_the_leader_last(away: str) -> None:
    """Also if two ask for it at once, and if one of the members does not answer."""
    link, keeper = cluster((900, 100), (900, 100), (900, 100), away=away)
    await asyncio.gather(keeper.defragment(), keeper.defragment())
    assert [host for _, host in link.asked] == ["n2", "n3", "n1"] * 2
    assert [member.file for member in link.members] == [100, 900 if away else 100, 100]


async def test_by_policy_only_where_it_is_worth_it() -> None:
    """A file over a quarter of the quota, of which less than half is in use."""
    link, keeper = cluster((900, 100), (900, 800), (400, 100))
    await keeper.look()
    await keeper._defragment_if_worth_it()
    assert link.asked == [], "the fullest member is not worth it"
    link.members[1].in_use = 200
    await keeper.look()
    await keeper._defragment_if_worth_it()
    assert [host for _, host in link.asked] == ["n2", "n3", "n1"]
    await keeper._defragment_if_worth_it()
    assert len(link.asked) == 3, "it was done"


async def test_a_member_that_is_not_worth_it_stays_open() -> None:
    link, keeper = cluster((900, 100), (240, 100), (900, 100))
    await keeper.look()
    await keeper._defragment_if_worth_it()
    assert [host for _, host in link.asked] == ["n3", "n1"]


async def test_the_end_compacts_what_was_trimmed() -> None:
    """``logplayer log trim`` appends nothing, and ends at once."""
    link, keeper = cluster((400, 300))
    await keeper.close()
    assert link.compacted == []
    link, keeper = cluster((400, 300))
    await keeper.trimmed()
    await keeper.close()
    assert link.compacted == [7]


async def test_a_compaction_that_fails_is_done_later() -> None:
    link, keeper = cluster((400, 300), away="n1")
    await keeper.trimmed()
    link.revision = 9
    await keeper._round()
    await keeper._round()
    link._away = ""
    await keeper._round()
    assert link.compacted == [9]
    await keeper.close()
    assert link.compacted == [9]


async def test_a_full_log_compacts_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each append that it refuses."""
    monkeypatch.setattr(keepers, "COMMIT_SECONDS", 0.001)
    monkeypatch.setattr(keepers, "SETTLE_SECONDS", 0.002)
    link, keeper = cluster((900, 900))
    for _ in range(5):
        with pytest.raises(LogFull):
            await keeper.require_room([entry("p", 1)])
    assert link.compacted == [7]
    keeper._searched_at -= keepers.SEARCH_SECONDS
    with pytest.raises(LogFull):
        await keeper.require_room([entry("p", 1)])
    assert link.compacted == [7, 7]
    await keeper.close()


async def test_a_full_log_asks_for_the_quotas_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _, keeper = cluster((900, 900))
    forgotten = Mock()
    monkeypatch.setattr(keeper._quotas, "forget", forgotten)
    monkeypatch.setattr(keeper, "_reclaim", AsyncMock())
    for _ in range(3):
        with pytest.raises(LogFull):
            await keeper.require_room([entry("p", 1)])
    assert forgotten.call_count == 1
