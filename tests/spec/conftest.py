"""One TLC for all tests here. Without Java or TLC they are skipped, except in CI, where that is a failure."""

from __future__ import annotations

import os

import pytest

from logplayer.errors import UserError
from logplayer.java import find_java
from logplayer.testing.spec.tlc import Tlc, spec_dir


@pytest.fixture(scope="session")
def tlc() -> Tlc:
    try:
        return Tlc(find_java(), spec_dir())
    except UserError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
