"""One trace from an append through commit, dispatch and apply at each shard, by the OpenTelemetry API.

Without an SDK nothing is traced, and it costs one look into a dictionary. With one, a producer begins a span for each
transaction and puts its context into the transaction's headers (``traceparent``, as W3C writes it); every later part
finds it there, whatever process it is in, and adds its own span below the producer's. What was not sampled at the
producer is not looked at. Tracing only observes: entries take the same way, in the same order.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from logplayer.errors import Malformed
from logplayer.wire.entries import decode_headers, encode_headers, split_headers

SDK = "opentelemetry.sdk.trace"
HEADER = "traceparent"
_MARK = HEADER.encode()


def active() -> bool:
    """Whether somebody has loaded an SDK into this process."""
    return SDK in sys.modules


def begin_append(payload: bytes, producer: str) -> tuple[bytes, Any]:
    """Begin the span of a transaction; the payload with its context, and the span, for :func:`end_append`."""
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    span = _tracer().start_span("logplayer append", kind=trace.SpanKind.PRODUCER, attributes={"producer": producer})
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, trace.set_span_in_context(span))
    if HEADER not in carrier or _MARK in payload:
        return payload, span  # Not sampled by an SDK, or the caller has given its own context.
    return payload + encode_headers({HEADER: carrier[HEADER]}), span


def end_append(span: Any, answer: asyncio.Future[Any]) -> None:
    """The log has answered, or the caller has given up."""
    if not answer.cancelled() and answer.exception() is None:
        span.set_attribute("index", answer.result().index)
    span.end()


def note(name: str, payload: bytes, began_ns: int, **facts: str | int) -> None:
    """A span below the producer's, from ``began_ns`` to now, if the payload carries a context.

    The payload may be anything: that nobody can read an entry is found, and said, by whoever has to.
    """
    found = _context(payload)
    if not _sampled(found):
        return
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract({HEADER: found.decode("ascii", "replace")})
    span = _tracer().start_span(f"logplayer {name}", context, start_time=began_ns, attributes=dict(facts))
    span.end(max(began_ns, time.time_ns()))


def _context(payload: bytes) -> bytes:
    """The context in the headers of a transaction; empty where there is none, or no transaction."""
    if _MARK not in payload:
        return b""
    try:
        headers = decode_headers(split_headers(payload))
    except Malformed:
        return b""
    return next((value for name, value in headers if name == HEADER), b"")


def _sampled(context: bytes) -> bool:
    """Whether the last byte of the context, which holds flags, says so."""
    try:
        return bool(int(context[-2:], 16) & 1)
    except ValueError:
        return False


def _tracer() -> Any:
    from opentelemetry import trace

    return trace.get_tracer("logplayer")
