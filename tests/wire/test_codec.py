"""Joined bytes are what the generated code would write, and bad bytes are a clear error."""

from __future__ import annotations

import contextlib

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from logplayer.core.entry import (
    Checkpoint,
    Decision,
    Delivery,
    ExplicitMap,
    HashMap,
    MapChanged,
    Mutation,
    Quarantined,
    QuarantineRevoked,
    RangeMap,
    Refusal,
    Repaired,
    Session,
    Takeover,
    TargetAdded,
    TargetRemoved,
)
from logplayer.core.fence import Batch, Position, TargetRefusal
from logplayer.errors import Malformed
from logplayer.wire import codec
from logplayer.wire.logplayer.v1 import entry_pb2, target_pb2
from tests.wire.wire_damage import Changes, damage, damaged

u64 = st.integers(0, 2**64 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.lists(text, max_size=4).map(tuple)
chains = st.just(b"") | st.binary(min_size=8, max_size=8)
messages = st.builds(Delivery, u64, st.binary(max_size=300), st.booleans(), chains)
positions = st.builds(Position, u64, st.builds(Session, u64, u64), st.integers(0, 2**128 - 1), text, chains)


def as_sent(batch: Batch) -> Batch:
    """The delivery that ends the range leaves its chain value to the range."""
    ends = (message._replace(chain=b"") if message.index == batch.to else message for message in batch.messages)
    return batch._replace(messages=tuple(ends))


batches = st.builds(Batch, u64, u64, st.lists(messages, max_size=8).map(tuple), chains, chains).map(as_sent)
lengthy = st.integers(100, 300).map(lambda length: b"k" * length)  # Around where a length takes a second byte.
mutations = st.builds(
    codec.encode_mutation,
    st.binary(max_size=20) | lengthy,
    st.none() | st.binary(max_size=200) | lengthy,
    text | lengthy.map(bytes.decode),
)
maps = (
    st.builds(HashMap, names)
    | st.builds(RangeMap, st.lists(st.binary(max_size=5), max_size=4).map(tuple), names)
    | st.just(ExplicitMap())
)
records: st.SearchStrategy[Decision] = (
    st.builds(Takeover, text, text)
    | st.builds(TargetAdded, text, st.none() | u64, text)
    | st.builds(TargetRemoved, text)
    | st.builds(MapChanged, maps)
    | st.builds(Quarantined, text, u64, text)
    | st.builds(QuarantineRevoked, text, u64, text)
    | st.just(Checkpoint())
    | st.builds(
        Repaired,
        st.lists(st.builds(TargetAdded, text, u64, text), max_size=3).map(tuple),
        st.lists(st.tuples(u64, maps), max_size=3).map(tuple),
        st.lists(st.tuples(text, u64), max_size=3).map(tuple),
        text,
    )
)


def joined(batch: Batch) -> bytes:
    return codec.encode_batch(batch.prev, batch.to, batch.messages, batch.prev_chain, batch.to_chain)


@given(batches)
def test_joined_bytes_parse_to_what_the_generated_code_would_send(batch: Batch) -> None:
    plain = target_pb2.ToTarget()
    plain.batch.prev, plain.batch.to = batch.prev, batch.to
    plain.batch.prev_chain, plain.batch.to_chain = batch.prev_chain, batch.to_chain
    for index, payload, quarantine, chain in batch.messages:
        plain.batch.deliveries.add(index=index, payload=payload, quarantine=quarantine, chain=chain)
    assert target_pb2.ToTarget.FromString(joined(batch)) == plain
    plain.batch.SetInParent()  # An empty batch is still a batch.
    assert codec.decode_to_target(plain.SerializeToString()) == batch


@given(batches)
def test_batches_round_trip(batch: Batch) -> None:
    assert codec.decode_to_target(joined(batch)) == batch


def read_or_not(data: bytes) -> object:
    try:
        return codec.decode_to_target(data)
    except Malformed:
        return Malformed


@given(batches, damage)
def test_a_batch_read_by_hand_is_what_the_generated_code_reads_whatever_its_bytes(
    batch: Batch, changes: Changes
) -> None:
    data = damaged(joined(batch), changes)
    assert codec.read_batch(data) in (None, read_or_not(data))


WIDE = b"\xff" * 9 + b"\x7f"  # A number of 70 bits, of which protobuf keeps 64.


@pytest.mark.parametrize(
    "body",
    [
        b"\x08\x01\x10\x09\x2a\x07\x08\x02\x12\x05abc",  # A payload that ends behind its delivery.
        b"\x08\x01\x10\x09\x2a\x07\x08\x02\x12\x01abc",  # One that ends in front of the end.
        b"\x08\x01\x10\x09\x2a\x06\x08\x02\x12\x00\x18\x00",
        b"\x08\x01\x10\x09\x2a\x0c\x08\x02\x12\x08a",  # A delivery that ends behind the batch.
        b"\x08" + WIDE + b"\x10\x09",
        b"\x08\x01\x10" + WIDE,
        b"\x08\x01\x10\x09\x2a\x0d\x08" + WIDE + b"\x12\x00",
        b"\x08\x01\x10\x09\x2a\x89\x80\x80\x80\x80\x00\x08\x02\x12\x05abcde",  # A length in six bytes.
        b"\x08\x01\x10\x09\x08\x05",  # A field twice: the last one counts.
        b"\x08\x01\x10",
        b"\x08\x01\x10\x09\x1a\x03abc",  # Chain values of other lengths.
        b"\x08\x01\x10\x09\x22\x09abcdefghi",
        b"\x08\x01\x10\x09\x22\x08abcdefgh\x1a\x08abcdefgh",  # In another order.
        b"\x08\x01\x10\x09\x2a\x0a\x08\x02\x12\x01a\x22\x03abc",
        b"\x08\x01\x10\x09\x2a\x0f\x08\x02\x12\x01a\x22\x08abcdefg",
    ],
)
def test_unusual_batches_are_left_to_the_generated_code(body: bytes) -> None:
    data = b"\x12" + codec.varint(len(body)) + body
    assert codec.read_batch(data) in (None, read_or_not(data))


def test_the_usual_batch_is_read_by_hand() -> None:
    entries = (
        Delivery(8, b"x" * 200, chain=b"at entry"),
        Delivery(9, b"", True, b"the next"),
        Delivery(300, b"", True),
    )
    batch = Batch(7, 300, entries, b"at seven", b"at 300!!")
    assert codec.read_batch(joined(batch)) == batch


def test_the_delivery_that_ends_the_range_does_not_repeat_its_chain_value() -> None:
    """Most batches are one delivery that ends its range: eight bytes less for each."""
    entries = (Delivery(8, b"a", chain=b"at entry"), Delivery(9, b"b", chain=b"at nine!"))
    batch = Batch(7, 9, entries, b"at seven", b"at nine!")
    assert codec.read_batch(joined(batch)) == as_sent(batch)
    assert joined(batch).count(b"at nine!") == 1


@pytest.mark.parametrize("chain", [b"short", b"nine bytes"[:9]])
def test_a_chain_value_of_another_length_is_not_one(chain: bytes) -> None:
    opened = target_pb2.ToPlayer(opened=target_pb2.Opened(index=1, chain=chain, version=1))
    refused = target_pb2.ToPlayer(refused=target_pb2.Refused(reason=target_pb2.DIVERGED, chain=chain))
    for answer in (opened, refused):
        with pytest.raises(Malformed, match="a chain value is 8 bytes"):
            codec.decode_to_player(answer.SerializeToString())
    with pytest.raises(Malformed, match="a chain value is 8 bytes"):
        codec.decode_position(target_pb2.PositionReply(index=1, chain=chain).SerializeToString())


@given(text, text, u64, u64)
def test_open_auth_and_questions_round_trip(target: str, log_id: str, epoch: int, term: int) -> None:
    opening = codec.Open(target, log_id, Session(epoch, term))
    assert codec.decode_to_target(codec.encode_open(*opening)) == opening
    assert codec.decode_to_target(codec.encode_auth(target)) == codec.Auth(target)
    ask = codec.AskPosition(target, epoch)
    assert codec.decode_to_target(codec.encode_ask(ask)) == ask
    assert codec.decode_to_target(codec.PROBE) == codec.Probe()


@given(positions, text)
def test_answers_round_trip(position: Position, name: str) -> None:
    assert codec.decode_to_player(codec.encode_opened(position, 1)) == codec.SessionOpened(
        position.index, position.digest, position.chain
    )
    assert codec.decode_to_player(codec.encode_ack(position)) == codec.Ack(position.index, position.digest)
    for connected, quiet_ms in ((False, 0), (True, 4321)):
        answer = codec.answer_position(name, position, connected, 1, quiet_ms)
        wanted = codec.PositionAnswer(position, connected, quiet_ms)
        assert codec.decode_to_player(codec.encode_position_answer(answer)) == wanted
        assert codec.decode_standing(answer.SerializeToString()) == wanted
    assert codec.decode_position(codec.encode_position(name, position)) == position
    assert codec.decode_to_player(codec.encode_failed(1, name)) == codec.Failed(1, name)


@given(positions)
def test_acks_by_hand_are_what_the_generated_code_reads_and_writes(position: Position) -> None:
    ack = target_pb2.Ack(index=position.index, digest=position.digest.to_bytes(16, "big"))
    plain = target_pb2.ToPlayer(ack=ack)
    assert target_pb2.ToPlayer.FromString(codec.encode_ack(position)) == plain
    assert codec.decode_to_player(plain.SerializeToString()) == codec.Ack(position.index, position.digest)


near_acks = st.builds(
    lambda index, tag, digest: b"\x08" + index + tag + digest,
    st.binary(min_size=1, max_size=10),
    st.sampled_from([b"\x12\x10", b"\x12\x0f", b"\x1a\x10", b""]),
    st.binary(min_size=14, max_size=17),
)


@given(st.binary(max_size=40) | near_acks)
def test_what_only_looks_like_an_ack_is_read_as_the_generated_code_reads_it(rest: bytes) -> None:
    likeness = b"\x12" + bytes((len(rest),)) + rest
    try:
        plain = target_pb2.ToPlayer.FromString(likeness)
    except DecodeError:
        with pytest.raises(Malformed):
            codec.decode_to_player(likeness)
        return
    if len(plain.ack.digest) in (0, 16):
        assert codec.decode_to_player(likeness) == codec.Ack(plain.ack.index, int.from_bytes(plain.ack.digest, "big"))


@given(st.sampled_from(Refusal), text, u64, u64)
def test_refusals_round_trip(reason: Refusal, detail: str, index: int, epoch: int) -> None:
    refused = TargetRefusal(reason, detail, index, epoch)
    assert codec.decode_to_player(codec.encode_refused(refused)) == refused


def test_the_last_messages_are_known_by_their_first_byte() -> None:
    assert codec.encode_refused(TargetRefusal(Refusal.FENCED, "", 0, 0))[:1] == codec.REFUSED
    assert codec.encode_failed(0, "x")[:1] == codec.FAILED


def test_refusal_numbers_are_those_of_the_proto() -> None:
    reasons = {name: value for name, value in target_pb2.Reason.items() if value}
    assert reasons == {refusal.name: refusal.value for refusal in Refusal}


@given(st.lists(mutations, max_size=8), st.data())
def test_a_split_transaction_joins_to_any_part_of_it(changes: list[Mutation], data: st.DataObject) -> None:
    payload = b"".join(mutation.encoded for mutation in changes)
    assert codec.split_transaction(payload) == tuple(changes)
    chosen = [mutation for mutation in changes if data.draw(st.booleans())]
    part = entry_pb2.Transaction.FromString(b"".join(mutation.encoded for mutation in chosen))
    assert [(m.key, m.target) for m in part.mutations] == [(m.key, m.target) for m in chosen]


@given(st.binary(max_size=12), st.binary(max_size=12), st.integers(0, 1), text, st.permutations(range(4)))
def test_a_mutation_is_read_whatever_the_order_of_its_fields(
    key: bytes, value: bytes, op: int, target: str, order: list[int]
) -> None:
    named = target.encode()
    fields = [
        b"\x0a" + codec.varint(len(key)) + key,
        b"\x12" + codec.varint(len(value)) + value,
        b"\x18" + codec.varint(op),
        b"\x22" + codec.varint(len(named)) + named,
    ]
    body = b"".join(fields[i] for i in order)
    payload = b"\x0a" + codec.varint(len(body)) + body
    assert codec.split_transaction(payload) == ((key, payload, target),)


@given(records)
def test_control_records_round_trip(record: Decision) -> None:
    assert codec.decode_control(codec.encode_control(record)) == record


@given(st.binary(max_size=60))
def test_bytes_from_anywhere_are_understood_or_malformed(data: bytes) -> None:
    for decode in (
        codec.read_batch,
        codec.decode_to_target,
        codec.decode_to_player,
        codec.decode_position,
        codec.decode_control,
        codec.decode_transaction,
        codec.split_transaction,
    ):
        with contextlib.suppress(Malformed):
            decode(data)


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (b"\x1a\x01x", "byte 0 of a transaction does not start a mutation"),
        (b"\x12\x01x", "the header at byte 0 of a transaction cannot be read"),
        (b"\x0a\x05ab", "ends inside the mutation or header at byte 0"),
        (b"\x0a", "a length ends"),
        (b"\x0a\x02\x0a\x7f", "the mutation at byte 0 of a transaction cannot be read"),
    ],
)
def test_a_broken_transaction_says_where(payload: bytes, told: str) -> None:
    with pytest.raises(Malformed, match=told):
        codec.split_transaction(payload)


def test_an_unknown_decision_is_refused_not_skipped() -> None:
    from_the_future = b"\x6a\x00"  # Field 13, which is nobody's yet.
    for payload in (b"", from_the_future, entry_pb2.Control(map_changed=entry_pb2.MapChanged()).SerializeToString()):
        with pytest.raises(Malformed, match="upgrade the player"):
            codec.decode_control(payload)


def test_an_unknown_operation_is_refused_not_taken_for_a_put() -> None:
    payload = b"\x0a\x02\x18\x07"  # A mutation whose op is 7.
    with pytest.raises(Malformed, match="operation 7"):
        codec.decode_transaction(payload)
