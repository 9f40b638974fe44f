"""Folding and splitting without Spark: what tasks do, in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logplayer.core.digest import entry_digest
from logplayer.core.entry import Delivery, Entry, ExplicitMap, HashMap, Session
from logplayer.core.fence import Batch
from logplayer.core.routing import Router, owner_of
from logplayer.errors import ConfigError, Malformed, Poison
from logplayer.log.open import LogPlace
from logplayer.log.protocol import Kind, Record
from logplayer.player.maps import map_text
from logplayer.spark.jobs import expected_state
from logplayer.spark.routes import Routes, Splitter, parse_map
from logplayer.spark.source.batches import row_batch
from logplayer.spark.source.plan import Piece
from logplayer.target.protocol import Change, decode_rows
from logplayer.target.stores.sqlite import SqliteTarget
from logplayer.wire.entries import decode_map, decode_transaction, encode_map, route_transaction
from logplayer.wire.fastpath import varint
from logplayer.wire.logplayer.v1 import entry_pb2 as pb
from tests.spark.spark_support import FileWal, transaction
from tests.spark.test_bulk import TWO, expected, some


@pytest.mark.parametrize("in_memory", [True, False])
def test_pieces_merge_to_the_content(
    wal: FileWal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: bool
) -> None:
    """In memory by Arrow, or row by row for what is too large: the same."""
    if not in_memory:
        monkeypatch.setattr(expected_state, "IN_MEMORY_BYTES_MAX", -1)
    wal.append(some(500, keys=60))
    routes = Routes(((0, TWO),))
    pieces = [Piece(1, 130), Piece(131, 300), Piece(301, 500)]
    jobs = [
        expected_state.Job(LogPlace(wal.address), piece, routes, {"a": 500, "b": 420}, str(tmp_path / "f"))
        for piece in pieces
    ]
    parts = [part for job in jobs for part in expected_state.fold_piece(job)]
    for name, through in (("a", 500), ("b", 420)):
        mine = [part for part in parts if part.target == name]
        content, digest = expected(wal, name, TWO, through)
        effects = list(expected_state.merge(mine))
        assert {effect.key: effect.value for effect in effects if effect.value is not None} == content
        assert [effect.key for effect in effects] == sorted({effect.key for effect in effects})
        assert expected_state.total_digest(mine) == digest


def test_a_splitter_splits_as_the_router_does() -> None:
    after = HashMap(("a", "b", "c"))
    routes = Routes(((0, TWO), (10, after)), starts={"a": 0, "b": 0, "c": 15})
    router = Router(TWO)
    router.change(10, after)
    payloads = [*some(200, seed=9), transaction((b"x", b"1", "b"), (b"y", None, "a"), (b"z", b"2", "elsewhere"))]
    splitter = Splitter(routes, ("a", "b", "c"))
    for payload in payloads:
        for index in (5, 10, 11, 16, 99):
            shares = splitter.split(index, payload)
            routed = router.split(Entry(index, payload), route_transaction)
            for name in "ab":
                assert shares[name].payload == routed[name] if name in routed else name not in shares
            # Up to its start a target has what the map behind the start gives it.
            routed = router.split(Entry(max(index, 16), payload), route_transaction)
            assert shares["c"].payload == routed["c"] if "c" in routed else "c" not in shares
            for share in shares.values():
                assert share.changes == decode_transaction(share.payload)


# --- What cannot be understood ---

UNKNOWN_OP = pb.Mutation(key=b"k", op=9).SerializeToString()  # type: ignore[arg-type]


def field(body: bytes) -> bytes:
    """A mutation's message as a field of a transaction."""
    return b"\x0a" + varint(len(body)) + body


def a_mutation(key: bytes, value: bytes, op: int, target: str, more: bytes) -> bytes:
    body = pb.Mutation(key=key, value=value, target=target).SerializeToString() + b"\x18" + varint(op) + more
    return field(body)


MUTATIONS = st.builds(
    a_mutation,
    st.binary(max_size=3),
    st.binary(max_size=3),  # Also a delete with a value.
    st.sampled_from([0, 1, 1, 2, 300]),
    st.sampled_from(["", "", "a", "b", "nobody"]),
    # A field that comes twice, one that is not known, and one that ends too early.
    st.sampled_from([b"", b"", b"", b"\x0a\x01z", b"\x2a\x01z", b"\x18\x01", b"\x22\x01\xff", b"\x0a\x09z"]),
)
PAYLOADS = st.lists(MUTATIONS | st.sampled_from([b"\x12\x01x", b"\x0a", b"\xff", b"\x0a\x00"]), max_size=5).map(
    b"".join
)


def as_the_target(part: bytes) -> tuple[list[tuple[bytes, bytes | None]], str]:
    """The changes that a target makes of its share of entry 7, and why it refuses it."""
    try:
        return [(row.key, row.value) for row in decode_rows(Delivery(7, part))], ""
    except Poison as poison:
        return [], str(poison)


@settings(max_examples=300, deadline=None)
@given(PAYLOADS)
def test_spark_routes_as_a_player_and_decodes_as_a_target(payload: bytes) -> None:
    try:
        routed, _ = route_transaction(payload, owner_of(TWO))
    except Malformed:
        routed = {}
    shares = Splitter(Routes(((0, TWO),)), ("a", "b")).split(7, payload)
    assert {name: share.payload for name, share in shares.items()} == {
        name: part for name, part in routed.items() if name in ("a", "b")
    }
    record = Record(7, Kind.DATA, "p", 1, 0, payload, b"", 0)
    rows = row_batch([record], Routes(((0, TWO),)), None).to_pylist()
    for name in routed:
        mine = [(row["key"], row["value"], row["op"]) for row in rows if row["target"] == name]
        changes, refused = as_the_target(routed[name])
        assert name not in shares or shares[name][1:] == (changes, refused)
        expected_rows = [(key, value, "delete" if value is None else "put") for key, value in changes]
        assert mine == ([(None, None, "malformed")] if refused else expected_rows)
    if payload and not routed:
        assert {(row["target"], row["op"]) for row in rows} <= {(None, op) for op in ("put", "delete", "malformed")}
        assert rows


def folded(wal: FileWal, tmp_path: Path, routes: Routes) -> expected_state.Folded:
    [part] = expected_state.fold_piece(
        expected_state.Job(LogPlace(wal.address), Piece(1, wal.last()), routes, {"a": 99}, str(tmp_path / "f"))
    )
    return part


def test_an_unknown_operation_is_refused_and_deletes_nothing(wal: FileWal, tmp_path: Path) -> None:
    wal.append([transaction((b"k", b"1", "a")), field(UNKNOWN_OP + b"\x22\x01a")])
    part = folded(wal, tmp_path, Routes())
    assert [effect[:3] for effect in expected_state.merge([part])] == [(b"k", 1, b"1")]
    assert part.refused == (
        (2, "entry 2 cannot be understood: a mutation has operation 9, which this version does not know"),
    )


def test_an_unknown_operation_is_malformed_for_its_own_target_in_the_source() -> None:
    payload = (
        transaction((b"k", b"1", "b"), (b"x", b"2", ""))
        + field(UNKNOWN_OP + b"\x22\x01a")
        + transaction((b"l", None, "a"))
    )
    rows = row_batch([Record(7, Kind.DATA, "p", 1, 0, payload, b"", 0)], Routes(), None).to_pylist()
    found = [(row["target"], row["key"], row["value"], row["op"]) for row in rows]
    assert found == [("b", b"k", b"1", "put"), (None, b"x", b"2", "put"), ("a", None, None, "malformed")]


def test_a_quarantined_entry_counts_in_the_digest_and_not_in_the_content(wal: FileWal, tmp_path: Path) -> None:
    payloads = [
        transaction((b"k", b"1", "a")),
        transaction((b"k", b"2", "a")),
        field(UNKNOWN_OP + b"\x22\x01a"),
        transaction((b"z", b"3", "a")),
    ]
    wal.append(payloads)
    part = folded(wal, tmp_path, Routes(quarantined={"a": frozenset((2, 3))}))
    assert [effect[:3] for effect in expected_state.merge([part])] == [(b"k", 1, b"1"), (b"z", 4, b"3")]
    assert (part.entries, part.quarantined, part.refused) == (4, (2, 3), ())
    assert part.digest == sum(entry_digest(nth, payload) for nth, payload in enumerate(payloads, 1)) % 2**128
    store = SqliteTarget(tmp_path / "a.db", "a")
    messages = tuple(Delivery(nth, payload, nth in (2, 3)) for nth, payload in enumerate(payloads, 1))
    store.apply(Change(Session(1, 1), log_id="x"))
    stood = store.apply(Change(Session(1, 1), batch=Batch(0, 4, messages)))
    store.close()
    assert stood.digest == part.digest


def test_maps_as_text() -> None:
    assert parse_map("explicit") == ExplicitMap()
    assert parse_map("hash: a, b") == TWO
    made = parse_map("range:a<g<b")
    assert (made.bounds, made.targets) == ((b"g",), ("a", "b"))  # type: ignore[union-attr]
    for text, by in (("hash[tag]:a,b", "tag"), ("hash[prefix :]:a,b", "prefix :")):
        assert parse_map(text) == HashMap(("a", "b"), by) == decode_map(encode_map(parse_map(text)))
        assert map_text(parse_map(text)) == text
    for wrong in ("hash", "range:a<z<b<c<d", "mod:3", "hash:a,,b", "hash[tags]:a", "hash[]:a", "hash[tag]:"):
        with pytest.raises(ConfigError):
            parse_map(wrong)
