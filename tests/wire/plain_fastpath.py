"""The hot path's module as Python runs it, beside the one that is imported, which may be compiled."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from logplayer.wire import fastpath

SOURCE = Path(fastpath.__file__).with_name("fastpath.py")
COMPILED = Path(fastpath.__file__) != SOURCE


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("logplayer.wire.plain_fastpath", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


plain: Any = _load()
BOTH: list[Any] = [plain, fastpath]
