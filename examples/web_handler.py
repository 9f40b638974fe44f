"""A blocking web handler: a thread for each request, one producer for all of them, and reads that see one's own writes.

    PUT /accounts/alice    the body is the balance; answers with the log's index, once the shard has the row
    GET /accounts/alice    the balance, from the shard's own database

``python examples/web_handler.py`` starts a log server and a process with the shard and the player, serves on a free
port, and sends itself requests from eight threads. In a web server of your own only ``application`` is needed: the log
is opened when a process uses it first, so it does not matter whether the server forks workers before or after.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import logplayer as lp

log = lp.sync.open_log(os.environ.get("LOG", "grpc://127.0.0.1:7100"))
producer = log.producer()  # Without a name: every process has a producer of its own.


def application(environ: dict[str, Any], start: Callable[[str, list[tuple[str, str]]], Any]) -> Iterable[bytes]:
    """The handler, as WSGI wants it."""
    key = environ["PATH_INFO"].removeprefix("/accounts/")
    shard = os.environ["SHARD"]
    if environ["REQUEST_METHOD"] == "PUT":
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        try:
            receipt = producer.append(lp.put(key, body), timeout=10)
            receipt.applied(timeout=10)
        except lp.LogPlayerError as error:
            start("503 Service Unavailable", [("Content-Type", "text/plain; charset=utf-8")])
            return [str(error).encode()]
        start("201 Created", [("Content-Type", "application/json")])
        return [json.dumps({"index": receipt.index}).encode()]
    found = lp.SqliteTarget(shard, "accounts", read_only=True).get(key.encode())
    start("200 OK" if found is not None else "404 Not Found", [("Content-Type", "text/plain")])
    return [found or b""]


# --- What is below only makes this file a program that shows itself. ---


class ThreadingServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


async def play(address: str, shard: str) -> None:
    """The shard and the player, in a process of their own."""
    stores = {"accounts": lp.SqliteTarget(shard, "accounts")}
    async with (
        lp.open_log(address) as opened,
        lp.TargetServer(stores) as server,
        lp.Player(opened, targets={"accounts": server.address}) as player,
    ):
        print("playing", flush=True)
        await player.wait()


@contextmanager
def child(*command: str) -> Iterator[str]:
    """A process that says one line when it is ready, until it is not needed any more."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline()
    finally:
        process.terminate()
        process.wait()


def ask(url: str, body: bytes | None = None) -> bytes:
    request = urllib.request.Request(url, data=body, method="GET" if body is None else "PUT")
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: bytes = answer.read()
        return found


def visit(url: str, customer: int) -> int:
    """Put and get, again and again: each read sees the write before it."""
    for balance in range(20):
        ask(f"{url}/accounts/customer-{customer}", str(balance).encode())
        assert ask(f"{url}/accounts/customer-{customer}") == str(balance).encode()
    return 20


def main() -> None:
    if len(sys.argv) > 1:
        asyncio.run(play(*sys.argv[1:]))
        return
    with tempfile.TemporaryDirectory() as folder:
        shard = str(Path(folder) / "accounts.db")
        served = (
            "-m",
            "logplayer.cli",
            "log",
            "serve",
            "--log",
            f"file://{folder}/log",
            "--listen",
            "127.0.0.1:0",
            "--json",
        )
        with child(*served) as line:
            address = json.loads(line)["address"]
            with child(__file__, address, shard):
                os.environ["SHARD"] = shard
                log.address = address
                server = make_server("127.0.0.1", 0, application, ThreadingServer, Quiet)
                threading.Thread(target=server.serve_forever, daemon=True).start()
                with ThreadPoolExecutor(8) as visitors:
                    done = sum(visitors.map(visit, [f"http://127.0.0.1:{server.server_port}"] * 8, range(8)))
                server.shutdown()
                print(f"{done} writes, each read back; {log.newest(producer.name).sequence} transactions in the log")
                log.close()


if __name__ == "__main__":
    main()
