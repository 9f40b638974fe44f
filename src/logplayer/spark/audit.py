"""``logplayer audit``: recompute from the log what every target must hold, compare, and name what differs.

1. Where each target stands is read: from its store, in one snapshot with its content, or from its server.
2. Tasks fold the log (and its archive) up to there: digests and effects of each target.
3. Each store's content is compared with the effects by key, side by side.
4. A digest that differs is explained: if the difference is the digest of one single entry, that entry was applied twice
   or not at all, which the content alone need not show.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from logplayer.core import digest as digests
from logplayer.core.digest import entry_digest
from logplayer.core.fence import Position
from logplayer.errors import ConfigError, Trimmed
from logplayer.log.protocol import Kind
from logplayer.spark import fold, loop
from logplayer.spark.archive import open_archive
from logplayer.spark.jobs import run_tasks
from logplayer.spark.plan import Piece, plan
from logplayer.spark.routes import Routes, Splitter, load_routes
from logplayer.target.client import position
from logplayer.target.stores import STORES, open_store
from logplayer.wire.security import NONE, Security

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from logplayer.core.entry import ShardMap

_MASK = (1 << 128) - 1
DIFFERENCES_MAX = 20


class StoreAddress(NamedTuple):
    """A store that can be read where the tasks run: ``sqlite:/path``, ``postgres:URL``, ..."""

    kind: str
    place: str

    @classmethod
    def parse(cls, text: str) -> StoreAddress:
        kind, colon, place = text.partition(":")
        if not colon or kind not in STORES or not place:
            raise ConfigError(f"{text!r} is no store; write sqlite:/var/lib/a.db, or one of {', '.join(STORES)}")
        return cls(kind, place)


class Difference(NamedTuple):
    """One key that is not as the log says. ``index`` is the entry that the target should show and does not."""

    index: int  # type: ignore[assignment]  # Hides tuple's own method.
    key: bytes
    what: str


@dataclass
class Verdict:
    """What the audit found about one target."""

    target: str
    index: int
    digest: int = 0
    expected: int = 0  # The digest that the log leads to.
    content_checked: bool = False
    entries: int = 0
    keys: int = 0
    differences: list[Difference] = field(default_factory=list)  # The first ones, by entry.
    differing: int = 0
    notes: list[str] = field(default_factory=list)
    problem: str = ""

    @property
    def right(self) -> bool:
        return self.digest == self.expected and not self.differing and not self.problem

    @property
    def first(self) -> int | None:
        """The first entry that differs, as far as it can be told: a row that no entry wrote has none."""
        return next((difference.index for difference in self.differences if difference.index), None)


def audit(
    spark: SparkSession,
    log: str,
    *,
    addresses: Mapping[str, str] | None = None,
    stores: Mapping[str, str] | None = None,
    archive: str = "",
    first_map: ShardMap | None = None,
    security: Security = NONE,
    show: bool = True,
) -> list[Verdict]:
    """One verdict for each target that is named, or, with none, for each member whose address the log knows."""
    with loop.opened(log) as opened:
        info = loop.run(opened.info())
        routes = loop.run(load_routes(opened, first_map))
    named = {name: StoreAddress.parse(text) for name, text in (stores or {}).items()}
    where = dict(addresses or {})
    if not named and not where:
        where = {name: address for name, address in routes.addresses.items() if address}
    if not named and not where:
        raise ConfigError("the log knows no target's address: say --target NAME=ADDRESS or --store NAME=sqlite:PATH")
    stood, verdicts = _positions(where, named, security)
    for name, found in list(stood.items()):
        if found.log_id and found.log_id != info.log_id:
            verdicts[name].problem = f"it was filled from log {found.log_id}, not from {info.log_id}"
            del stood[name]
        elif found.index > info.last:
            verdicts[name].problem = f"it stands at {found.index}, behind the end of the log at {info.last}"
            del stood[name]
    through = {name: found.index for name, found in stood.items() if found.index}
    kept = open_archive(archive, info.log_id) if archive else None
    begin = kept.begin if kept else info.first
    if begin > 1 and any(through.values()):
        raise Trimmed(f"entries before {begin} are gone: an audit needs all of them, so name the archive", begin)
    pieces = plan(info, 1, max(through.values()), kept, 32 << 20, 8) if through else []
    with tempfile.TemporaryDirectory(prefix="logplayer-audit-") as folder:
        jobs = [fold.Job(log, piece, routes, through, folder) for piece in pieces]
        folded = list(chain(*run_tasks(spark, "read the log", jobs, fold.fold_piece, show=show)))
        by_target = {name: [part for part in folded if part.target == name] for name in stood}
        compare = [
            Store(name, named[name], log, routes, by_target[name], folder, stood[name].index)
            for name in stood
            if name in named
        ]
        for verdict in run_tasks(spark, "compare", compare, _compare, show=show):
            verdicts[verdict.target] = verdict
    for name, found in stood.items():
        verdict = verdicts[name]
        if name not in named:
            verdict.digest, verdict.expected = found.digest, fold.total_digest(by_target[name])
            verdict.entries = sum(part.entries for part in by_target[name])
        if verdict.digest != verdict.expected:
            _explain(spark, log, routes, pieces, verdict, show)
    return list(verdicts.values())


def _positions(
    where: Mapping[str, str], named: Mapping[str, StoreAddress], security: Security
) -> tuple[dict[str, Position], dict[str, Verdict]]:
    stood: dict[str, Position] = {}
    verdicts: dict[str, Verdict] = {}
    for name in sorted({*where, *named}):
        if name in named:
            with _reading(named[name], name) as store:
                stood[name] = store.position()
        else:
            stood[name] = loop.run(position(where[name], name, security=security))
        verdicts[name] = Verdict(name, stood[name].index)
    return stood, verdicts


class Snapshot:
    """A store's position and content as of one moment."""

    def __init__(self, at: StoreAddress, name: str) -> None:
        self._sqlite: sqlite3.Connection | None = None
        given = {"path" if STORES[at.kind][2] == "path" else "url": at.place}
        self._store = open_store(at.kind, name, read_only=True, **given)
        if at.kind == "sqlite":
            self._sqlite = sqlite3.connect(f"file:{quote(at.place)}?mode=ro", uri=True, isolation_level=None)
            self._sqlite.execute("BEGIN")

    def position(self) -> Position:
        if self._sqlite is None:
            return self._store.position()
        row = self._sqlite.execute("SELECT log_index, digest, log_id FROM position").fetchone()
        return Position(row[0], digest=digests.from_bytes(row[1]), log_id=row[2]) if row else Position()

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


_reading = Snapshot


class Store(NamedTuple):
    """One store to compare, and what the log left for it up to ``through``."""

    name: str
    at: StoreAddress
    log: str
    routes: Routes
    parts: list[fold.Folded]
    folder: str
    through: int

    def parts_up_to(self, index: int) -> list[fold.Folded]:
        """The store may have moved on meanwhile: what came since then is read here."""
        if index <= self.through:
            return self.parts
        piece = Piece(self.through + 1, index)
        return self.parts + fold.fold_piece(fold.Job(self.log, piece, self.routes, {self.name: index}, self.folder))


def _compare(store: Store) -> Verdict:
    """In a task: one store, in one snapshot of it, against what the log left for it."""
    with _reading(store.at, store.name) as snapshot:
        stood = snapshot.position()
        parts = store.parts_up_to(stood.index)
        verdict = Verdict(store.name, stood.index, stood.digest, fold.total_digest(parts), content_checked=True)
        verdict.entries = sum(part.entries for part in parts)
        found: list[Difference] = []
        for difference in _differences(fold.merge(parts), snapshot.rows(), verdict):
            verdict.differing += 1
            found.append(difference)
            if len(found) > 4 * DIFFERENCES_MAX:
                found = sorted(found)[:DIFFERENCES_MAX]
        verdict.differences = sorted(found)[:DIFFERENCES_MAX]
        aside = {index for part in parts for index in part.quarantined}
        for index in sorted(aside ^ snapshot.quarantined()):
            what = "should be in quarantine and is not" if index in aside else "is in quarantine without a decision"
            verdict.differing += 1
            verdict.differences = sorted([*verdict.differences, Difference(index, b"", what)])[:DIFFERENCES_MAX]
    return verdict


def _differences(
    effects: Iterator[fold.Effect], rows: Iterator[tuple[bytes, bytes]], verdict: Verdict
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


def _explain(spark: SparkSession, log: str, routes: Routes, pieces: list[Piece], verdict: Verdict, show: bool) -> None:
    """Find the one entry whose digest is the difference, if there is one."""
    more, less = (verdict.digest - verdict.expected) & _MASK, (verdict.expected - verdict.digest) & _MASK
    wanted = {more: "was applied twice", less: "was not applied"}
    search = partial(_search, log, routes, verdict.target, frozenset(wanted))
    hits = [hit for part in run_tasks(spark, "search", pieces, search, show=show) for hit in part]
    if hits:
        index, value = min(hits)
        verdict.notes.append(f"entry {index} {wanted[value]}: its digest is just the difference")
        verdict.differences = [Difference(index, b"", wanted[value]), *verdict.differences][:DIFFERENCES_MAX]
        verdict.differing += 1
    else:
        verdict.notes.append("the digest differs by more than one entry, or by an entry that is not in the log")


def _search(log: str, routes: Routes, target: str, wanted: Collection[int], piece: Piece) -> list[tuple[int, int]]:
    """In a task: the entries of the piece whose digest is one of those."""
    hits = []
    split = Splitter(routes, (target,)).split
    for records in piece.records(log):
        for record in records:
            if record.kind == Kind.DATA:
                for payload, _ in split(record.index, record.payload).values():
                    value = entry_digest(record.index, payload)
                    if value in wanted:
                        hits.append((record.index, value))
    return hits
