"""When and in which order the members of an etcd cluster are compacted and defragmented, by a link that records."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from logplayer.log.etcd import api
from logplayer.log.etcd import etcd_pb2 as pb
from logplayer.log.etcd.api import EtcdAway
from logplayer.log.etcd.keeper import EtcdKeeper
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

    def __init__(self, *members: Member, away: str = "") -> None:
        self.members = members
        self.asked: list[tuple[str, str]] = []
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

    async def once(self, method: Any, request: Any, seconds: float, member: Member | None = None) -> Any:
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
