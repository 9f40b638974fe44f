"""The benchmark of the logs runs on each of them, and reports what the documentation takes from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from logplayer.errors import UserError
from logplayer.log.etcd.local_cluster import EtcdCluster
from tests import ROOT
from tests.servers import missing

MEASURED = ("append_1", "append_10", "append_100", "tail_after_ack", "catch_up", "floor", "floor_100")


@pytest.mark.parametrize("log", ["file", "grpc", "nats", "etcd"])
def test_it_reports_what_it_measures(tmp_path: Path, log: str) -> None:
    if log == "etcd":
        try:
            EtcdCluster.find_server()
        except UserError as error:
            missing(str(error))
    command = [sys.executable, str(ROOT / "bench/parts/log_bench.py"), "--log", log, "--scale", "0.02", "--json"]
    done = subprocess.run([*command, "--dir", str(tmp_path)], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    replicated = log in ("nats", "etcd")
    assert (result["log"], "failover" in result, "bare_publish" in result) == (log, replicated, log == "nats")
    for name in MEASURED:
        assert all(value >= 0 for value in result[name].values()), result
    assert result["catch_up"]["entries"] > 100
    assert set(result["ratios"]) >= {"append_1_to_floor", "append_100_to_floor_mb"}
    if replicated:
        assert result["failover"]["kills"] == 2
        assert result["failover"]["worst_ms"] >= result["failover"]["p50_ms"] > 0
        assert result["failover"]["server"][0].isdigit()
    assert not list(tmp_path.iterdir())
