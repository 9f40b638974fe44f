"""core/limits.py: the error for a bad value, or for two that contradict, says what to change."""

from __future__ import annotations

from dataclasses import fields

import pytest

from logplayer.core.limits import Limits
from logplayer.errors import ConfigError

NAMES = [field.name for field in fields(Limits)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0, -1, 1.5, "7", None, True])
def test_every_limit_is_a_whole_number_of_at_least_one(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{name} = .*whole number of at least 1"):
        Limits(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("small", "large", "values"),
    [
        ("heartbeat_ms", "silence_ms_max", {"heartbeat_ms": 4000, "silence_ms_max": 4000}),
        ("tick_ms_max", "silence_ms_max", {"tick_ms_max": 4000, "silence_ms_max": 4000}),
        ("backoff_ms_min", "backoff_ms_max", {"backoff_ms_min": 11, "backoff_ms_max": 10}),
        ("batch_bytes_max", "flight_bytes_max", {"batch_bytes_max": 11, "flight_bytes_max": 10}),
    ],
)
def test_limits_that_do_not_fit_each_other(small: str, large: str, values: dict[str, int]) -> None:
    with pytest.raises(ConfigError) as caught:
        Limits(**values)
    told = str(caught.value)
    assert f"lower {small} or raise {large}" in told
    assert str(values[small]) in told
    assert str(values[large]) in told


def test_the_defaults_fit() -> None:
    assert Limits() == Limits()


def test_every_limit_says_what_a_wrong_value_costs() -> None:
    import inspect

    source = inspect.getsource(Limits)
    for name in NAMES:
        line = next(line for line in source.splitlines() if line.strip().startswith(f"{name}:"))
        assert "#" in line, name
