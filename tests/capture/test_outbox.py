"""``lp.outbox.emit`` in the real libraries: the message is in the application's own transaction, or nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

import logplayer as lp
from logplayer.wire.entries import decode_headers
from logplayer.wire.logplayer.v1 import entry_pb2 as pb
from tests.capture.capture_support import Source, capture, entries
from tests.servers import missing

INSERT = "INSERT INTO t DEFAULT VALUES"
MAIL = lp.put("mail-1", "paid", target="mailer")


def by_psycopg(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(INSERT)
        lp.outbox.emit(connection, MAIL, headers={"trace": "1"})
        connection.commit()
        connection.execute(INSERT)
        lp.outbox.emit(connection, lp.put("lost", "x"))
        connection.rollback()
    with psycopg.connect(url, autocommit=True) as connection:
        with pytest.raises(lp.UserError, match="no transaction is open"):
            lp.outbox.emit(connection, MAIL)
        with connection.transaction():
            lp.outbox.emit(connection, lp.table("t").delete(id=1))


def by_sqlalchemy(url: str) -> None:
    import sqlalchemy
    from sqlalchemy.orm import Session

    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(INSERT))
        lp.outbox.emit(connection, MAIL, headers={"trace": "1"})
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text(INSERT))
        lp.outbox.emit(connection, lp.put("lost", "x"))  # It is not committed.
    with engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        with pytest.raises(lp.UserError, match="AUTOCOMMIT"):
            lp.outbox.emit(connection, MAIL)
    with Session(engine) as session, session.begin():
        lp.outbox.emit(session, lp.table("t").delete(id=1))
    engine.dispose()


def by_django(url: str) -> None:
    from django.conf import settings

    parts = psycopg.conninfo.conninfo_to_dict(url)
    named = {"NAME": parts["dbname"], "USER": parts["user"], "HOST": parts["host"], "PORT": parts["port"]}
    settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **named}})
    from django.db import connection, transaction

    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(INSERT)
        lp.outbox.emit(connection, MAIL, headers={"trace": "1"})
    with transaction.atomic():
        lp.outbox.emit(connection, lp.put("lost", "x"))
        transaction.set_rollback(True)
    with pytest.raises(lp.UserError, match="atomic"):
        lp.outbox.emit(connection, MAIL)
    with transaction.atomic():
        lp.outbox.emit(connection, lp.table("t").delete(id=1))
    connection.close()


@pytest.mark.parametrize("application", [by_psycopg, by_sqlalchemy, by_django])
async def test_a_message_belongs_to_its_transaction(
    source: Source, tmp_path: Path, application: Callable[[str], None]
) -> None:
    try:
        import django as django
        import sqlalchemy as sqlalchemy
    except ImportError as error:
        missing(str(error))
    source.run("CREATE TABLE t (id serial PRIMARY KEY)")
    await capture(source, tmp_path, "t")
    await asyncio.to_thread(application, source.url)
    await capture(source, tmp_path, "t")
    found = [payload for _, name, _, payload in await entries(tmp_path) if name == f"capture/{source.slot}"][2:]
    shown = [
        [(one.table, one.key, one.op == pb.DELETE, one.target) for one in pb.Transaction.FromString(payload).mutations]
        for payload in found
    ]
    assert shown == [
        [("t", b"t/1", False, ""), ("", b"mail-1", False, "mailer")],
        [("t", b"t/1", True, "")],
    ]
    assert dict(decode_headers(found[0]))["trace"] == b"1"
    assert "trace" not in dict(decode_headers(found[1]))


async def test_a_line_of_json_will_do(source: Source, tmp_path: Path) -> None:
    source.run("CREATE TABLE t (id serial PRIMARY KEY)")
    await capture(source, tmp_path, "t")
    line = '{"mutations": [{"key": "k", "value": "v"}]}'
    source.db.execute("SELECT pg_logical_emit_message(true, 'logplayer', %s)", (line,))
    await capture(source, tmp_path, "t")
    found = [payload for _, name, _, payload in await entries(tmp_path) if name == f"capture/{source.slot}"]
    assert pb.Transaction.FromString(found[-1]).mutations[0].value == b"v"


def test_what_emit_cannot_use_is_refused() -> None:
    with pytest.raises(lp.UserError, match=r"outbox\.statement"):
        lp.outbox.emit(object(), MAIL)
    with pytest.raises(lp.EntryTooLarge):
        lp.outbox.statement(lp.put("k", "x" * 3_000_000))
    with pytest.raises(lp.BadRequest):
        lp.outbox.statement()
    with pytest.raises(lp.UserError, match="entry of its own"):
        lp.outbox.statement(*lp.ddl("DROP TABLE t", targets=["a"]))
