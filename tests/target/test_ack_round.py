"""Acks wait for each other, and not longer than a round."""

from __future__ import annotations

import asyncio

from logplayer.target.ack_round import AckRound


class Counted:
    def __init__(self) -> None:
        self.acks = 0
        self.acked = asyncio.Event()

    def ack_if_owed(self) -> None:
        self.acks += 1
        self.acked.set()

    async def until_acked(self) -> None:
        await asyncio.wait_for(self.acked.wait(), 10)
        self.acked.clear()


def test_everybody_who_joined_acks_once_in_a_round_and_again_in_the_next() -> None:
    async def run() -> None:
        acks = AckRound(0.005)
        one, two, idle = Counted(), Counted(), Counted()
        for stream in (one, two, one, two):
            acks.join(stream)
        assert one.acks == 0
        await two.until_acked()
        await one.until_acked()
        acks.join(two)
        await two.until_acked()
        assert (one.acks, two.acks, idle.acks) == (1, 2, 0)

    asyncio.run(run())
