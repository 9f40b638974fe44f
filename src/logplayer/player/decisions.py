"""Decisions about members and quarantined entries, checked and appended: for the command line and the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from logplayer.core.control_state import ControlState
from logplayer.core.entry import (
    Decision,
    Quarantined,
    QuarantineRevoked,
    ShardMap,
    TargetAdded,
    TargetRemoved,
)
from logplayer.errors import ConfigError, CorruptEntry, Trimmed
from logplayer.log import control_chain as chain
from logplayer.log.protocol import Log, NewEntry
from logplayer.player.entries import read_entries
from logplayer.player.maps import map_text
from logplayer.player.redriven import redriver
from logplayer.wire.entries import for_target, route_transaction


async def decide_on(
    log: Log, record: Decision, first_map: ShardMap | None, targets: Mapping[str, str], *, force: bool = False
) -> int:
    """Append a decision to the log; returns its index, from which on every player follows it.

    With ``force`` also one after which some keys have no owner.
    """
    control = (await chain.load(log)).control(first_map)
    _check(record, control, (await log.info()).last)
    if isinstance(record, TargetRemoved) and not force:
        _check_unused(record.target, control)
    index, _ = await chain.append(log, record, first_map, tuple(targets.items()))
    return index


class Kept(NamedTuple):
    """An entry in the quarantine of a target's store."""

    log_id: str  # Of the log that the store has it from.
    payload: bytes


async def redrive(log: Log, control: ControlState, target: str, index: int, kept: Kept | None = None) -> int:
    """Append what ``target`` was to get of the entry at ``index`` as a new transaction; returns its index.

    However often this is called, the log takes it once. The new entry comes after all that was appended since, and
    names the target: the map may give these keys to another one by now. ``kept`` is used if the log has trimmed the
    entry.
    """
    if index not in control.quarantined.get(target, ()):
        raise ConfigError(f"entry {index} is not quarantined at {target}; redrive one that is")
    producer = redriver(target, index)
    before = await log.newest(producer)
    if before.sequence:
        return before.index
    part = for_target(await _part(log, control, target, index, kept), target)
    [appended] = await log.append([NewEntry(producer, 1, part)])
    return appended


async def _part(log: Log, control: ControlState, target: str, index: int, kept: Kept | None) -> bytes:
    """What the target was to get: of the log, or of the target itself."""
    try:
        record = await chain.first_record(log, index, index)
    except (Trimmed, CorruptEntry) as error:
        if kept is not None:
            return await _kept_part(log, target, kept)
        if isinstance(error, CorruptEntry):
            raise
        raise ConfigError(
            f"the log has trimmed entry {index}; {target} keeps it in its quarantine: give --store, and --path or "
            f"--url, to 'logplayer target redrive {target} --index {index}', as 'logplayer target serve' has them"
        ) from None
    [entry] = read_entries([record])
    part = control.router.split(entry, route_transaction).get(target)
    if part is None:
        raise ConfigError(f"entry {index} has nothing for {target}; nothing of it is missing there")
    return part


async def _kept_part(log: Log, target: str, kept: Kept) -> bytes:
    ours = (await log.info()).log_id
    if kept.log_id != ours:
        raise ConfigError(f"this store of {target} plays log {kept.log_id}, not this one ({ours}); check --store")
    return kept.payload


def _check(record: Decision, control: ControlState, last: int) -> None:
    """Refuse a decision about a target that is not there, that is there already, or that has what the log has not."""
    if isinstance(record, TargetAdded) and record.target in control.members:
        raise ConfigError(f"{record.target} is a member already; remove it first, or choose another name")
    if isinstance(record, TargetAdded) and (record.at or 0) > last:
        raise ConfigError(
            f"--at {record.at}: the log ends at {last}, so {record.target} cannot hold more; give 0 for an empty "
            "store, or what 'logplayer target position' says"
        )
    if isinstance(record, (TargetRemoved, Quarantined, QuarantineRevoked)) and record.target not in control.members:
        raise ConfigError(f"{record.target} is not a member; the log knows {', '.join(control.members) or 'none'}")


def _check_unused(target: str, control: ControlState) -> None:
    """Refuse to remove an owner of keys: nobody would get what is appended for them."""
    in_force = control.router.versions()[-1][1]
    if target in getattr(in_force, "targets", ()):
        raise ConfigError(
            f"the map in force, {map_text(in_force)}, still gives keys to {target}: they would be unroutable; "
            "'logplayer map set' first, or --force"
        )
