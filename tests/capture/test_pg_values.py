"""PostgreSQL's text of a value, and the typed value that the log gets."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from logplayer.capture.pg_values import Unfit, read_value
from logplayer.wire.values import Json

UTC = UTC


@pytest.mark.parametrize(
    ("oid", "text", "value"),
    [
        (16, "t", True),
        (16, "f", False),
        (21, "-32768", -32768),
        (20, "9223372036854775807", 2**63 - 1),
        (701, "0.1", 0.1),
        (700, "-Infinity", -math.inf),
        (1700, "9.90", Decimal("9.90")),
        (1700, "NaN", Decimal("NaN")),
        (25, "Zoë", "Zoë"),
        (1043, "", ""),
        (1042, "ab  ", "ab  "),
        (17, "\\x00ff", b"\x00\xff"),
        (17, "\\x", b""),
        (1184, "2026-11-18 12:00:00+00", datetime(2026, 11, 18, 12, tzinfo=UTC)),
        (1184, "2026-11-18 12:00:00.5+05:30", datetime(2026, 11, 18, 6, 30, 0, 500000, tzinfo=UTC)),
        (1184, "1890-01-01 00:00:00+00:53:28", datetime(1889, 12, 31, 23, 6, 32, tzinfo=UTC)),
        (1114, "2026-11-18 12:00:00.000001", datetime(2026, 11, 18, 12, 0, 0, 1)),
        (1082, "2026-11-18", date(2026, 11, 18)),
        (1083, "12:30:00.25", time(12, 30, 0, 250000)),
        (2950, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
        (114, '{"a" : 1}', Json('{"a" : 1}')),
        (3802, '{"a": 1}', Json('{"a": 1}')),
        (1186, "1 day 02:00:00", "1 day 02:00:00"),  # An interval: text.
        (16391, "happy", "happy"),  # An enum of the user's.
        (1007, "{}", []),
        (1007, "{1,NULL,-3}", [1, None, -3]),
        (1009, '{a,"b,c","d\\"e\\\\f","NULL",NULL,""," "}', ["a", "b,c", 'd"e\\f', "NULL", None, "", " "]),
        (1231, "{1.10,NaN}", [Decimal("1.10"), Decimal("NaN")]),
        (1001, '{"\\\\x00ff"}', [b"\x00\xff"]),
        (1185, '{"2026-11-18 12:00:00+00"}', [datetime(2026, 11, 18, 12, tzinfo=UTC)]),
        (3807, '{"{\\"a\\": 1}"}', [Json('{"a": 1}')]),
    ],
)
def test_a_value_has_the_columns_type(oid: int, text: str, value: Any) -> None:
    found = read_value(oid, text)
    assert type(found) is type(value)
    assert repr(found) == repr(value)


@pytest.mark.parametrize(
    ("oid", "text"),
    [
        (1184, "infinity"),
        (1184, "0044-03-15 12:00:00+00 BC"),
        (1184, "20260-01-01 00:00:00+00"),
        (1114, "-infinity"),
        (1082, "infinity"),
        (1082, "4714-11-24 BC"),
        (1083, "24:00:00"),
        (1007, "{{1,2},{3,4}}"),
        (1007, "[2:3]={1,2}"),
        (1007, "{1,2"),
        (1007, "{1,}"),
        (1009, '{"a"b}'),
        (17, "escaped"),
        (16, "yes"),
    ],
)
def test_what_does_not_fit_says_so(oid: int, text: str) -> None:
    with pytest.raises(Unfit, match="does not fit any value of the log"):
        read_value(oid, text)
