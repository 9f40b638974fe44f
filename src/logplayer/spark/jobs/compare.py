"""One store against what the log left for it, key by key, in one snapshot of the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote

from logplayer.core import digest as digests
from logplayer.core.fence import Position
from logplayer.errors import ConfigError, LogError
from logplayer.log.open import LogPlace
from logplayer.spark import event_loop
from logplayer.spark.jobs import expected_state
from logplayer.spark.jobs.compare_tables import compare_tables
from logplayer.spark.jobs.verdict import DIFFERENCES_MAX, AuditVerdict, Difference
from logplayer.spark.routes import Routes, TargetKind, load_routes
from logplayer.spark.source.plan import Piece
from logplayer.target.places import without_secrets
from logplayer.target.protocol import Store
from logplayer.target.stores.open import STORES, TABLE_STORES, open_store
from logplayer.target.stores.tables.base import TableStore
from logplayer.target.stores.tables.comparison import TableComparison
from logplayer.target.stores.tables.mapping import NO_MAPPING, TableMapping


class StoreAddress(NamedTuple):
    """A store that can be read where the tasks run: ``sqlite:/path``, ``postgres:URL``, ..."""

    kind: str
    place: str
    schema: str = ""  # Of stores of tables: where they are, and how they are named there.
    mapping: TableMapping = NO_MAPPING

    @property
    def has_tables(self) -> bool:
        return self.kind in TABLE_STORES

    def open(self, name: str) -> Store:
        """The store, for reading."""
        given = {"path" if STORES[self.kind][2] == "path" else "url": self.place}
        schema = self.schema if self.kind == "postgres-tables" else ""
        return open_store(self.kind, name, read_only=True, schema=schema, **given)

    @classmethod
    def parse(cls, text: str) -> StoreAddress:
        kind, colon, place = text.partition(":")
        if not colon or kind not in STORES or not place:
            said = repr(text) if "@" not in text else repr(without_secrets(text))
            raise ConfigError(f"{said} is not a store; write sqlite:/var/lib/a.db, or one of {', '.join(STORES)}")
        return cls(kind, place)


class Snapshot:
    """A store's position and content as of one moment."""

    def __init__(self, at: StoreAddress, name: str) -> None:
        self._sqlite: sqlite3.Connection | None = None
        self._store = at.open(name)
        if at.kind == "sqlite":
            self._sqlite = sqlite3.connect(f"file:{quote(at.place)}?mode=ro", uri=True, isolation_level=None)
            self._sqlite.execute("BEGIN")

    def position(self) -> Position:
        if self._sqlite is None:
            return self._store.position()
        row = self._sqlite.execute("SELECT log_index, digest, log_id, chain FROM position").fetchone()
        if row is None:
            return Position()
        return Position(row[0], digest=digests.from_bytes(row[1]), log_id=row[2], chain=bytes(row[3]))

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Sorted by key."""
        if self._sqlite is None:
            return iter(sorted(self._store.scan()))
        return iter(self._sqlite.execute("SELECT key, value FROM data ORDER BY key"))

    def quarantined(self) -> set[int]:
        return {index for index, _ in self._store.quarantine()}

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        if self._sqlite is not None:
            self._sqlite.close()
        self._store.close()


class ComparedStore(NamedTuple):
    """One store to compare, and what the log left for it up to ``through``."""

    name: str
    at: StoreAddress
    log: LogPlace
    routes: Routes
    parts: list[expected_state.Folded]
    folder: str
    through: int

    @property
    def kinds(self) -> dict[str, TargetKind]:
        return {self.name: self.at.mapping} if self.at.has_tables else {}

    def parts_up_to(self, index: int) -> list[expected_state.Folded]:
        """The store may have moved on meanwhile: what came since then is read here."""
        if index <= self.through:
            return self.parts
        with event_loop.opened(self.log) as opened:  # With what was decided since then.
            routes = event_loop.run(load_routes(opened, self.routes.maps[0][1]))
        piece = Piece(self.through + 1, index)
        return self.parts + expected_state.fold_piece(
            expected_state.Job(self.log, piece, routes, {self.name: index}, self.folder, self.kinds)
        )


def compare_store(store: ComparedStore) -> AuditVerdict:
    """In a task: one store, in one snapshot of it, against what the log left for it."""
    if not store.at.has_tables:
        with Snapshot(store.at, store.name) as snapshot:
            return _judged(store, snapshot.position(), snapshot.quarantined, partial(_compare_keys, snapshot))
    opened = store.at.open(store.name)
    assert isinstance(opened, TableStore)
    try:
        with TableComparison(opened) as tables:
            return _judged(store, tables.position(), tables.quarantined, partial(compare_tables, tables))
    except opened.driver_error as error:
        verdict = AuditVerdict(store.name, store.through)
        reason = opened._reason(error, None)
        verdict.leave(
            f"{opened.product} cannot compare its rows: {reason}; look at the rights of its user and the schema"
        )
        return verdict
    finally:
        opened.close()


def _judged(
    store: ComparedStore,
    stood: Position,
    quarantined: Callable[[], set[int]],
    compare: Callable[[list[expected_state.Folded], AuditVerdict], None],
) -> AuditVerdict:
    """The verdict on a store that has this position."""
    try:
        parts = store.parts_up_to(stood.index)
    except LogError as error:
        verdict = AuditVerdict(store.name, stood.index)
        verdict.leave(error)
        return verdict
    verdict = AuditVerdict(
        store.name, stood.index, stood.digest, expected_state.total_digest(parts), content_checked=True
    )
    verdict.entries = sum(part.entries for part in parts)
    compare(parts, verdict)
    aside = {index for part in parts for index in part.quarantined}
    for index in sorted(aside ^ quarantined()):
        what = "should be in quarantine and is not" if index in aside else "is in quarantine without a decision"
        verdict.add([Difference(index, b"", what)])
    verdict.add(refused_entries(parts))
    return verdict


def _compare_keys(snapshot: Snapshot, parts: list[expected_state.Folded], verdict: AuditVerdict) -> None:
    """Find the keys that are not as the log says."""
    found: list[Difference] = []
    for difference in _differences(expected_state.merge(parts), snapshot.rows(), verdict):
        verdict.differing += 1
        found.append(difference)
        if len(found) > 4 * DIFFERENCES_MAX:
            found = sorted(found)[:DIFFERENCES_MAX]
    verdict.differences = sorted(found)[:DIFFERENCES_MAX]


def _differences(
    effects: Iterator[expected_state.MutationEffect], rows: Iterator[tuple[bytes, bytes]], verdict: AuditVerdict
) -> Iterator[Difference]:
    """Both sorted by key, walked side by side. What is not bytes was never written by a target."""
    row = next(rows, None)
    for key, index, value in effects:
        while row is not None and (not isinstance(row[0], bytes) or row[0] < key):
            yield _strange(row)
            row = next(rows, None)
        actual = row[1] if row is not None and row[0] == key else None
        if actual is not None:
            row = next(rows, None)
        verdict.keys += value is not None
        if actual != value:
            wrong = "was deleted and is there" if value is None else "has another value"
            what = "is missing" if actual is None else wrong
            yield Difference(index, key, what)
    while row is not None:
        yield _strange(row)
        row = next(rows, None)


def _strange(row: tuple[Any, Any]) -> Difference:
    key = row[0] if isinstance(row[0], bytes) else repr(row[0]).encode()
    return Difference(0, key, "is there, and no entry wrote it")


def refused_entries(parts: Collection[expected_state.Folded]) -> list[Difference]:
    """Entries that no target of ours takes: one that has a later index has made something of them that is not known."""
    return [
        Difference(index, b"", f"should block this target, and is not in quarantine: {why}")
        for part in parts
        for index, why in part.refused
    ]
