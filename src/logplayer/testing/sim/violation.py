"""What every world of the simulator raises."""

from __future__ import annotations


class Violation(Exception):
    """A checker found that a promise is broken."""

    def __init__(self, checker: str, message: str) -> None:
        super().__init__(f"{checker}: {message}")
        self.checker = checker
