"""Addresses: what is understood, and what a mistake says."""

from __future__ import annotations

import pytest

from logplayer.errors import AddressError
from logplayer.wire.addresses import is_loopback, parse, parse_netloc


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("grpc://127.0.0.1:7001", ("grpc", "127.0.0.1", 7001)),
        ("tcp://shard-1.example:80", ("tcp", "shard-1.example", 80)),
        ("tcp://[::1]:7001", ("tcp", "::1", 7001)),
    ],
)
def test_good_addresses(text: str, parts: tuple[str, str, int]) -> None:
    assert parse(text) == parts
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "127.0.0.1:7001", "http://a:1", "grpc://", "grpc://a", "grpc://a:x", "grpc://a:99999", "grpc://a:0"),
        *("tcp://a:1/path", "tcp://u@a:1", "tcp://[::1:7001", "tcp://:1"),
    ],
)
def test_bad_addresses_say_what_to_write(text: str) -> None:
    with pytest.raises(AddressError, match=r"HOST:PORT|port 0"):
        parse(text)


def test_a_listener_may_take_any_port() -> None:
    assert parse_netloc("127.0.0.1:0") == ("127.0.0.1", 0)


@pytest.mark.parametrize(
    ("host", "yes"),
    [("localhost", True), ("127.0.0.2", True), ("::1", True), ("0.0.0.0", False), ("example.org", False)],
)
def test_loopback(host: str, yes: bool) -> None:
    assert is_loopback(host) is yes
