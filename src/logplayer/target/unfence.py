"""Free a store whose session nobody can have: one Open with a senseless epoch locks every player out.

The stored session goes back to the one of a new store, below every player's, so the next player opens it. That cannot
break delivery. An older player that still runs may open first; the range check lets it apply only what comes next in
the log, which is what the newer one would have sent, and the newer one's Open fences it again. A stream of the
senseless session that is still open is refused by the store's own check.

The id of a log that never delivered anything is forgotten too: such an Open blocks a new store with ``WRONG_LOG``. A
store that has entries keeps its log's id, whatever an operator says: indexes of another log mean nothing to it.
"""

from __future__ import annotations

from typing import NamedTuple

from logplayer.core.entry import Decision, Takeover
from logplayer.core.fence import NOBODY, Position
from logplayer.errors import TargetError, UserError
from logplayer.log.protocol import Info
from logplayer.target.protocol import Change, Store
from logplayer.target.stores.tables.base import TableStore


class FenceEvidence(NamedTuple):
    """What the log says about the stored session: the log as it is, and the control record at the session's epoch."""

    log: Info
    record: Decision | None = None


class Unfence(Change):
    """Puts ``after`` in the place of ``before``, in the store's own transaction, if nobody has opened it meanwhile."""

    __slots__ = ("_after", "_before")

    def __init__(self, before: Position, after: Position) -> None:
        super().__init__(after.session)
        self._before, self._after = before, after

    def check(self, stored: Position) -> Position:
        if stored != self._before:
            raise TargetError(
                f"the store has changed meanwhile: it has index {stored.index} and session {stored.session} now; "
                "nothing was changed, look again"
            )
        return self._after


def why_fenced(stored: Position, seen: FenceEvidence) -> str:
    """Why nobody can have the stored session; empty if the log shows it, or has trimmed what would."""
    epoch, log = stored.session.epoch, seen.log
    if epoch > log.last:
        return f"epoch {epoch} is past the log's end, {log.last}"
    if log.first <= epoch and not isinstance(seen.record, Takeover):
        return f"entry {epoch} of the log is not a takeover"
    return ""


def plan(store: Store, seen: FenceEvidence | None, force: bool) -> tuple[Position, Position, str]:
    """The position as it is, as it would be, and why. Raises UserError where the store must stay as it is."""
    stored = store.position()
    freed = stored._replace(session=NOBODY)
    if seen is not None and stored.log_id not in ("", seen.log.log_id):
        if not _is_empty(store, stored):
            raise UserError(
                f"the store was filled from log {stored.log_id!r}, not from {seen.log.log_id!r}, and has index "
                f"{stored.index}: give the right --log, or the target an empty store"
            )
        return stored, freed._replace(log_id=""), f"log {stored.log_id!r} opened it and delivered nothing"
    why = why_fenced(stored, seen) if seen is not None and stored.session != NOBODY else ""
    if not why and not force:
        raise UserError(_nothing_wrong(stored, seen))
    if stored == freed:
        raise UserError("the store has no session: there is nothing to free")
    return stored, freed, why or "--force is given"


def _nothing_wrong(stored: Position, seen: FenceEvidence | None) -> str:
    if seen is None:
        return "whether a player can have the stored session is for the log to say: give --log, or --force"
    if stored.session == NOBODY:
        return "the store has no session: there is nothing to free"
    return (
        f"session {stored.session} is one that a player of this log has or had, so nothing is wrong with it; "
        "to free the store anyway, add --force"
    )


def _is_empty(store: Store, stored: Position) -> bool:
    if stored.index or next(store.quarantine(), None) is not None:
        return False
    return isinstance(store, TableStore) or next(store.scan(), None) is None  # Rows of tables are the user's own.
