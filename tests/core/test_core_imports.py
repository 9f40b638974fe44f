"""The core decides and does nothing: no I/O, clock, await or lock, and nothing imported that could bring them."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import xxhash

import logplayer.core

CORE = Path(logplayer.core.__file__).parent
MODULES = sorted(CORE.glob("*.py"))

# Modules without I/O, clock, await or lock. Add to this list only what cannot wait, read or write.
ALLOWED = {
    "__future__",
    "bisect",
    "collections",
    "collections.abc",
    "dataclasses",
    "enum",
    "itertools",
    "struct",
    "typing",
}
ALLOWED |= {"xxhash", "zlib"}
FORBIDDEN_CALLS = {"open", "print", "input", "exec", "eval", "__import__", "compile", "breakpoint"}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""


def impure(source: str) -> list[str]:
    """What a module of the core must not have."""
    tree = ast.parse(source)
    found = [
        name
        for name in imported(tree)
        if name not in ALLOWED
        and name != "logplayer.errors"
        and name.partition("logplayer.core")[1] != "logplayer.core"
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith | ast.With | ast.Global):
            found.append(type(node).__name__)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            found.append(node.func.id)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_of_the_core_is_pure(path: Path) -> None:
    assert impure(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from asyncio import Queue",
        "import logplayer.wire.codec",
        "from logplayer.log import file",
        "import threading",
        "async def step(): ...",
        "print(1)",
        "open('x')",
    ],
)
def test_the_list_is_enforced(source: str) -> None:
    assert impure(source)


def test_nothing_heavy_is_loaded_with_the_core() -> None:
    names = [f"logplayer.core.{path.stem}" for path in MODULES if path.stem != "__init__"]
    heavy = ["grpc", "google.protobuf", "asyncio", "click", "threading", "socket", "selectors", "sqlite3", "logging"]
    script = (
        "import importlib, sys\n"
        "before = set(sys.modules)\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    # -S: without site, whose .pth files may load anything; the packages are found by their paths.
    paths = [str(CORE.parents[1]), str(Path(xxhash.__file__).parents[1])]
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {paths!r}\n{script}"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "logplayer.core.player" in loaded
    assert not [name for name in loaded if name in heavy]
    foreign = [
        n for n in loaded if n.startswith("logplayer.") and not n.startswith(("logplayer.core", "logplayer.errors"))
    ]
    assert not foreign
