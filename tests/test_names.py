"""What a target may be called."""

from __future__ import annotations

import pytest

from logplayer.errors import ConfigError
from logplayer.names import TARGET_CHARS_MAX, check_target


@pytest.mark.parametrize("name", ["", "../x", "a b", "a/b", "-a", ".a", "é", "a\n", "a" * (TARGET_CHARS_MAX + 1)])
def test_a_name_that_would_leave_its_place_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a target's name"):
        check_target(name, "--id ")


@pytest.mark.parametrize("name", ["a", "0", "eu-west_1.orders", "a" * TARGET_CHARS_MAX])
def test_a_plain_name_is_taken(name: str) -> None:
    assert check_target(name) == name
