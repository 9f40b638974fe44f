"""Tables in the documentation that repeat what the code declares: each has all of it, and nothing else."""

from __future__ import annotations

import re

import grpc

from logplayer.log.etcd.keys import Keys
from logplayer.log.grpc_errors import _CODES
from logplayer.spark.options import KNOWN
from tests import ROOT


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def test_log_md_has_the_status_code_of_every_error() -> None:
    rows = re.findall(r"(?m)^\| `([A-Z_]+)` \| (.*) \|$", page("log.md"))
    listed = {
        error: code
        for code, errors in rows
        if code in grpc.StatusCode.__members__
        for error in re.findall(r"`(\w+)`", errors)
    }
    assert listed == {kind.__name__: code.name for kind, code in _CODES.items()}


def test_log_md_has_the_keys_of_a_log_in_etcd() -> None:
    keys = Keys("NAME")
    single = {key.decode() for key in (keys.meta, keys.head, keys.nudge)}
    chunk, block = keys.chunk(1).decode(), keys.block(1).decode()
    parts = {f"{chunk.rpartition('/')[0]}/LAST", f"{block.rpartition('/')[0]}/NUMBER"}
    assert set(re.findall(r"(?m)^\| `(logplayer/NAME/\S+)` \|", page("log.md"))) == single | parts


def test_spark_md_names_every_option() -> None:
    named = {word.lower() for word in re.findall(r"(?:`|option\(\")(\w+)", page("spark.md"))}
    assert {name.lower() for name in KNOWN} - named == set()
