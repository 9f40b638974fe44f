"""Trouble of a MySQL server is no fault of an entry: the remedy of a blocked target would leave out good rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pymysql
import pytest
from pymysql.constants import ER

from logplayer.errors import Poison
from logplayer.target.stores.open import open_store
from logplayer.target.stores.tables.mysql import MysqlTables
from tests.target.store_places import Place, run_sql
from tests.target.test_tables import Shop

SERVER = {
    "no room": (1021, 1026, 1030, 1114, 3675),
    "no memory": (1037, 1038, 1041, 1135, 1436),
    "too many": (1040, 1129, 1203, 1226, 1461),
    "locks": (1020, 1205, 1206, 1213, 1223, 3572),
    "shutting down": (1053, 1077, 1079, 1152, 1184, 1927, 3169),
    "read-only": (1036, 1290, 1792, 1836),
    "killed, or too slow": (1317, 1028, 1969, 3024, 1180),
    "the network": (1042, 1154, 1156, 1158, 1159, 1160, 1161, 2006, 2013, 2055),
    "a table that must be repaired": (1034, 1194, 1195),
    "an error of the server itself": (1105, 1815),
    "a definition that changed meanwhile": (1412,),
    "not known": (1999, 3999, 9999),
}
ROWS = {
    "a key": (ER.DUP_ENTRY, ER.DUP_KEY, 1586),
    "a foreign key": (ER.NO_REFERENCED_ROW_2, ER.ROW_IS_REFERENCED_2, ER.NO_REFERENCED_ROW, ER.ROW_IS_REFERENCED),
    "NULL": (ER.BAD_NULL_ERROR, ER.NO_DEFAULT_FOR_FIELD),
    "a check": (3819, ER.CONSTRAINT_FAILED, ER.VIEW_CHECK_FAILED),
    "a value": (ER.WARN_DATA_OUT_OF_RANGE, ER.WARN_DATA_TRUNCATED, ER.TRUNCATED_WRONG_VALUE, ER.DATA_TOO_LONG),
    "its type": (ER.TRUNCATED_WRONG_VALUE_FOR_FIELD, ER.ILLEGAL_VALUE_FOR_TYPE, ER.INVALID_CHARACTER_STRING),
    "JSON": (3140, 3141),
    "a table": (ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR, ER.NONUPDATEABLE_COLUMN, ER.NON_UPDATABLE_TABLE),
    "a trigger": (1644, ER.CANT_UPDATE_USED_TABLE_IN_SF_OR_TRG),
    "a right": (ER.TABLEACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR),
    "a generated column": (1906, 3105),
    "a row that is too large": (ER.NET_PACKET_TOO_LARGE, ER.TOO_BIG_ROWSIZE),
}


def is_for_good(*args: object) -> bool:
    store: Any = SimpleNamespace(_db=SimpleNamespace(open=True))
    return MysqlTables._is_for_good(store, pymysql.err.OperationalError(*args))


@pytest.mark.parametrize("what", SERVER)
def test_trouble_of_the_server_is_tried_again(what: str) -> None:
    assert [code for code in SERVER[what] if is_for_good(code, "x")] == []


@pytest.mark.parametrize("what", ROWS)
def test_what_rows_are_the_reason_of_is_for_good(what: str) -> None:
    assert [code for code in ROWS[what] if not is_for_good(code, "x")] == []


def test_an_error_without_a_code_is_tried_again() -> None:
    assert not is_for_good()
    assert not is_for_good("lost")
    store: Any = SimpleNamespace(_db=SimpleNamespace(open=False))
    assert not MysqlTables._is_for_good(store, pymysql.err.IntegrityError(ER.DUP_ENTRY, "x"))


def test_a_server_that_is_read_only_for_a_while_blocks_nothing(mysql_url: str) -> None:
    shop = Shop(Place("mysql-tables", "", mysql_url))
    name = shop.place.name
    run_sql(shop.place, f"CREATE USER {name}@localhost", f"GRANT ALL ON shop.* TO {name}@localhost")
    shop.store.close()
    url = mysql_url.replace("root@", f"{name}@")
    shop.store = open_store("mysql-tables", name, url=url)
    entry = [shop.customers.put(id=1, mail="a")]
    run_sql(shop.place, "SET GLOBAL read_only = 1")
    try:
        with pytest.raises(pymysql.err.MySQLError) as refused:
            shop.play(entry)
    finally:
        run_sql(shop.place, "SET GLOBAL read_only = 0")
    assert not isinstance(refused.value, Poison)
    assert refused.value.args[0] == ER.OPTION_PREVENTS_STATEMENT
    shop.play(entry)
    assert shop.rows("c") == [(1, "a")]
    shop.store.close()
