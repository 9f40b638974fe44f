"""The ``log`` verbs as a user runs them: real processes, exit codes, one clear line for each mistake."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from logplayer.testing.conformance.log_check import payload
from logplayer.testing.conformance.log_harness import flip_in_files


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "logplayer.cli", "log", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60)


def lines(result: subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def transaction(value: str, **more: object) -> str:
    return json.dumps({"mutations": [{"key": "k", "value": value}], **more}) + "\n"


def test_the_way_of_a_transaction(tmp_path: Path) -> None:
    log = ("--log", f"file://{tmp_path}/log", "--json")
    text = transaction("1", producer="p1", sequence=1) + "\n" + transaction("2", producer="p1", sequence=2)
    assert [line["index"] for line in lines(run("append", *log, stdin=text))] == [1, 2]
    assert [line["index"] for line in lines(run("append", *log, stdin=text))] == [1, 2]
    odd = {"key": {"base64": "/w=="}, "op": "delete", "target": "t1"}
    [own] = lines(run("append", *log, stdin=json.dumps({"mutations": [odd]})))
    assert own["index"] == 3
    assert str(own["producer"]).startswith("cli-")
    shown = lines(run("dump", *log))
    assert [line["index"] for line in shown] == [1, 2, 3]
    assert shown[0]["mutations"] == [{"key": "k", "value": "1"}]
    assert shown[2]["mutations"] == [odd]
    assert [line["index"] for line in lines(run("dump", *log, "--from", "2", "--to", "2"))] == [2]
    assert [line["index"] for line in lines(run("tail", *log, "--from", "1", "--count", "2"))] == [1, 2]
    [facts] = lines(run("info", *log))
    assert (facts["first"], facts["last"]) == (1, 3)
    [trimmed] = lines(run("trim", *log, "--up-to", "2"))
    assert trimmed["first"] == 3
    [verified] = lines(run("verify", *log))
    assert (verified["checked"], verified["damaged"]) == (1, [])


def test_headers_go_in_and_come_out(tmp_path: Path) -> None:
    log = ("--log", f"file://{tmp_path}/log", "--json")
    named = {"trace": "00-abc", "raw": {"base64": "/w=="}}
    twice = [["n", "1"], ["n", "2"]]
    assert run("append", *log, stdin=transaction("1", headers=named) + transaction("2", headers=twice)).returncode == 0
    assert [line["headers"] for line in lines(run("dump", *log))] == [named, twice]


def test_text_for_people(tmp_path: Path) -> None:
    log = ("--log", f"file://{tmp_path}/log")
    assert run("append", *log, stdin=transaction("1") * 3).stdout == "appended 3 transactions, indexes 1 to 3\n"
    assert '[{"key": "k", "value": "1"}]' in run("dump", *log).stdout
    assert f"{'last':<13} 3\n" in run("info", *log).stdout
    assert "3 entries are right, 0 damaged" in run("verify", *log).stdout
    assert run("trim", *log, "--up-to", "3").stdout == "the first entry is now 4\n"


def test_verify_names_the_damaged_entry(tmp_path: Path) -> None:
    log = ("--log", f"file://{tmp_path}/log", "--json")
    values = [payload("v", n, 100).hex() for n in range(10)]
    run("append", *log, stdin="".join(transaction(value) for value in values))
    assert flip_in_files(sorted((tmp_path / "log").glob("*.seg")), values[6].encode()) == 1
    result = run("verify", *log)
    assert result.returncode == 1
    assert json.loads(result.stdout)["damaged"] == [7]
    assert json.loads(result.stdout)["checked"] == 9
    assert "entry 7 is damaged" in result.stderr


GOOD = transaction("1", producer="p", sequence=1)


@pytest.mark.parametrize(
    ("stdin", "says"),
    [
        (
            GOOD + transaction("2", producer="p", sequence=5),
            "line 2: producer 'p' sent sequence 5, but",
        ),
        (GOOD + "{nonsense\n", "line 2 is not JSON"),
        (GOOD + '{"mutation": []}\n', "line 2 has no list of mutations"),
        (GOOD + '{"mutations": [{"value": "v"}]}\n', "line 2, mutation 1 has no key"),
        (GOOD + '{"mutations": [{"key": "k", "value": "v", "op": "upsert"}]}\n', "must be put or delete"),
        (GOOD + '{"mutations": [{"key": "k"}]}\n', "a put needs one"),
        (GOOD + '{"mutations": []}\n', "line 2 has an empty list of mutations"),
        (GOOD + '{"producer": "p", "mutations": []}\n', "give both or neither"),
        (GOOD + '{"mutations": [], "sequnce": 1}\n', "unknown field 'sequnce'"),
        (GOOD + transaction("1", headers=["n"]), "line 2: headers must be an object"),
        (GOOD + transaction("1", headers={"n": 7}), "line 2, header 'n': key and value must be text"),
        (GOOD + transaction("x" * (4 << 20)), "the limit is 4194304"),
    ],
)
def test_bad_lines(tmp_path: Path, stdin: str, says: str) -> None:
    """One clear line, exit code 2, and the lines before the bad one are in the log."""
    log = ("--log", f"file://{tmp_path}/log")
    result = run("append", *log, stdin=stdin)
    assert result.returncode == 2
    assert says in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert f"{'last':<13} 1\n" in run("info", *log).stdout


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("fiel:///x", "did you mean file://"),
        ("tcp://127.0.0.1:7100", "did you mean grpc://"),
        ("file://relative", "three slashes"),
        ("/var/wal", "write for example file:///var/wal"),
        ("grpc://host", "needs host:port"),
        ("nats://127.0.0.1:4222", "must end with the log's name"),
        ("nats://127.0.0.1:99999/x", "needs host:port"),
        ("ftp://x", "unknown scheme 'ftp'"),
        ("file:///dev/null", "is a file"),
        ("file:///etc", "is not a log"),
        ("file:///nonexistent", "no log at"),
    ],
)
def test_bad_addresses(address: str, says: str) -> None:
    result = run("info", "--log", address)
    assert result.returncode == 2
    assert says in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_port_in_use_and_bad_numbers(tmp_path: Path) -> None:
    log = ("--log", f"file://{tmp_path}/log")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("serve", *log, "--listen", f"127.0.0.1:{port}")
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert f"cannot listen at 127.0.0.1:{port}" in result.stderr
    assert run("serve", *log, "--listen", "nowhere").returncode == 2
    trim = run("trim", *log, "--up-to", "7")
    assert trim.returncode == 2
    assert "the newest entry is 0" in trim.stderr
    assert run("dump", *log, "--from", "0", "--to", "3").returncode in (0, 2)
