"""``logplayer cluster`` as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from logplayer.cli.cluster import ENGINES
from logplayer.errors import UserError
from logplayer.log.local_cluster import free_ports
from tests.log.log_support import missing


def run(verb: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "logplayer.cli", *verb.split(), *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=90)


@pytest.mark.parametrize("engine", ["nats", "etcd"])
def test_up_status_append_down(tmp_path: Path, engine: str) -> None:
    kind = ENGINES[engine]
    try:
        kind.find_server()
    except UserError as error:
        missing(str(error))
    where = ("--dir", str(tmp_path / "c"))
    port = ("--engine", engine, "--port", str(free_ports(kind.offsets, 1)))
    try:
        up = json.loads(run("cluster up", *where, *port, "--json").stdout)
        assert up["address"].startswith(f"{engine}://127.0.0.1:")
        assert [node["syncs"] for node in up["nodes"]] == [True] * 3
        assert len({node["pid"] for node in up["nodes"]}) == 3
        log = ("--log", up["address"])
        line = '{"producer": "p", "sequence": 1, "mutations": [{"key": "k", "value": "v"}]}\n'
        assert run("log append", *log, stdin=line).stdout == "appended 1 transaction, indexes 1 to 1\n"
        assert '"value": "v"' in run("log dump", *log).stdout
        assert "1 entry is right" in run("log verify", *log).stdout
        gap = run("log append", *log, stdin=line.replace("1", "7"))
        assert gap.returncode == 2
        assert "send 2 next" in gap.stderr
        again = json.loads(run("cluster up", *where, *port, "--json").stdout)
        assert again["nodes"] == up["nodes"], "a running cluster was started again"
        mixed = run("cluster up", *where, "--engine", "etcd" if engine == "nats" else "nats")
        assert mixed.returncode == 2
        assert f"was made with --engine {engine}" in mixed.stderr
        os.kill(up["nodes"][0]["pid"], 9)
        status = run("cluster status", *where).stdout
        assert "n1" in status
        assert "down" in status.splitlines()[0]
        other = run("cluster up", "--dir", str(tmp_path / "other"), *port)
        assert other.returncode == 1
        assert "in use" in other.stderr or "ended" in other.stderr
    finally:
        down = run("cluster down", *where, "--json")
        run("cluster down", "--dir", str(tmp_path / "other"))
    assert json.loads(down.stdout)["stopped"] in (2, 3)
    assert "no cluster in" in run("cluster status", "--dir", str(tmp_path / "nowhere")).stderr
