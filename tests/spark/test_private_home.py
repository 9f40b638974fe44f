"""The directories that Spark's Java and home are started from: no other user may put a program there."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from logplayer.private import private_directory
from logplayer.spark import session

JAVA = Path("/opt/some/java-runtime/bin/java")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache directory and the temporary one, both of this test."""
    for name in ("cache", "tmp"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "cache"


def planted(home: Path) -> Path:
    """What a stranger leaves in a directory that anybody may write to: a java of his own."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    java.write_text("#!/bin/sh\necho pwned\n")
    for path in (java, java.parent, home):
        path.chmod(0o777)
    return java


def disown(*paths: Path) -> None:
    """Give the paths to nobody, as if nobody had made them."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory to another user")
    for path in paths:
        os.chown(path, 65534, 65534)


def is_private(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def test_a_directory_in_the_temporary_one_is_not_taken(cache: Path) -> None:
    java = planted(Path(tempfile.gettempdir()) / f"logplayer-java-{os.getuid()}")
    home = session._wrapped(JAVA)
    assert home / "bin" / "java" != java
    assert str(JAVA) in (home / "bin" / "java").read_text()
    assert is_private(home)
    assert is_private(home / "bin")


@pytest.mark.parametrize("level", ["logplayer", "home", "bin", "script"])
@pytest.mark.parametrize("how", ["open to all", "somebody else's", "a link"])
def test_what_somebody_else_can_change_is_not_used(cache: Path, level: str, how: str) -> None:
    home = session._wrapped(JAVA)
    script = home / "bin" / "java"
    wrong = {"logplayer": cache / "logplayer", "home": home, "bin": home / "bin", "script": script}[level]
    if how == "open to all":
        wrong.chmod(0o777)
    elif how == "somebody else's":
        disown(wrong)
    else:
        elsewhere = cache.parent / "elsewhere"
        wrong.rename(elsewhere)
        wrong.symlink_to(elsewhere)
    again = session._wrapped(JAVA)
    made = again / "bin" / "java"
    assert is_private(again)
    assert is_private(again / "bin")
    found = made.lstat()
    assert (stat.S_ISREG(found.st_mode), found.st_uid, found.st_mode & 0o077) == (True, os.geteuid(), 0)
    assert again != home or level == "script"  # A script is put in place again; a directory is left alone.


def test_a_cache_directory_below_one_that_anybody_may_change_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner is right, but a stranger could move it away and put another in its place."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    (tmp_path / "shared" / "cache").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "shared" / "cache"))
    assert not private_directory("java").is_relative_to(tmp_path / "shared")
    (tmp_path / "shared").chmod(0o1777)  # As the temporary directory itself: nobody moves what is not theirs.
    assert private_directory("java").is_relative_to(tmp_path / "shared")


def test_the_same_directory_is_found_again(cache: Path) -> None:
    assert private_directory("x") == private_directory("x") == cache / "logplayer" / "x"
    assert session._wrapped(JAVA) == session._wrapped(JAVA)
    assert session._wrapped(JAVA) != session._wrapped(JAVA.parents[2] / "other" / "bin" / "java")


def test_sparks_home_is_private_and_links_to_this_package(cache: Path, tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "pyspark"
    for name in ("bin", "jars", "sbin"):
        (package / name).mkdir(parents=True)
    home = session._lean_home(package)
    assert is_private(home)
    (home / "bin").unlink()
    (home / "bin").symlink_to(tmp_path)
    assert session._lean_home(package) == home
    assert {name: (home / name).resolve() for name in ("bin", "jars", "sbin")} == {
        name: package / name for name in ("bin", "jars", "sbin")
    }


def test_without_a_home_a_fresh_directory_serves_and_goes_with_the_process(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    code = "from logplayer.private import private_directory as p; a = p('java'); assert p('java') == a; print(a)"
    environment = {**os.environ, "XDG_CACHE_HOME": "", "HOME": "/proc/nowhere", "TMPDIR": str(tmp_path / "tmp")}
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    made = Path(said.stdout.strip())
    assert made.is_relative_to(tmp_path / "tmp")
    assert not made.exists()
