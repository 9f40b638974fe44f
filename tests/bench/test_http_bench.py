"""The measurement of what HTTP and the counters cost runs, and its side without them counts nothing."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bench.parts.http_bench import ACKS, Side
from tests import ROOT


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.parts.http_bench", "--json", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=ROOT)


def test_it_compares_with_a_side_that_neither_counts_nor_is_looked_at() -> None:
    done = run("--no-counters", "--rounds", "1", "--entries", "20000", "--paced", "3")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {side: len(rounds) for side, rounds in result["rounds"].items()} == {"without": 1, "with": 1}
    for figures in result["median"].values():
        assert figures["entries_per_second"] > 0
        assert figures["delay_ms_p50"] > 0


@pytest.mark.parametrize("options", [("--unobserved",), ("--other", "src")])
def test_what_it_cannot_compare_is_refused(options: tuple[str, ...]) -> None:
    assert run("--no-counters", *options).returncode == 2


@pytest.mark.parametrize(("counts", "acks"), [(True, 0), (False, 5)])
def test_a_side_that_counts_otherwise_than_meant_fails(tmp_path: Path, counts: bool, acks: int) -> None:
    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"# HELP\n{ACKS} {acks}.0\n".encode())

    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        side = Side(tmp_path, observed=True, counts=counts)
        side.faces[2] = f"127.0.0.1:{server.server_port}"
        with pytest.raises(RuntimeError, match=f"{ACKS} is {acks} on the side"):
            side.check_counters()
