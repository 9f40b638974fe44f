"""A target of the user's own, named on the command line: ``module:Class`` or ``path/to/file.py:Class``."""

from __future__ import annotations

import importlib
import importlib.util
import os
from types import ModuleType

from logplayer.errors import ConfigError, LogPlayerError
from logplayer.target.protocol import Target


def open_own(kind: str, name: str, place: str) -> Target:
    """Make the target: ``Class(place, name)``. Raises ConfigError with what is wrong, also of what the class raises."""
    where, _, inside = kind.rpartition(":")
    module = _load(where, kind)
    make = getattr(module, inside, None)
    if not callable(make):
        raise ConfigError(f"--store {kind}: {where} has no class {inside!r}")
    try:
        target = make(place, name)
    except LogPlayerError:
        raise
    except Exception as error:
        made = f"{inside}({place!r}, {name!r})"
        raise ConfigError(f"--store {kind}: {made} failed: {type(error).__name__}: {error}") from error
    if not isinstance(target, Target):
        raise ConfigError(f"--store {kind}: a target has the methods position() and apply(change); see docs/targets.md")
    return target


def _load(where: str, kind: str) -> ModuleType:
    try:
        if where.endswith(".py"):
            spec = importlib.util.spec_from_file_location(os.path.basename(where)[:-3], where)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
        return importlib.import_module(where)
    except (ImportError, OSError, SyntaxError) as error:
        hint = "" if where.endswith(".py") else "; install it, set PYTHONPATH, or name its file: path/to/file.py:Class"
        raise ConfigError(f"--store {kind} cannot be loaded: {error}{hint}") from error
