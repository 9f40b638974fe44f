"""A capture warns at its start of foreign keys that the log's map would tear."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from logplayer.core.entry import HashMap, MapChanged, ShardMap
from logplayer.log import control_chain
from logplayer.log.open import open_log
from tests.capture.capture_support import Source, capture

SHOP = (
    "CREATE TABLE customers (id int PRIMARY KEY)",
    "CREATE TABLE countries (code text PRIMARY KEY)",
    "CREATE TABLE orders (customer int REFERENCES customers, n int, country text REFERENCES countries, "
    "PRIMARY KEY (customer, n))",
    "CREATE TABLE notes (id int PRIMARY KEY, country text REFERENCES countries)",
    "INSERT INTO customers SELECT generate_series(1, 9)",
    "INSERT INTO orders SELECT generate_series(1, 9), 1",
)


def warnings(records: list[logging.LogRecord]) -> list[str]:
    return [record.getMessage() for record in records if "tears a foreign key" in record.getMessage()]


@pytest.mark.parametrize("recorded", [False, True])
async def test_it_warns_by_the_recorded_map_or_the_given_one(
    source: Source, tmp_path: Path, caplog: pytest.LogCaptureFixture, recorded: bool
) -> None:
    source.run(*SHOP)
    whole: ShardMap = HashMap(("a", "b"))
    tagged = HashMap(("a", "b"), "tag")
    if recorded:
        log = await open_log(f"file://{tmp_path}/wal")
        await control_chain.append(log, MapChanged(whole), None, (("a", "grpc://h:1"), ("b", "grpc://h:2")))
        await log.close()
    given = None if recorded else whole
    await capture(source, tmp_path, "customers", "orders", first_map=given)
    said = warnings(caplog.records)
    assert len(said) == 2
    assert "the map hash:a,b tears a foreign key" in said[0]
    assert "orders_customer_fkey" in "".join(said)
    assert "--place orders=customer --place customers=id" in "".join(said)
    assert "no rows of table countries come by this log" in "".join(said)
    assert "notes" not in "".join(said), "it is not captured"
    caplog.clear()
    places = {"customers": "id", "orders": "customer"}
    await capture(source, tmp_path, "customers", "orders", first_map=tagged, place=places)
    assert len(warnings(caplog.records)) == (2 if recorded else 1), "the log's own map counts"


async def test_without_a_map_it_says_nothing(source: Source, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source.run(*SHOP)
    await capture(source, tmp_path, "customers", "orders")
    assert warnings(caplog.records) == []
