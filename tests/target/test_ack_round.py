"""Acks wait for each other, and not longer than a round."""

from __future__ import annotations

import asyncio

from logplayer.target.ack_coalescing import AckRound


class Counted:
    def __init__(self) -> None:
        self.acks = 0
        self.acked = asyncio.Event()

    def ack_if_owed(self) -> None:
        self.acks += 1
        self.acked.set()

    async def until_acked(self) -> None:
        await asyncio.wait_for(self.acked.wait(), 120)
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


def test_while_input_is_read_no_round_begins_and_then_one_for_all() -> None:
    async def run() -> None:
        acks = AckRound(0.0)
        one, two = Counted(), Counted()
        with acks.reading():
            acks.join(one)
            await asyncio.sleep(0.02)
            assert one.acks == 0
            acks.join(two)
        await one.until_acked()
        await two.until_acked()
        with acks.reading():
            pass  # Nobody has joined.
        acks.join(two)
        await two.until_acked()
        assert (one.acks, two.acks) == (1, 2)

    asyncio.run(run())


def test_a_stream_that_joins_a_round_that_has_begun_is_in_it_although_input_is_read_meanwhile() -> None:
    async def run() -> None:
        acks = AckRound(0.01)
        one, two = Counted(), Counted()
        acks.join(one)
        with acks.reading():
            acks.join(two)
        await one.until_acked()
        await two.until_acked()
        await asyncio.sleep(0.03)
        assert (one.acks, two.acks) == (1, 1)

    asyncio.run(run())
