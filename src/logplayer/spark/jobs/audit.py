"""``logplayer audit``: recompute from the log what every target must hold, compare, and name what differs.

1. The index that each target has is read: from its store, in one snapshot with its content, or from its server.
2. Tasks fold the log (and its archive) up to it: digests and effects of each target.
3. Each store's content is compared with the effects by key, side by side.
4. A digest that differs is explained: if the difference is the digest of one single entry, that entry was applied twice
   or not at all, which the content alone need not show.

The first step needs no Spark: :func:`prepare` does it, so that a mistake is said at once. A target that cannot be
judged, because it does not answer or because the log is damaged before its index, does not keep the others from it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from logplayer.core.digest import entry_digest
from logplayer.core.fence import Position
from logplayer.errors import ConfigError, CorruptEntry, LogPlayerError, Trimmed, UserError
from logplayer.log.chain import chain_at
from logplayer.log.open import LogPlace
from logplayer.log.protocol import Info, Kind
from logplayer.spark import event_loop
from logplayer.spark.folders import scratch as scratch_folder
from logplayer.spark.jobs import expected_state
from logplayer.spark.jobs.compare import ComparedStore, Snapshot, StoreAddress, compare_store, refused_entries
from logplayer.spark.jobs.verdict import DIFFERENCES_MAX, AuditVerdict, Difference
from logplayer.spark.progress import ShowProgress, run_tasks, unseen
from logplayer.spark.routes import ANY, Routes, Splitter, TargetKind, load_routes
from logplayer.spark.source.archive import Archive, open_archive
from logplayer.spark.source.plan import Piece, plan
from logplayer.target.client import position
from logplayer.target.stores.tables.mapping import NO_MAPPING, TableMapping
from logplayer.wire.addresses import parse as parse_address
from logplayer.wire.security import NONE, Security

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from logplayer.core.entry import ShardMap

_MASK = (1 << 128) - 1


@dataclass
class Prepared:
    """What is known before Spark is needed. ``stood`` has the targets that can be judged."""

    log: LogPlace
    info: Info
    routes: Routes
    stores: dict[str, StoreAddress]
    archive: Archive | None
    stood: dict[str, Position]
    verdicts: dict[str, AuditVerdict]

    @property
    def through(self) -> dict[str, int]:
        return {name: found.index for name, found in self.stood.items() if found.index}

    @property
    def kinds(self) -> dict[str, TargetKind]:
        """What is not known to hold keys and values: stores of tables, and targets known by their address only."""
        stores = self.stores
        tables: dict[str, TargetKind] = {name: at.mapping for name, at in stores.items() if at.has_tables}
        return tables | {name: ANY for name in self.stood if name not in stores}

    def pieces(self) -> list[Piece]:
        through = self.through
        return plan(self.info, 1, max(through.values()), self.archive, 32 << 20, 8) if through else []


def audit(
    spark: SparkSession,
    log: str,
    *,
    addresses: Mapping[str, str] | None = None,
    stores: Mapping[str, str] | None = None,
    archive: str = "",
    first_map: ShardMap | None = None,
    security: Security = NONE,
    schema: str = "",
    mapping: TableMapping = NO_MAPPING,
    scratch: str = "",
    show: ShowProgress = unseen,
) -> list[AuditVerdict]:
    """One verdict for each target that is named, or, with none, for each member whose address the log knows.

    ``schema`` and ``mapping`` are those of all stores of tables among them.
    """
    prepared = prepare(
        log,
        addresses=addresses,
        stores=stores,
        archive=archive,
        first_map=first_map,
        security=security,
        schema=schema,
        mapping=mapping,
    )
    return judge(spark, prepared, scratch=scratch, show=show)


def prepare(
    log: str,
    *,
    addresses: Mapping[str, str] | None = None,
    stores: Mapping[str, str] | None = None,
    archive: str = "",
    first_map: ShardMap | None = None,
    security: Security = NONE,
    schema: str = "",
    mapping: TableMapping = NO_MAPPING,
) -> Prepared:
    """Look at the log, the archive and the targets. Raises if there is nothing that could be judged."""
    named = {
        name: StoreAddress.parse(text)._replace(schema=schema, mapping=mapping.in_schema(schema))
        for name, text in (stores or {}).items()
    }
    where = dict(addresses or {})
    for address in where.values():
        parse_address(address)
    place = LogPlace(log, security)
    with event_loop.opened(place) as opened:
        info = event_loop.run(opened.info())
        routes = event_loop.run(load_routes(opened, first_map))
    if not named and not where:
        where = {name: address for name, address in routes.addresses.items() if address}
    if not named and not where:
        raise ConfigError("the log knows no target's address: give --target NAME=ADDRESS or --store NAME=sqlite:PATH")
    kept = open_archive(archive, info.log_id) if archive else None
    stood, verdicts = _positions(where, named, security)
    with event_loop.opened(place) as opened:
        # The log may have grown meanwhile, by entries and by decisions: what a target has now is in what it says now.
        info = event_loop.run(opened.info())
        routes = event_loop.run(load_routes(opened, first_map))
        values = {name: event_loop.run(chain_at(opened, found.index)) for name, found in stood.items()}
    for name, found in list(stood.items()):
        verdicts[name].problem = _problem(found, info, values[name])
        if verdicts[name].problem:
            del stood[name]
    prepared = Prepared(place, info, routes, named, kept, stood, verdicts)
    begin = kept.begin if kept else info.first
    if begin > 1 and prepared.through:
        raise Trimmed(
            f"entries up to {begin - 1} were trimmed, and an audit reads the log from its first entry on: "
            "give the archive that holds them with --archive",
            begin,
        )
    prepared.pieces()  # It says what is neither in the log nor in its archive.
    return prepared


def _problem(found: Position, info: Info, value: bytes | None) -> str:
    """Why a target that has this index cannot be compared with the log; empty if it can."""
    if found.log_id and found.log_id != info.log_id:
        return f"it was filled from log {found.log_id}, and this is log {info.log_id}: audit it with its own log"
    if found.index > info.last:
        return (
            f"its index {found.index} is beyond the log's end ({info.last}): the log has lost entries or was restored "
            "from an older backup"
        )
    if value is not None and value != found.chain:
        return (
            f"what it has up to index {found.index} is not what the log has up to there (DIVERGED): the log was "
            "restored from an older backup, or lost entries"
        )
    return ""


def judge(
    spark: SparkSession, prepared: Prepared, *, scratch: str = "", show: ShowProgress = unseen
) -> list[AuditVerdict]:
    """Read the log, compare, and explain what differs. ``scratch`` is for temporary files that all executors reach."""
    stood, verdicts, routes, pieces = prepared.stood, prepared.verdicts, prepared.routes, prepared.pieces()
    with scratch_folder(scratch, "audit") as folder:
        through, kinds = prepared.through, prepared.kinds
        jobs = [expected_state.Job(prepared.log, piece, routes, through, folder, kinds) for piece in pieces]
        folded, damage = _folded(run_tasks(spark, "read the log", jobs, fold_readable, show=show))
        for name in [name for name in stood if damage is not None and stood[name].index >= damage.index]:
            assert damage is not None
            verdicts[name].leave(damage)
            del stood[name]
        by_target = {name: [part for part in folded if part.target == name] for name in stood}
        compare = [
            ComparedStore(name, prepared.stores[name], prepared.log, routes, by_target[name], folder, stood[name].index)
            for name in stood
            if name in prepared.stores
        ]
        for verdict in run_tasks(spark, "compare", compare, compare_store, show=show):
            verdicts[verdict.target] = verdict
    for name, found in stood.items():
        verdict = verdicts[name]
        if name not in prepared.stores:
            verdict.digest, verdict.expected = found.digest, expected_state.total_digest(by_target[name])
            verdict.entries = sum(part.entries for part in by_target[name])
            verdict.add(refused_entries(by_target[name]))
        if verdict.digest != verdict.expected and not verdict.problem:
            _explain(spark, prepared.log, routes, pieces, verdict, show)
    return list(verdicts.values())


def fold_readable(job: expected_state.Job) -> tuple[list[expected_state.Folded], CorruptEntry | None]:
    """In a task: fold the piece; if an entry is damaged, for those targets only whose index is below it."""
    try:
        return expected_state.fold_piece(job), None
    except CorruptEntry as damage:
        through = {name: index for name, index in job.through.items() if index < damage.index}
        if not through or damage.index <= job.piece.first:
            return [], damage
        readable = job.piece._replace(last=damage.index - 1)
        return expected_state.fold_piece(job._replace(piece=readable, through=through)), damage


def _folded(
    results: list[tuple[list[expected_state.Folded], CorruptEntry | None]],
) -> tuple[list[expected_state.Folded], CorruptEntry | None]:
    """All parts, and the first entry that is damaged."""
    found = [damage for _, damage in results if damage is not None]
    return [part for parts, _ in results for part in parts], min(found, key=lambda damage: damage.index, default=None)


def _positions(
    where: Mapping[str, str], named: Mapping[str, StoreAddress], security: Security
) -> tuple[dict[str, Position], dict[str, AuditVerdict]]:
    """What each target has. One that cannot be asked has a problem; if none can be, that is raised."""
    stood: dict[str, Position] = {}
    verdicts: dict[str, AuditVerdict] = {}
    away: LogPlayerError | None = None
    for name in sorted({*where, *named}):
        verdicts[name] = AuditVerdict(name, 0)
        try:
            if name in named:
                with Snapshot(named[name], name) as store:
                    stood[name] = store.position()
            else:
                stood[name] = event_loop.run(position(where[name], name, security=security))
        except UserError:
            raise  # A wrong name or path is worth a second try at the command.
        except LogPlayerError as error:
            away = away or error
            verdicts[name].leave(error)
            continue
        verdicts[name].index = stood[name].index
    if away is not None and not stood:
        raise away
    return stood, verdicts


def _explain(
    spark: SparkSession, log: LogPlace, routes: Routes, pieces: list[Piece], verdict: AuditVerdict, show: ShowProgress
) -> None:
    """Find the one entry whose digest is the difference, if there is one."""
    more, less = (verdict.digest - verdict.expected) & _MASK, (verdict.expected - verdict.digest) & _MASK
    wanted = {more: "was applied twice", less: "was not applied"}
    pieces = [piece._replace(last=min(piece.last, verdict.index)) for piece in pieces if piece.first <= verdict.index]
    search = partial(_search, log, routes, verdict.target, frozenset(wanted))
    hits = [hit for part in run_tasks(spark, "search", pieces, search, show=show) for hit in part]
    if hits:
        index, value = min(hits)
        verdict.notes.append(f"entry {index} {wanted[value]}: the digest differs by exactly that entry")
        verdict.differences = [Difference(index, b"", wanted[value]), *verdict.differences][:DIFFERENCES_MAX]
        verdict.differing += 1
    else:
        verdict.notes.append("the digest differs by more than one entry, or by an entry that is not in the log")


def _search(log: LogPlace, routes: Routes, target: str, wanted: Collection[int], piece: Piece) -> list[tuple[int, int]]:
    """In a task: the entries of the piece whose digest is one of those."""
    hits = []
    split = Splitter(routes, (target,), {target: ANY}).split
    for records in piece.records(log):
        for record in records:
            if record.kind == Kind.DATA:
                for share in split(record.index, record.payload).values():
                    value = entry_digest(record.index, share.payload)
                    if value in wanted:
                        hits.append((record.index, value))
    return hits
