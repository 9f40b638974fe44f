"""An outbox without a table: what an application wants to append travels in its own database transaction.

``emit`` writes a logical message into PostgreSQL's write-ahead log (``pg_logical_emit_message``). It is there if and
only if the transaction commits, no table holds it, and ``logplayer capture postgres`` makes it a part of that
transaction's entry. Nothing has to be deleted later.

Example:
    >>> lp.outbox.emit(connection, lp.put("order-7", "paid", target="mailer"))  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

from logplayer.capture.outbox_payload import decode_outbox
from logplayer.core.entry import Mutation
from logplayer.errors import EntryTooLarge, UserError
from logplayer.log.mutations import Headers, transaction
from logplayer.log.protocol import ENTRY_BYTES_MAX

__all__ = ["emit", "statement"]
_IDLE = 0  # libpq: no transaction is open.


def emit(connection: Any, *mutations: Mutation, headers: Headers = ()) -> None:
    """Append to the log what this transaction commits.

    Args:
        connection: An open connection of psycopg or Django, or a Connection or Session of SQLAlchemy.
        mutations: What to append: ``lp.put(...)``, ``lp.table(...).put(...)`` and so on.
        headers: What to say about it, as for ``Producer.append``.

    Raises:
        BadRequest: A mutation or a header is wrong.
        EntryTooLarge: It is larger than an entry may be.
        UserError: The connection is in autocommit mode without an open transaction, or of another kind.

    Example:
        >>> with connection.transaction():  # doctest: +SKIP
        ...     connection.execute("UPDATE orders SET paid = true WHERE id = 7")
        ...     lp.outbox.emit(connection, lp.put("order-7", "paid", target="mailer"))
    """
    text = statement(*mutations, headers=headers)
    if hasattr(connection, "get_bind") and hasattr(connection, "connection"):  # A Session of SQLAlchemy.
        connection = connection.connection()
    if hasattr(connection, "exec_driver_sql"):  # A Connection of SQLAlchemy.
        raw = connection.connection.dbapi_connection
        if getattr(raw, "autocommit", False):
            raise _no_transaction("SQLAlchemy's isolation level AUTOCOMMIT")
        connection.exec_driver_sql(text)
        return
    if getattr(connection, "in_atomic_block", True) is False:  # Django's.
        raise _no_transaction("outside of transaction.atomic()")
    if not hasattr(connection, "cursor"):
        raise UserError(
            f"{type(connection).__name__} is not a connection that emit knows; run lp.outbox.statement(...) on it"
        )
    info = getattr(connection, "info", None)
    if getattr(connection, "autocommit", False) is True and getattr(info, "transaction_status", _IDLE) == _IDLE:
        raise _no_transaction("autocommit, and no transaction is open")
    with connection.cursor() as cursor:
        cursor.execute(text)


def statement(*mutations: Mutation, headers: Headers = ()) -> str:
    """The SQL that ``emit`` runs, for connections that it does not know, for example asynchronous ones.

    Args:
        mutations: As for :func:`emit`.
        headers: As for :func:`emit`.

    Raises:
        BadRequest: A mutation or a header is wrong.
        EntryTooLarge: It is larger than an entry may be.
        UserError: It has a statement, or a header whose name belongs to the capture.

    Example:
        >>> import logplayer as lp
        >>> statement(lp.put("k", "v"))
        "SELECT pg_logical_emit_message(true, 'logplayer', decode('0a060a016b120176', 'hex'))"
    """
    payload = transaction(mutations, headers)
    decode_outbox(payload)  # What a capture could not use is refused here, where its author is.
    if len(payload) > ENTRY_BYTES_MAX // 2:
        raise EntryTooLarge(f"an outbox message has {len(payload)} bytes; the limit is {ENTRY_BYTES_MAX // 2}")
    return f"SELECT pg_logical_emit_message(true, 'logplayer', decode('{payload.hex()}', 'hex'))"


def _no_transaction(how: str) -> UserError:
    return UserError(
        f"the connection commits every statement by itself ({how}), so the message would not belong to the "
        "application's "
        "transaction; open one around both"
    )
