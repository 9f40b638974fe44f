"""Etcd servers for tests that need settings of their own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from logplayer.errors import UserError
from logplayer.log.etcd.local_cluster import EtcdCluster
from tests.log.log_support import free_port, missing


def require_etcd() -> str:
    try:
        return EtcdCluster.find_server()
    except UserError as error:
        missing(str(error))


@contextlib.contextmanager
def one_etcd(folder: Path, scheme: str = "http", **options: str) -> Iterator[int]:
    """A cluster of one server; the port for its clients."""
    port, peer = free_port(), free_port()
    client, other = f"{scheme}://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
    given = {
        "data-dir": str(folder / "data"),
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": other,
        "initial-advertise-peer-urls": other,
        "initial-cluster": f"default={other}",
        "logger": "zap",
        "log-level": "error",
    } | {name.replace("_", "-"): value for name, value in options.items()}
    command = [require_etcd(), *(f"--{name}={value}" for name, value in given.items())]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.kill()  # Its data is thrown away.
        process.wait()


def ask_gateway(port: int, path: str, token: str = "", **content: Any) -> dict[str, Any]:
    """What an operator does with etcdctl; tried until the server is there."""
    headers = {"Authorization": token} if token else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v3/{path}", json.dumps(content).encode(), headers)
    for _ in range(599):
        with contextlib.suppress(OSError):
            return _answer(request)
        time.sleep(0.1)
    return _answer(request)


def _answer(request: urllib.request.Request) -> dict[str, Any]:
    with urllib.request.urlopen(request, timeout=10) as reply:
        found: dict[str, Any] = json.loads(reply.read())
        return found


def enable_users(port: int) -> None:
    """Two users with the password ``secret``: ``root``, and ``app``, who may touch the keys of logs."""
    for name in ("root", "app"):
        ask_gateway(port, "auth/user/add", name=name, password="secret")
        ask_gateway(port, "auth/role/add", name=name)
    keys = {"key": "bG9ncGxheWVyLw==", "range_end": "bG9ncGxheWVyMA=="}  # logplayer/ to logplayer0
    ask_gateway(port, "auth/role/grant", name="app", perm={"permType": "READWRITE", **keys})
    for name in ("root", "app"):
        ask_gateway(port, "auth/user/grant", user=name, role=name)
    ask_gateway(port, "auth/enable")


def add_user(port: int, name: str) -> None:
    """To a cluster that has users. Tokens that are signed (``--auth-token jwt``) are of no use after it."""
    token = ask_gateway(port, "auth/authenticate", name="root", password="secret")["token"]
    ask_gateway(port, "auth/user/add", token, name=name, password="secret")
