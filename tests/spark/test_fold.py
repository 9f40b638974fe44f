"""Folding and splitting without Spark: what tasks do, in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from spark_support import FileWal, transaction
from test_bulk import TWO, expected, some

from logplayer.core.entry import Entry, ExplicitMap, HashMap
from logplayer.core.route import Router
from logplayer.errors import ConfigError
from logplayer.spark import fold
from logplayer.spark.plan import Piece
from logplayer.spark.routes import Routes, Splitter, parse_map
from logplayer.wire.entries import decode_transaction, split_transaction


@pytest.mark.parametrize("in_memory", [True, False])
def test_pieces_merge_to_the_content(
    wal: FileWal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: bool
) -> None:
    """In memory by Arrow, or row by row for what is too large: the same."""
    if not in_memory:
        monkeypatch.setattr(fold, "IN_MEMORY_BYTES_MAX", -1)
    wal.append(some(500, keys=60))
    routes = Routes(((0, TWO),))
    pieces = [Piece(1, 130), Piece(131, 300), Piece(301, 500)]
    jobs = [fold.Job(wal.address, piece, routes, {"a": 500, "b": 420}, str(tmp_path / "f")) for piece in pieces]
    parts = [part for job in jobs for part in fold.fold_piece(job)]
    for name, through in (("a", 500), ("b", 420)):
        mine = [part for part in parts if part.target == name]
        content, digest = expected(wal, name, TWO, through)
        effects = list(fold.merge(mine))
        assert {effect.key: effect.value for effect in effects if effect.value is not None} == content
        assert [effect.key for effect in effects] == sorted({effect.key for effect in effects})
        assert fold.total_digest(mine) == digest


def test_a_splitter_splits_as_the_router_does() -> None:
    after = HashMap(("a", "b", "c"))
    routes = Routes(((0, TWO), (10, after)), starts={"a": 0, "b": 0, "c": 15})
    router = Router(TWO)
    router.change(10, after)
    payloads = [*some(200, seed=9), transaction((b"x", b"1", "b"), (b"y", None, "a"), (b"z", b"2", "elsewhere"))]
    splitter = Splitter(routes, ("a", "b", "c"))
    for payload in payloads:
        for index in (5, 10, 11, 16, 99):
            mutations = split_transaction(payload)
            shares = splitter.split(index, payload)
            routed = router.split(Entry(index, mutations))
            for name in "ab":
                assert shares[name][0] == routed[name] if name in routed else name not in shares
            # Up to its start a target has what the map behind the start gives it.
            routed = router.split(Entry(max(index, 16), mutations))
            assert shares.get("c", (None,))[0] == routed.get("c")
            for part, changes in shares.values():
                assert changes == decode_transaction(part)


def test_maps_as_text() -> None:
    assert parse_map("explicit") == ExplicitMap()
    assert parse_map("hash: a, b") == TWO
    made = parse_map("range:a<g<b")
    assert (made.bounds, made.targets) == ((b"g",), ("a", "b"))  # type: ignore[union-attr]
    for wrong in ("hash", "range:a<z<b<c<d", "mod:3", "hash:a,,b"):
        with pytest.raises(ConfigError):
            parse_map(wrong)
