"""The wheel and the sdist as a stranger gets them: complete, typed, and the same command in an empty environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from logplayer import __version__

ROOT = Path(__file__).parents[2]
INSIDE = [
    "logplayer/py.typed",
    "logplayer/wire/logplayer/v1/target.proto",
    "logplayer/wire/logplayer/v1/entry.proto",
    "logplayer/wire/logplayer/v1/log.proto",
    "logplayer/wire/logplayer/v1/target_pb2.pyi",
    "logplayer/testing/sim/mutants.toml",
    "logplayer/spark/conf/log4j2.properties",
    "pyspark_logplayer/__init__.py",
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``make wheel`` makes, from a copy: a build writes into the tree, where others may build at the same time."""
    folder, tree = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(tree)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return built / f"logplayer-{__version__}-py3-none-any.whl"


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """An environment with the wheel; the packages it needs are lent by the one that runs the tests."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    install = ["-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([sys.executable, *install, str(wheel)], check=True, timeout=300)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def run(empty: Path, *command: str) -> subprocess.CompletedProcess[str]:
    [program, *arguments] = command
    return subprocess.run(
        [str(empty / "bin" / program), *arguments], capture_output=True, text=True, timeout=120, cwd=empty
    )


def test_everything_is_inside(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [metadata] = [name for name in names if name.endswith("dist-info/METADATA")]
        text = archive.read(metadata).decode()
    assert [name for name in INSIDE if name not in names] == []
    assert not [name for name in names if name.startswith(("tests/", "docs/"))]
    assert "License-Expression: Apache-2.0" in text
    assert f"Version: {__version__}" in text
    for extra in ("nats-server", "spark", "postgres"):
        assert f"Provides-Extra: {extra}" in text


def test_the_sdist_can_be_built_again(built: Path) -> None:
    with tarfile.open(built / f"logplayer-{__version__}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/logplayer/py.typed"} <= names


def test_the_command_works_in_an_empty_environment(empty: Path) -> None:
    where = run(empty, "python", "-c", "import logplayer; print(logplayer.__file__)")
    assert where.stdout.startswith(str(empty)), "the installed package runs, not the one of the repository"
    assert run(empty, "logplayer", "--version").stdout == f"logplayer, version {__version__}\n"
    assert "serve" in run(empty, "logplayer", "log", "--help").stdout
    simulated = run(empty, "logplayer", "sim", "1")
    assert simulated.returncode == 0, simulated.stderr
    assert "every promise held" in simulated.stdout


def test_it_is_typed_for_its_users(empty: Path, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(
        "from logplayer.log.protocol import NewEntry\nfrom logplayer.core.fence import Position\n"
        "entry = NewEntry('p', 'one', b'')\nindex: str = Position().index\n"
    )
    command = [sys.executable, "-m", "mypy", "--python-executable", str(empty / "bin" / "python"), "user.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert 'Argument 2 to "NewEntry" has incompatible type' in done.stdout
    assert "Incompatible types in assignment" in done.stdout
    assert "missing library stubs or py.typed" not in done.stdout


def test_models_that_are_not_installed_are_told(empty: Path) -> None:
    done = run(empty, "logplayer", "spec")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "--spec-dir" in done.stderr
