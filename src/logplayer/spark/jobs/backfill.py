"""``logplayer backfill``: fill new targets, or the targets of a new shard map, and hand them over at an exact index.

1. Tasks read the log (and its archive) up to where it ends now, side by side, and each target is filled by one task:
   over the protocol, or, for an SQLite file without a server, by one sorted load of what is left of each key.
2. A new shard map is put into the log: from its record on entries are for its targets.
3. What the log got meanwhile is delivered, again and again, until little is left, and then to the very end: index H.
4. ``TargetAdded(target, at=H)`` makes each target a member that has index H. The player goes on with H + 1.

Up to H a target holds what the map in force after H gives it: the whole history, as if that map had always been there.
The sessions have epoch 0, below every player's: a player that opens a target ends its backfill, never the other way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain as flat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from logplayer.core.entry import Delivery, ExplicitMap, MapChanged, RangeMap, ShardMap, TargetAdded
from logplayer.core.fence import Position
from logplayer.errors import ConfigError, Trimmed, UserError
from logplayer.log import control_chain as chain
from logplayer.log.chain import chain_at
from logplayer.log.open import LogPlace
from logplayer.log.protocol import History, Info, Kind, Log
from logplayer.spark import event_loop
from logplayer.spark.arrow import column
from logplayer.spark.folders import open_file, open_folder
from logplayer.spark.folders import scratch as scratch_folder
from logplayer.spark.jobs import expected_state
from logplayer.spark.jobs.bulk_load import load_sqlite, require_buildable
from logplayer.spark.progress import ShowProgress, run_tasks, unseen
from logplayer.spark.routes import Routes, Splitter, load_routes
from logplayer.spark.sinks.deliver import Destination, Source, play, play_into, poisoned
from logplayer.spark.source.archive import Archive, open_archive
from logplayer.spark.source.plan import Piece, plan
from logplayer.target.client import position
from logplayer.target.stores.sqlite import SqliteTarget
from logplayer.wire.addresses import parse as parse_address
from logplayer.wire.security import NONE, Security

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = pa.schema([("index", pa.int64()), ("payload", pa.binary()), ("chain", pa.binary())])
NEAR = 2000  # So many entries are delivered by the driver itself; more is worth a round of tasks.
ROUNDS_MAX = 8


class Fill(NamedTuple):
    """One target to fill: over its server's ``address``, or, with ``path``, an SQLite file that nobody serves yet."""

    target: str
    address: str = ""
    path: str = ""


@dataclass(frozen=True)
class Filled:
    """A target that was filled and handed over."""

    target: str
    index: int
    entries: int
    digest: str


@dataclass
class _Run:
    """What the steps of one backfill share."""

    spark: SparkSession
    log: LogPlace
    fills: Sequence[Fill]
    archive: Archive | None
    show: ShowProgress
    log_id: str
    tasks: int
    scratch: str = ""

    def routes(self, decided: Routes, through: int) -> Routes:
        """History as the targets are to have it: the map that is in force after ``through``."""
        return replace(decided, starts={**decided.starts, **{fill.target: through for fill in self.fills}})


def backfill(
    spark: SparkSession,
    log: str,
    fills: Sequence[Fill],
    *,
    new_map: ShardMap | None = None,
    first_map: ShardMap | None = None,
    archive: str = "",
    register: bool = True,
    security: Security = NONE,
    tasks: int = 8,
    scratch: str = "",
    show: ShowProgress = unseen,
) -> list[Filled]:
    """Fill the targets and hand them over. The log must be one that this process may append to, if ``register``.

    ``scratch`` is for temporary files that all executors can reach; the driver's own disk if it is empty.
    """
    _require_targets(fills)
    place = LogPlace(log, security)
    with event_loop.opened(place, readonly=not register) as opened:
        info = event_loop.run(opened.info())
        decided = event_loop.run(load_routes(opened, first_map))
        _check(decided, fills, new_map)
        kept = open_archive(archive, info.log_id) if archive else None
        run = _Run(spark, place, fills, kept, show, info.log_id, tasks, scratch)
        planned = decided if new_map is None else replace(decided, maps=(*decided.maps, (info.last, new_map)))
        counts = _bulk(run, planned, info)
        if register and new_map is not None:
            event_loop.run(chain.append(opened, MapChanged(new_map), first_map))
        reached = _catch_up(run, opened, info.last, first_map, planned if not register else None, counts)
        if register:
            _hand_over(opened, fills, reached, first_map)
    return [_filled(run, fill, reached, counts[fill.target]) for fill in fills]


def check_backfill(
    log: str,
    fills: Sequence[Fill],
    *,
    new_map: ShardMap | None = None,
    first_map: ShardMap | None = None,
    archive: str = "",
    security: Security = NONE,
) -> None:
    """Raise what would end the backfill at its beginning: it can be said before Spark has started."""
    _require_targets(fills)
    for fill in fills:
        if not fill.path:
            parse_address(fill.address)
    with event_loop.opened(LogPlace(log, security)) as opened:
        info = event_loop.run(opened.info())
        _check(event_loop.run(load_routes(opened, first_map)), fills, new_map)
        kept = open_archive(archive, info.log_id) if archive else None
        if info.last:
            _require_beginning(kept.begin if kept else info.first)
        for fill in fills:
            if fill.path:
                require_buildable(Path(fill.path), fill.target)
            else:
                stood = event_loop.run(position(fill.address, fill.target, security=security))
                _require_same_history(opened, fill.target, stood)


def _require_targets(fills: Sequence[Fill]) -> None:
    if not fills:
        raise ConfigError("a backfill needs targets: give --target NAME=grpc://HOST:PORT or --store NAME=sqlite:PATH")


def _require_same_history(log: Log, target: str, stood: Position) -> None:
    """A target that was filled in part must have been filled from what the log has now."""
    value = event_loop.run(chain_at(log, stood.index))
    if value is not None and value != stood.chain:
        raise UserError(
            f"target {target} has index {stood.index} of another history of this log, which was restored from an older "
            "backup since: fill an empty target"
        )


def _require_beginning(begin: int) -> None:
    if begin > 1:
        raise Trimmed(
            f"entries up to {begin - 1} were trimmed, and a backfill reads the log from its first entry on: "
            "give the archive that holds them with --archive",
            begin,
        )


def _check(decided: Routes, fills: Sequence[Fill], new_map: ShardMap | None) -> None:
    names = [fill.target for fill in fills]
    for name in names:
        if name in decided.starts:
            raise UserError(
                f"target {name} is a member already: the player feeds it. To fill it again, remove it from the log, "
                "or take a new name"
            )
    if new_map is None or isinstance(new_map, ExplicitMap):
        return
    for name in new_map.targets:
        if name not in names and not _keeps_less(decided.maps[-1][1], new_map, name):
            raise UserError(
                f"the new map gives {name} keys that it does not have now, and it is not filled: name only new targets "
                "in the map, or ranges that a target has already"
            )


def _keeps_less(old: ShardMap, new: ShardMap, name: str) -> bool:
    """Whether all that ``name`` owns in the new map it owns in the old one; known for ranges only."""
    if not isinstance(old, RangeMap) or not isinstance(new, RangeMap):
        return False
    had, gets = _ranges(old, name), _ranges(new, name)
    return all(
        any(low >= begin and (end is None or (high is not None and high <= end)) for begin, end in had)
        for low, high in gets
    )


def _ranges(shard_map: RangeMap, name: str) -> list[tuple[bytes, bytes | None]]:
    edges: list[bytes | None] = [b"", *shard_map.bounds, None]
    return [(edges[nth] or b"", edges[nth + 1]) for nth, target in enumerate(shard_map.targets) if target == name]


# --- The bulk: everything up to where the log ended at the start. ------------------------------------------------


def _bulk(run: _Run, decided: Routes, info: Info) -> dict[str, int]:
    """Fill all targets up to ``info.last``; returns how many entries each got."""
    counts = {fill.target: 0 for fill in run.fills}
    if not info.last:
        return counts
    _require_beginning(run.archive.begin if run.archive else info.first)
    routes = run.routes(decided, info.last)
    pieces = plan(info, 1, info.last, run.archive, 32 << 20, run.tasks)
    with scratch_folder(run.scratch, "backfill") as folder:
        files = {fill.target: info.last for fill in run.fills if fill.path}
        servers = {fill.target: info.last for fill in run.fills if not fill.path}
        jobs = [expected_state.Job(run.log, piece, routes, files, folder) for piece in pieces] if files else []
        folded = list(flat(*run_tasks(run.spark, "read for files", jobs, expected_state.fold_piece, show=run.show)))
        jobs = [expected_state.Job(run.log, piece, routes, servers, folder) for piece in pieces] if servers else []
        spread = list(flat(*run_tasks(run.spark, "read for servers", jobs, spread_piece, show=run.show)))
        work = []
        for fill in run.fills:
            parts = [part for part in (folded if fill.path else spread) if part.target == fill.target]
            counts[fill.target] = sum(part.entries for part in parts)
            if refused := sorted(found for part in parts for found in part.refused):
                index, why = refused[0]
                raise poisoned(fill.target, fill.path, why, index)
            work.append((fill, parts))
        through = History(info.last, info.chain)
        run_tasks(run.spark, "fill", work, partial(_fill, run.log_id, through, run.log.security), show=run.show)
    return counts


def _fill(log_id: str, through: History, security: Security, item: tuple[Fill, list[expected_state.Folded]]) -> None:
    """In a task: fill one target."""
    fill, parts = item
    if fill.path:
        load_sqlite(fill.path, fill.target, parts, through, log_id)
        return
    files = [part.file for part in sorted(parts, key=lambda part: part.first)]
    where = Destination(fill.target, fill.address, log_id, 0, security)
    play(where, lambda index: _messages(files), through)


def spread_piece(job: expected_state.Job) -> list[expected_state.Folded]:
    """In a task: what each target gets of one piece, entry by entry, for a target that counts them itself."""
    parts: dict[str, list[Delivery]] = {name: [] for name in job.through}
    split = Splitter(job.routes, job.through).split
    for records in job.piece.records(job.log):
        for record in records:
            if record.kind == Kind.DATA:
                for target, share in split(record.index, record.payload).items():
                    parts[target].append(Delivery(record.index, share.payload, chain=record.chain))
    folded = []
    for target, messages in parts.items():
        if messages:
            path = _write_messages(job, target, messages)
            folded.append(expected_state.Folded(target, job.piece.first, 0, len(messages), path))
    return folded


def _write_messages(job: expected_state.Job, target: str, messages: list[Delivery]) -> str:
    folder, name = open_folder(job.folder), expected_state.file_of(job, target)
    with folder.write(name) as file, pa.ipc.new_stream(file, MESSAGES) as out:
        for at in range(0, len(messages), 1024):
            indexes, payloads, _, chain = zip(*messages[at : at + 1024], strict=True)
            columns = [column(indexes, pa.int64()), column(payloads, pa.binary()), column(chain, pa.binary())]
            out.write_batch(pa.RecordBatch.from_arrays(columns, schema=MESSAGES))
    return folder.file(name)


def _messages(files: Sequence[str]) -> Iterator[Delivery]:
    for path in files:
        with open_file(path) as file, pa.ipc.open_stream(file) as reader:
            for batch in reader:
                for index, payload, chain in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    yield Delivery(index, payload, chain=chain)


# --- The rest: what the log got meanwhile. -----------------------------------------------------------------------


def _catch_up(
    run: _Run,
    log: Log,
    reached: int,
    first_map: ShardMap | None,
    planned: Routes | None,
    counts: dict[str, int],
) -> int:
    """Deliver what came meanwhile, until the last stretch was short. Returns the index that all targets have."""
    for _ in range(ROUNDS_MAX):
        info = event_loop.run(log.info())
        if info.last == reached:
            break
        decided = planned or event_loop.run(load_routes(log, first_map))
        routes = run.routes(decided, info.last)
        pieces = plan(info, reached + 1, info.last, run.archive, 32 << 20, 1)
        for fill in run.fills:
            counts[fill.target] += _deliver(run, fill, routes, pieces, reached, History(info.last, info.chain))
        short = info.last - reached <= NEAR
        reached = info.last
        if short:
            break
    return reached


def _deliver(run: _Run, fill: Fill, routes: Routes, pieces: Sequence[Piece], after: int, through: History) -> int:
    """Deliver the pieces, ``(after, through]``, to one target from the driver; returns how many entries."""
    count = 0

    def messages(index: int) -> Iterator[Delivery]:
        nonlocal count
        count = 0
        split = Splitter(routes, (fill.target,)).split
        for piece in pieces:
            for records in piece.records(run.log):
                for record in records:
                    if record.kind == Kind.DATA:
                        for share in split(record.index, record.payload).values():
                            count += 1
                            yield Delivery(record.index, share.payload, chain=record.chain)

    if fill.path:
        _apply(fill, run.log_id, messages, after, through)
    else:
        where = Destination(fill.target, fill.address, run.log_id, 0, run.log.security)
        play(where, messages, through, after=after)
    return count


def _apply(fill: Fill, log_id: str, source: Source, after: int, through: History) -> None:
    """Deliver to a store that nobody serves, with the target's own checks."""
    store = SqliteTarget(fill.path, fill.target)
    try:
        play_into(store, Destination(fill.target, fill.path, log_id, 0), source, through, after=after)
    finally:
        store.close()


def _hand_over(log: Log, fills: Sequence[Fill], reached: int, first_map: ShardMap | None) -> None:
    """Make each target a member that has index ``reached``: from the record on the log keeps what comes after it."""
    for fill in fills:
        record = TargetAdded(fill.target, reached, fill.address)
        event_loop.run(chain.append(log, record, first_map))
    first = event_loop.run(log.info()).first
    if first > reached + 1:
        raise Trimmed(
            f"the log was trimmed up to {first - 1} before the targets were handed over at {reached}: the player will "
            "ask for a re-seed. Remove them, and run the backfill again with the archive or while nothing trims",
            first,
        )


def _filled(run: _Run, fill: Fill, reached: int, entries: int) -> Filled:
    if fill.path:
        store = SqliteTarget(fill.path, fill.target, read_only=True)
        try:
            return Filled(fill.target, reached, entries, f"{store.position().digest:032x}")
        finally:
            store.close()
    stood = event_loop.run(position(fill.address, fill.target, security=run.log.security))
    return Filled(fill.target, reached, entries, f"{stood.digest:032x}")
