"""What a process answers over HTTP.

=============================== ================================================================ ==============
``GET /status``                 the process as one JSON object, with ``version`` and ``kind``    to who may look
``GET /metrics``                for Prometheus                                                   to who may look
``GET /events``                 the status and its changes, as server-sent events                to who may look
``GET /timeline?since=N``       what happened after item N of the time line                      to who may look
``GET /healthz``                200 while the process answers                                    to everybody
``GET /readyz``                 200 once it does its work, else 503                              to everybody
``POST /actions/NAME``          does something; the body is a JSON object                        to who may act
``GET /``                       the page, where there is one                                     to everybody
=============================== ================================================================ ==============

An error is ``{"error": TEXT}`` with 400 for the asker's mistake, 401 or 403 for a token, 503 for "ask again".
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from logplayer.admin.access import Access, AccessRefused
from logplayer.admin.exposition import CONTENT_TYPE, Samples, exposition
from logplayer.admin.feed import EventFeed
from logplayer.admin.http_server import ENDLESS, HttpServer
from logplayer.admin.status_client import VERSION
from logplayer.errors import LogPlayerError, Malformed, Unavailable, UserError
from logplayer.observe.timeline import Timeline
from logplayer.wire.security import NONE, Security

BODY_BYTES_MAX = 64 << 10
LONG_BODY_BYTES_MAX = 4 << 20  # Only from whoever has shown a token.
_HEADERS = {"connection": "close", "cache-control": "no-store", "x-content-type-options": "nosniff"}
_PAGE = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/parts.js": ("parts.js", "text/javascript"),
    "/actions.js": ("actions.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_log = logging.getLogger(__name__)

Facts = Mapping[str, Any]
Action = Callable[[Facts], Awaitable[Facts]]


@dataclass(frozen=True)
class Face:
    """What one process shows and lets do."""

    kind: str  # log, target, player, spark, capture or dashboard
    status: Callable[[], Awaitable[Facts]]
    not_ready: Callable[[], Awaitable[str]]  # Why it does not do its work yet; empty when it does.
    metrics: Callable[[Samples], Awaitable[None]]
    actions: Mapping[str, Action] = field(default_factory=dict)
    timeline: Timeline | None = None
    page: bool = False


def face_app(face: Face, access: Access, feed: EventFeed | None = None) -> Starlette:
    """The application of a process."""
    followed = feed or EventFeed(lambda: _whole(face), face.timeline)

    async def status(request: Request) -> Response:
        access.may_look(request)
        return _json(await _whole(face))

    async def events(request: Request) -> Response:
        access.may_look(request)
        getattr(request.state, ENDLESS)()
        return StreamingResponse(followed.follow(), media_type="text/event-stream", headers=_HEADERS)

    async def timeline(request: Request) -> Response:
        access.may_look(request)
        told = face.timeline
        since = request.query_params.get("since", "0")
        items = told.since(int(since) if since.isdigit() else 0) if told is not None else []
        return _json({"of": told.name if told is not None else "", "items": items})

    async def metrics(request: Request) -> Response:
        access.may_look(request)
        samples = Samples()
        await face.metrics(samples)
        return Response(exposition(samples), headers={**_HEADERS, "content-type": CONTENT_TYPE})

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok\n", headers=_HEADERS)

    async def readyz(request: Request) -> Response:
        why = await face.not_ready()
        return PlainTextResponse(f"{why or 'ok'}\n", 503 if why else 200, headers=_HEADERS)

    async def act(request: Request) -> Response:
        access.may_act(request)
        wanted = face.actions.get(request.path_params["name"])
        if wanted is None:
            known = ", ".join(face.actions) or "none"
            raise UserError(f"there is no action {request.path_params['name']!r} here; there are: {known}")
        return _json(await wanted(await body_of(request)))

    routes: list[BaseRoute] = [
        Route("/status", status),
        Route("/metrics", metrics),
        Route("/events", events),
        Route("/timeline", timeline),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/actions/{name}", act, methods=["POST"]),
    ]
    return made_app([*routes, *(page_routes() if face.page else ())])


async def _whole(face: Face) -> Facts:
    """The status as it is shown: a reader can tell what it is and whether it knows this version."""
    return {"version": VERSION, "kind": face.kind, "actions": sorted(face.actions), **await face.status()}


def page_routes() -> list[BaseRoute]:
    """The page's own files; it asks for nothing else."""

    def route(path: str, name: str, kind: str) -> Route:
        content = resources.files(__package__).joinpath("page", name).read_bytes()

        async def answer(request: Request) -> Response:
            return Response(content, headers={**_HEADERS, "content-type": kind, "content-security-policy": _POLICY})

        return Route(path, answer)

    return [route(path, name, f"{kind}; charset=utf-8") for path, (name, kind) in _PAGE.items()]


def question_app(answer: Callable[[Facts], Facts], access: Access) -> Starlette:
    """``POST /NAME`` asks ``answer`` with the body, and ``do`` set to the name: for tasks and their driver."""

    async def ask(request: Request) -> Response:
        access.may_act(request)
        question = await body_of(request, LONG_BODY_BYTES_MAX if access.security.token else BODY_BYTES_MAX)
        return _json(answer({**question, "do": request.path_params["name"]}))

    return made_app([Route("/{name}", ask, methods=["POST"])])


def made_app(routes: list[BaseRoute]) -> Starlette:
    """An application that answers every error as JSON, and no question with a traceback."""
    handlers: Mapping[Any, Any] = {
        LogPlayerError: _refused,
        HTTPException: _unknown,
        ClientDisconnect: _gone,
        TimeoutError: _gone,
        Exception: _odd,
    }
    return Starlette(routes=routes, exception_handlers=handlers)


async def body_of(request: Request, bytes_max: int = BODY_BYTES_MAX) -> dict[str, Any]:
    """The JSON object in the body; the connection's deadline ends one that does not come."""
    parts: list[bytes] = []
    count = 0
    async for part in request.stream():
        count += len(part)
        if count > bytes_max:
            raise UserError(f"a question has at most {bytes_max} bytes here")
        parts.append(part)
    try:
        question = json.loads(b"".join(parts) or b"{}")
    except (ValueError, RecursionError):
        raise Malformed("a question is a JSON object") from None
    if not isinstance(question, dict):
        raise Malformed("a question is a JSON object")
    return question


def _json(content: Any, status: int = 200) -> Response:
    return JSONResponse(content, status, headers=_HEADERS)


async def _refused(_: Request, error: LogPlayerError) -> Response:
    if isinstance(error, AccessRefused):
        return _json({"error": str(error)}, error.status)
    return _json({"error": str(error)}, 503 if isinstance(error, Unavailable) else 400)


async def _unknown(_: Request, error: HTTPException) -> Response:
    return _json({"error": f"{error.detail}; see /status, /metrics, /events, /healthz, /readyz"}, error.status_code)


async def _gone(_: Request, error: Exception) -> Response:
    return _json({"error": "the question did not come in time"}, 408)


async def _odd(_: Request, error: Exception) -> Response:
    _log.warning("a question over HTTP cannot be answered: %s", type(error).__name__)
    return _json({"error": f"the question cannot be answered ({type(error).__name__}); check its fields"}, 400)


class FaceServer(HttpServer):
    """Serves the face of a process, and remembers its last minutes."""

    def __init__(self, face: Face, security: Security = NONE, operator: str = "") -> None:
        self._feed = EventFeed(lambda: _whole(face), face.timeline)
        super().__init__(face_app(face, Access(security, operator), self._feed), security)

    async def start(self, listen: str) -> str:
        taken = await super().start(listen)
        self._feed.start()
        return taken

    async def stop(self) -> None:
        await self._feed.stop()
        await super().stop()


def serve(face: Face, security: Security = NONE, operator: str = "") -> HttpServer:
    """A server for the face of a process; it does not listen yet."""
    return FaceServer(face, security, operator)
