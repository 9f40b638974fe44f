"""A pre-fork server, as gunicorn is one: the parent loads the application and listens, its workers fork and serve.

    python -m tests.api.prefork_server example|flask [--use-first]

It prints its port. A worker that dies is replaced. ``--use-first``: the parent appends before it forks.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIServer, make_server

import logplayer as lp

WORKERS = 3
EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "web_handler.py"))
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def flask_application() -> Wsgi:
    """The same in Flask, with the log and the producer of the example."""
    from flask import Flask, Response, request

    app = Flask("accounts")

    @app.put("/accounts/<key>")
    def put(key: str) -> tuple[dict[str, int], int]:
        receipt = EXAMPLE["producer"].append(lp.put(key, request.get_data()), timeout=30)
        receipt.applied(timeout=30)
        return {"index": receipt.index}, 201

    @app.get("/accounts/<key>")
    def get(key: str) -> Response:
        return Response(lp.SqliteTarget(os.environ["SHARD"], "accounts", read_only=True).get(key.encode()) or b"")

    return app


def with_worker(application: Wsgi) -> Wsgi:
    """Each answer says which process gave it."""

    def named(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        def started(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            return start(status, [*headers, ("X-Worker", str(os.getpid()))], *more)

        return application(environ, started)

    return named


def serve(server: WSGIServer) -> int:
    """A worker; its process id."""
    if pid := os.fork():
        return pid
    try:
        server.serve_forever()
    finally:
        os._exit(1)


def main() -> None:
    kind = sys.argv[1]
    application = with_worker(EXAMPLE["application"] if kind == "example" else flask_application())
    if "--use-first" in sys.argv:
        EXAMPLE["producer"].append(lp.put("parent", "1")).applied()
    server = make_server("127.0.0.1", 0, application, EXAMPLE["ThreadingServer"], EXAMPLE["Quiet"])
    workers = {serve(server) for _ in range(WORKERS)}
    print(server.server_port, flush=True)
    try:
        while True:
            died, _ = os.wait()
            workers.discard(died)
            workers.add(serve(server))
    finally:
        for worker in workers:
            os.kill(worker, 9)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
