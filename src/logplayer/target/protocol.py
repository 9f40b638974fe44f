"""What a target is: two methods, called by one thread at a time.

``position()`` reads what the store keeps about itself, and ``apply(change)`` writes one change. All of the protocol's
rules are in ``change.check(stored)``, which a store calls *inside its transaction*, between reading its position and
writing the new one. Then no order of opens, commits, cuts and crashes can apply an entry twice or leave one out.

A target for a database with transactions is about ten lines; docs/targets.md shows one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from logplayer.core.entry import Delivery, Session
from logplayer.core.entry import Row as Row
from logplayer.core.fence import Batch, Position, TargetRefusal, admit, advance, check
from logplayer.errors import Malformed, Poison, TargetError
from logplayer.wire.entries import Header, decode_headers, read_rows


class Rejected(TargetError):
    """The change does not fit the stored position. A store lets it pass through, so that its transaction rolls back."""

    def __init__(self, refused: TargetRefusal) -> None:
        super().__init__(f"{refused.reason.name}: {refused.detail}")
        self.refused = refused


class Change:
    """What one transaction writes: a new session (an Open), or a batch of that session. Made by the server.

    A store uses :meth:`check`, :attr:`rows` and :attr:`quarantined`; an Open has no rows. What the producers have said
    beside the rows is in :meth:`headers`.

    Example:
        >>> after = change.check(stored)  # doctest: +SKIP
        >>> [(row.key, row.value) for row in change.rows]  # doctest: +SKIP
        [(b'alice', b'90')]
    """

    __slots__ = ("_rows", "batch", "log_id", "session")

    def __init__(self, session: Session, *, log_id: str = "", batch: Batch | None = None) -> None:
        self.session = session
        self.log_id = log_id
        self.batch = batch
        self._rows: list[Row] | None = None

    def check(self, stored: Position) -> Position:
        """The position to store together with the rows, given the one that is stored now.

        It has no effects, so a store that retries a conflicting transaction calls it again.

        Args:
            stored: What the store has, read in the transaction that will write the rows.

        Raises:
            Rejected: The change does not fit. Let it pass through, so that the transaction is rolled back.

        Example:
            >>> after = change.check(self.position())  # doctest: +SKIP
        """
        if self.batch is None:
            outcome = admit(stored, self.session, self.log_id)
            if isinstance(outcome, TargetRefusal):
                raise Rejected(outcome)
            return outcome
        refused = check(stored, self.session, self.batch)
        if refused is not None:
            raise Rejected(refused)
        return advance(stored, self.batch)

    @property
    def rows(self) -> list[Row]:
        """What to put and delete, in this order.

        Raises:
            Poison: A payload is not a transaction.
        """
        if self._rows is None:
            rows: list[Row] = []
            for message in self.batch.messages if self.batch else ():
                if not message.quarantine:
                    rows += decode_rows(message)
            self._rows = rows  # Only now: a second call after a Poison raises it again.
        return self._rows

    @property
    def runs(self) -> Iterator[tuple[bool, list[Row]]]:
        """The rows in order, as runs of puts (True) and of deletes (False), for stores that write many at once."""
        for is_put, run in itertools.groupby(self.rows, key=lambda row: row.value is not None):
            yield is_put, list(run)

    @property
    def messages(self) -> tuple[Delivery, ...]:
        """The entries as they came, quarantined ones too."""
        return self.batch.messages if self.batch else ()

    @property
    def quarantined(self) -> list[Delivery]:
        """Entries to keep apart from the data, for an operator to look at."""
        for message in self.batch.messages if self.batch else ():
            if message.quarantine:  # Hardly ever.
                return [message for message in self.messages if message.quarantine]
        return []

    def headers(self, entry: int) -> tuple[Header, ...]:
        """The (name, value) headers of the transaction with this index, in order.

        Args:
            entry: The index, as in ``Row.entry``.

        Example:
            >>> dict(change.headers(row.entry)).get("trace")  # doctest: +SKIP
            b'4bf92f35'
        """
        for message in self.messages:
            if message.index == entry:
                return decode_headers(message.payload)
        return ()

    def __repr__(self) -> str:
        what = f"({self.batch.prev}, {self.batch.to}]" if self.batch else "open"
        return f"Change({self.session} {what}, {len(self.messages)} entries)"


def decode_rows(message: Delivery) -> list[Row]:
    """The rows of one entry, or Poison if its payload is not a transaction."""
    index, payload, _, _ = message
    try:
        return read_rows(index, payload)
    except Malformed as error:
        raise Poison(f"entry {index} cannot be understood: {error}", index) from None


@runtime_checkable
class Target(Protocol):
    """A place that entries are played into.

    The server calls both methods from one thread, never two at once. Any exception other than Rejected and Poison
    ends the stream with the error; the player opens a new session later, and what was stored decides what it sends.

    Example:
        >>> import logplayer as lp
        >>> isinstance(lp.MemoryTarget(), lp.Target)
        True
    """

    def position(self) -> Position:
        """What is stored; ``Position()`` if nothing ever was.

        Raises:
            Exception: The store cannot be read now. The player tries again.

        Example:
            >>> store.position().index  # doctest: +SKIP
            42
        """

    def apply(self, change: Change) -> Position:
        """In one atomic and durable step: check the stored position, write the rows and the new position, return it.

        A crash at any point leaves all of the change or nothing of it.

        Args:
            change: What to write. ``change.check`` has the rules, ``change.rows`` the rows.

        Raises:
            Rejected: The change does not fit what is stored; ``change.check`` raises it.
            Poison: An entry can never be written. The entries before it are then applied without it.
            Exception: The store cannot be written now. It ends the stream, and the player opens another one later.

        Example:
            >>> with self.db:  # doctest: +SKIP
            ...     after = change.check(self.position())
            ...     for row in change.rows:
            ...         self.write(row.key, row.value)
            ...     self.store(after)
        """


@runtime_checkable
class Store(Target, Protocol):
    """A target that comes with LogPlayer: keys and values that can be read back, for readers and audits.

    ``get``, ``scan`` and ``quarantine`` may be called in any thread.
    """

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; None if there is none. Of tables: the row with this key, as JSON.

        Args:
            key: The key. Of tables it is that of the log's rows, such as ``orders/7``.

        Raises:
            Exception: What the database's driver raises if it cannot be read now.

        Example:
            >>> store.get(b"alice")  # doctest: +SKIP
            b'90'
        """

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        """Every key with its value, in no particular order. Of tables: every row as JSON, if its table has a key.

        Raises:
            Exception: What the database's driver raises if it cannot be read now.

        Example:
            >>> dict(store.scan())  # doctest: +SKIP
            {b'alice': b'90', b'bob': b'110'}
        """

    def quarantine(self) -> Iterator[tuple[int, bytes]]:
        """Every quarantined delivery: its index and its payload.

        Raises:
            Exception: What the database's driver raises if it cannot be read now.

        Example:
            >>> [index for index, payload in store.quarantine()]  # doctest: +SKIP
            [17]
        """

    def close(self) -> None:
        """Give back files and connections; call nothing after it.

        Example:
            >>> store.close()  # doctest: +SKIP
        """
