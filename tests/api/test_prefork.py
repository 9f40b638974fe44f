"""The web example under a server whose workers fork, one of which is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path

import pytest

import logplayer as lp
from tests import ROOT

VISITORS, WRITES = 4, 15


@contextlib.contextmanager
def child(*command: str, **environ: str) -> Iterator[str]:
    """A process of ours, until it is not needed any more; the line that it says when it is ready."""
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, **environ}
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def ask(url: str, body: bytes | None = None) -> tuple[bytes, int]:
    """The answer, and the worker that gave it. What a killed worker did not answer is asked again."""
    for _ in range(100):
        request = urllib.request.Request(url, data=body, method="GET" if body is None else "PUT")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read(), int(answer.headers["X-Worker"])
        except urllib.error.HTTPError:
            raise
        except (OSError, HTTPException):
            continue
    raise AssertionError(f"no worker answers {url}")


@pytest.mark.parametrize(("kind", "words"), [("example", ["--use-first"]), ("flask", [])])
def test_workers_fork_and_one_is_killed(kind: str, words: list[str], tmp_path: Path) -> None:
    shard = str(tmp_path / "accounts.db")
    serve = ("-m", "logplayer.cli", "log", "serve", "--log", f"file://{tmp_path}/log", "--listen", "127.0.0.1:0")
    workers: set[int] = set()
    acknowledged: dict[int, tuple[str, str]] = {}
    half = threading.Barrier(VISITORS)

    def visit(url: str, customer: int) -> None:
        key = f"customer-{customer}"
        for balance in range(WRITES):
            if balance == WRITES // 2 and half.wait(120) == 0:
                os.kill(max(workers), signal.SIGKILL)
            answer, worker = ask(f"{url}/accounts/{key}", str(balance).encode())
            workers.add(worker)
            acknowledged[json.loads(answer)["index"]] = key, str(balance)
            assert ask(f"{url}/accounts/{key}")[0] == str(balance).encode(), "it does not read its own write"

    with child(*serve, "--json") as said:
        address = json.loads(said)["address"]
        with child("examples/web_handler.py", address, shard) as playing:
            assert playing == "playing\n"
            web = child("-m", "tests.api.prefork_server", kind, *words, LOG=address, SHARD=shard)
            with web as port, ThreadPoolExecutor(VISITORS) as visitors:
                list(visitors.map(visit, [f"http://127.0.0.1:{int(port)}"] * VISITORS, range(VISITORS)))
            with lp.sync.open_log(address) as log:
                found = [record for records in log.read(1, log.info().last) for record in records if not record.kind]
    assert len(workers) > 1, "one process did all of the work"
    assert len(acknowledged) == VISITORS * WRITES
    written = {record.index: record.payload for record in found}
    for index, (key, balance) in acknowledged.items():
        assert written[index] == lp.put(key, balance).encoded
    assert len({record.producer for record in found}) >= len(workers), "each process has a producer of its own"
