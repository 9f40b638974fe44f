"""What a log on Kafka notes of its trims, without a broker: the topic of its map is a list."""

from __future__ import annotations

from typing import Any

from logplayer.log.kafka.sequence_map import TRIMS_KEPT, KafkaLogState, TrimMark
from logplayer.log.protocol import Kind


class MapInMemory:
    """The part of a link that a block needs. Record 0 is the log's id."""

    where = "kafka://nowhere/t"

    def __init__(self) -> None:
        self.records = [b""]

    def write_map(self, value: bytes) -> int:
        self.records.append(value)
        return len(self.records) - 1

    def map_record(self, number: int) -> bytes:
        return self.records[number]

    def bounds(self, topic: str = "") -> tuple[int, int]:
        return (0, len(self.records)) if topic else (0, 0)

    map_topic = "map"

    def patiently(self, call: Any) -> Any:
        return call()


def value(index: int) -> bytes:
    return b"chain%03d" % index


async def test_a_trim_point_keeps_its_chain_value_also_for_who_opens_the_log_later() -> None:
    link: Any = MapInMemory()
    state = KafkaLogState(link)
    for index in range(1, 11):
        state.learn(index - 1, "p", index, Kind.DATA, b"12345678", value(index))
    assert state.trimmed_chain(0) == b""
    await state.write_block(TrimMark(3, value(3)))
    await state.write_block(TrimMark(7, value(7)))
    again = KafkaLogState(link)
    await again._load()
    for known in (state, again):
        assert known.chain == value(10)
        assert known.trimmed_chain(7) == value(7)
        assert known.trimmed_chain(3) == value(3), "the second trim was noted, and may not have happened"
    for index in range(11, 30):
        again.learn(index - 1, "p", index, Kind.DATA, b"12345678", value(index))
        await again.write_block()
    assert again.trimmed_chain(7) == value(7), "a block without a trim keeps the trims before it"


async def test_as_many_trims_are_kept_as_may_not_have_happened() -> None:
    link: Any = MapInMemory()
    state = KafkaLogState(link)
    for index in range(1, 21):
        state.learn(index - 1, "p", index, Kind.DATA, b"12345678", value(index))
        await state.write_block(TrimMark(index, value(index)))
    kept = [index for index in range(1, 21) if state.trimmed_chain(index)]
    assert kept == list(range(21 - TRIMS_KEPT, 21))
