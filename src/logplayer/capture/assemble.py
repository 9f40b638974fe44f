"""From the stream's messages to transactions of the log. Pure: the shell feeds messages and appends what comes out.

An update becomes a put of the whole row. It becomes a patch if PostgreSQL left out a large value that did not change
(TOAST), or if the primary key changed: then the patch has the old key and the new one. Whatever cannot be carried over
faithfully raises ``UserError`` with the table, the column and the remedy; nothing of that transaction has left by then.

What the log has. A slot is confirmed at marks only, so a stream begins with transactions that the log has already. They
describe tables as they were then, which says nothing of what they are after the log's newest entry: a column that was
added since is not there yet, and is not gone. So transactions up to ``seen`` are not read, and a table is compared with
what the log knows of it at its first row after that, by whatever description the stream gave last.

A table is its OID, not its name. A captured one that was renamed would pass for a table that is not captured, and a new
one under a captured name for the table that was there before: rows would be missing in silence. Either is a stop.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from logplayer.capture import pgoutput as pg
from logplayer.capture.descriptions import Description, SchemaChange, completed, difference, renamed, replaced
from logplayer.capture.outbox_payload import decode_outbox
from logplayer.capture.pg_values import Unfit, read_value
from logplayer.capture.settings import HEADER_BYTES, CaptureStopped, Choices, SourceTable
from logplayer.capture.transactions import SourceTransaction
from logplayer.errors import EntryTooLarge, Malformed, UserError
from logplayer.wire.rows import Column, Op, encode_row

PREFIX = "logplayer"
"""Of the logical messages that are an outbox."""
_log = logging.getLogger("logplayer.capture")


class _Shape:
    """How the rows of one relation are read."""

    def __init__(self, table: SourceTable, relation: pg.Relation, base_types: Mapping[int, int]) -> None:
        self.table = table
        self.relation = relation
        self.full = relation.identity == "f"
        self.width = len(relation.columns)
        self.names = [column.name for column in relation.columns]
        self.types = [base_types.get(column.type_oid, column.type_oid) for column in relation.columns]
        self.key_at = [self.names.index(name) for name in table.key]
        self.rest_at = [at for at in range(self.width) if at not in self.key_at]


class Assembler:
    """Makes transactions of messages, for one session of the stream.

    Args:
        tables: What is captured, by schema and name; rows of other tables are left out.
        base_types: The type under each domain.
        choices: What to do where there is a choice.
        known: Each table's description as the log's newest entries have it; without one, the stream's first counts.
        seen: The log has every transaction whose commit ends here or before.
        cut: Of the one that comes after, the log has the first parts.
        oids: Schema and name of each captured table by its OID; of one that is not in it, the first that comes counts.

    Attributes:
        known: Each table's newest description.
        completed: The log's newest description lacks modifiers that are in ``known`` now.
        remaking: The log has what comes, but what was known there was trimmed. So changes are made again as they were,
            and not judged, until :meth:`judge`.
    """

    def __init__(
        self,
        tables: Mapping[tuple[str, str], SourceTable],
        base_types: Mapping[int, int],
        choices: Choices,
        known: Mapping[str, Description] | None = None,
        seen: int = 0,
        cut: bool = False,
        oids: Mapping[int, tuple[str, str]] | None = None,
    ) -> None:
        self.known: dict[str, Description] = dict(known or {})
        self.completed = False
        self.remaking = False
        self._seen = seen
        self._cut = cut
        self._tables = tables
        self._captured = dict(oids or {})
        self._base_types = base_types
        self._choices = choices
        self._shapes: dict[int, _Shape | None] = {}
        self._undescribed: dict[int, pg.Relation] = {}  # Not compared with what is known, nor read by, yet.
        self._other: set[int] = set()  # Relations that are not captured.
        self._open: SourceTransaction | None = None
        self._again = False  # The log has the open transaction; of one that was cut perhaps only the first parts.
        self._held: list[pg.SourceMessage] = []  # What came of it.

    def feed(self, message: pg.SourceMessage) -> SourceTransaction | None:
        """Take the next message; returns the transaction that it completes, if that has something for the log.

        Raises:
            UserError: The message cannot be carried over; it says what to do.
            Malformed: The messages do not follow each other as the protocol says.
        """
        if isinstance(message, pg.Begin):
            if self._open is not None:
                raise Malformed("the replication stream began a transaction inside another one")
            self.begin(message)
            # A commit that begins before the end of another one is that one, or an earlier one.
            self._again = message.commit_lsn < self._seen
        elif isinstance(message, pg.Relation):
            is_captured = message.oid in self._captured or (message.schema, message.name) in self._tables
            (self._other.discard if is_captured else self._other.add)(message.oid)
            if self._again:
                self._held.append(message)
            else:
                self._undescribed[message.oid] = message
                self._describe(message.oid)
        elif isinstance(message, pg.LogicalMessage) and not message.transactional:
            return None  # It belongs to no transaction, so it has no place in the order of commits.
        elif isinstance(message, pg.Insert | pg.Update | pg.Delete | pg.Truncate | pg.LogicalMessage | pg.Commit):
            if self._open is None:
                raise Malformed(f"the replication stream sent {type(message).__name__} outside of a transaction")
            return self._take_again(self._open, message) if self._again else self._take(self._open, message)
        return None

    def judge(self, known: Mapping[str, Description]) -> None:
        """What comes now is new to the log, which has tables as in ``known``."""
        self.remaking = False
        self.known = dict(known)
        self._undescribed |= {oid: shape.relation for oid, shape in self._shapes.items() if shape is not None}

    def begin(self, message: pg.Begin) -> SourceTransaction:
        """Open a transaction that takes the rows to come; a snapshot makes one for each of its entries."""
        self._open = SourceTransaction(message.commit_time_us, message.xid)
        return self._open

    def patch(self, relation: int, cells: pg.Cells) -> None:
        """Add a patch of one row to the open transaction: the key, and the columns that are not unchanged."""
        shape = self._shape(relation, cells)
        if shape is not None and self._open is not None:
            self._add(self._open, shape, Op.PATCH, self._columns(shape, cells))

    def _take(
        self,
        transaction: SourceTransaction,
        message: pg.Insert | pg.Update | pg.Delete | pg.Truncate | pg.LogicalMessage | pg.Commit,
    ) -> SourceTransaction | None:
        match message:
            case pg.Commit():
                self._open = None
                transaction.lsn = message.end_lsn
                something = transaction.mutations or transaction.truncated or transaction.kept
                return transaction if something else None
            case pg.Truncate():
                self._truncate(transaction, message)
            case pg.LogicalMessage():
                self._outbox(transaction, message)
            case pg.Insert(relation, new):
                if (shape := self._shape(relation, new)) is not None:
                    self._add(transaction, shape, Op.PUT, self._columns(shape, new))
            case pg.Update(relation, old, new):
                if (shape := self._shape(relation, new, old)) is not None:
                    self._update(transaction, shape, old, new)
            case pg.Delete(relation, old):
                if (shape := self._shape(relation, old)) is not None:
                    self._add(transaction, shape, Op.DELETE, self._key(shape, old))
        return None

    def _take_again(
        self,
        transaction: SourceTransaction,
        message: pg.Insert | pg.Update | pg.Delete | pg.Truncate | pg.LogicalMessage | pg.Commit,
    ) -> SourceTransaction | None:
        """Leave out what the log has; only the commit's end says whether that is all of a transaction."""
        if not isinstance(message, pg.Commit):
            if self._cut and getattr(message, "relation", None) not in self._other:
                self._held.append(message)
            return None
        held, self._held, self._again = self._held, [], False
        is_there = message.end_lsn <= self._seen
        for one in held:
            if isinstance(one, pg.Relation):
                self._undescribed[one.oid] = one
            elif not is_there:
                self._take(transaction, one)  # type: ignore[arg-type]
        if is_there:
            self._open = None
            return None
        return self._take(transaction, message)

    # --- Tables ---

    def _describe(self, oid: int) -> None:
        relation = self._undescribed.pop(oid)
        table = self._table_of(relation)
        if table is None:
            self._shapes[relation.oid] = None
            return
        description = tuple((column.name, column.type_oid, column.modifier) for column in relation.columns)
        stored = self.known.get(table.log_name, description)
        before = completed(stored, description)
        self.completed = self.completed or before != stored
        if before != description:
            self._changed(SchemaChange(table, before, description))
        if table.log_name not in self.known and self._open is not None:
            self._open.first_seen.append(SchemaChange(table, (), description))
        names = {column.name for column in relation.columns}
        identity = {column.name for column in relation.columns if column.identity}
        if not set(table.key) <= names or (relation.identity != "f" and identity != set(table.key)):
            raise CaptureStopped(
                "schema_change",
                f"table {table.log_name} no longer has the primary key ({', '.join(table.key)}) as its replica "
                "identity, "
                "so its rows cannot be named as before; take a new snapshot with a new slot into empty targets",
            )
        self.known[table.log_name] = description
        self._shapes[relation.oid] = _Shape(table, relation, self._base_types)

    def _table_of(self, relation: pg.Relation) -> SourceTable | None:
        """The captured table that it is; None if it is none."""
        name = (relation.schema, relation.name)
        captured = self._captured.get(relation.oid)
        if captured is None and name in self._captured.values():
            raise replaced(self._tables[name])
        if captured is None:
            if name in self._tables:
                self._captured[relation.oid] = name
            return self._tables.get(name)
        table = self._tables[captured]
        if captured != name and not self.remaking and self._choices.schema_change != "accept":
            raise renamed(table, *name)
        return table

    def _changed(self, change: SchemaChange) -> None:
        name, mode = change.table.log_name, self._choices.schema_change
        if not self.remaking and (mode == "stop" or (mode == "ddl" and not change.added)):
            raise CaptureStopped(
                "schema_change",
                f"table {name} of the source has changed: {difference(change)} (everything before is in the log). "
                "Change the tables of the targets likewise, then go on once with --on-schema-change accept",
            )
        if self._open is None:
            raise Malformed("the replication stream described a table outside of a transaction")
        self._open.changes.append(change)

    def _shape(self, relation: int, *tuples: pg.Cells | None) -> _Shape | None:
        if relation in self._undescribed:
            self._describe(relation)
        try:
            shape = self._shapes[relation]
        except KeyError:
            raise Malformed(
                f"the replication stream has a row of table {relation}, which it did not describe"
            ) from None
        if shape is not None and any(cells is not None and len(cells) != shape.width for cells in tuples):
            raise Malformed(f"a row of table {shape.table.log_name} has not {shape.width} columns as it was described")
        return shape

    # --- Rows ---

    def _add(self, transaction: SourceTransaction, shape: _Shape, op: Op, columns: list[Column]) -> None:
        encoded = encode_row(op, shape.table.log_name, columns, place=shape.table.place).encoded
        self._append(transaction, encoded, shape.table.log_name)

    def _append(self, transaction: SourceTransaction, encoded: bytes, what: str) -> None:
        transaction.mutations.append(encoded)
        transaction.encoded_bytes += len(encoded)
        limit = self._choices.entry_bytes - HEADER_BYTES
        if len(encoded) > limit:
            raise EntryTooLarge(
                f"one change ({what}) of transaction {transaction.xid} has {len(encoded)} bytes, and an entry of "
                "the log "
                f"holds {limit}; keep such values outside of the captured tables"
            )
        if transaction.encoded_bytes > limit and not self._choices.split_large:
            raise EntryTooLarge(
                f"transaction {transaction.xid} of the source is over the {limit} bytes that an entry of the log holds "
                "(everything before it is in the log); go on with --split-large, which gives up that targets apply it "
                "as a whole, and let the application write in smaller transactions"
            )

    def _columns(self, shape: _Shape, cells: pg.Cells) -> list[Column]:
        """The key, and every other column that was sent."""
        columns = self._key(shape, cells)
        for at in shape.rest_at:
            cell = cells[at]
            if not isinstance(cell, pg.Absent):
                columns.append(Column(shape.names[at], self._value(shape, at, cell)))
        return columns

    def _key(self, shape: _Shape, cells: pg.Cells) -> list[Column]:
        key = []
        for at in shape.key_at:
            cell = cells[at]
            if cell is None or isinstance(cell, pg.Absent):
                raise CaptureStopped(
                    "identity",
                    f"PostgreSQL did not send the key column {shape.names[at]} of a row of table "
                    f"{shape.table.log_name}; "
                    f"run ALTER TABLE {shape.table.log_name} REPLICA IDENTITY FULL, and start with a new slot",
                )
            key.append(Column(shape.names[at], self._value(shape, at, cell), True))
        return key

    def _value(self, shape: _Shape, at: int, cell: str | None) -> Any:
        if cell is None:
            return None
        try:
            return read_value(shape.types[at], cell)
        except Unfit as error:
            if self._choices.unfit == "text":
                return cell
            raise CaptureStopped(
                "unfit",
                f"table {shape.table.log_name}, column {shape.names[at]}: {error}; go on with --unfit text, which "
                "sends "
                "such values as text, if the targets' columns take them",
            ) from None

    def _update(self, transaction: SourceTransaction, shape: _Shape, old: pg.Cells | None, new: pg.Cells) -> None:
        if old is None:
            columns = self._columns(shape, new)
        else:
            known = range(shape.width) if shape.full else shape.key_at
            new = tuple(old[at] if cell is pg.UNCHANGED and at in known else cell for at, cell in enumerate(new))
            columns = self._columns(shape, new)
            moved = [at for at in shape.key_at if old[at] != new[at]]
            if moved:
                now = [column._replace(key=False) for column in columns if shape.names.index(column.name) in moved]
                rest = columns[len(shape.key_at) :]
                self._add(transaction, shape, Op.PATCH, [*self._key(shape, old), *now, *rest])
                return
        self._add(transaction, shape, Op.PUT if len(columns) == shape.width else Op.PATCH, columns)

    # --- What is not a row ---

    def _truncate(self, transaction: SourceTransaction, message: pg.Truncate) -> None:
        tables = [shape.table for shape in map(self._shape, message.relations) if shape is not None]
        if tables and self._choices.truncate == "stop":
            names = ", ".join(table.log_name for table in tables)
            raise CaptureStopped(
                "truncate",
                f"the source ran TRUNCATE on {names}, which does not say which rows are gone (everything before it is "
                "in the log); go on with --on-truncate ddl, which empties the tables at the targets, and use DELETE "
                "where you can",
            )
        transaction.truncated += tables

    def _outbox(self, transaction: SourceTransaction, message: pg.LogicalMessage) -> None:
        if message.prefix != PREFIX:
            return  # Another program's.
        try:
            mutations, headers = decode_outbox(message.content)
        except (UserError, Malformed) as error:
            if self._choices.bad_message == "stop":
                raise CaptureStopped(
                    "bad_message",
                    f"the outbox message at {pg.lsn_text(message.lsn)} cannot be understood: {error}; write it with "
                    "lp.outbox.emit, and go on with --on-bad-message drop, which leaves it out",
                ) from None
            _log.warning("left out the outbox message at %s: %s", pg.lsn_text(message.lsn), error)
            return
        transaction.kept = True
        transaction.headers += headers
        for mutation in mutations:
            self._append(transaction, mutation, "an outbox message")
