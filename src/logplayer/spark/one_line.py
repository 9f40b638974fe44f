"""Our errors at the top of Spark's traces.

Spark carries a Python error as the text of its traceback, in which the message is the last line, and puts its own lines
around that. An error with a cause is printed after its cause: so a copy of the error, without a traceback, is made the
cause, and the message is the first line as well. Spark takes the cause of an error away before it prints it (its
"simplified" tracebacks), so the cause is a property of the error's class here, which cannot be taken away.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from logplayer.errors import LogPlayerError

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def message_first() -> Iterator[None]:
    """An error of ours that leaves this block is printed with its message first."""
    try:
        yield
    except LogPlayerError as error:
        _show_first(error)
        raise


def one_line(method: Callable[P, R]) -> Callable[P, R]:
    """The same for a method that Spark calls.

    Example:
        >>> @one_line
        ... def partitions():
        ...     raise LogPlayerError("no log there")
    """

    @functools.wraps(method)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with message_first():
            return method(*args, **kwargs)

    return wrapped


def one_line_items(items: Iterator[R]) -> Iterator[R]:
    """The same for what is yielded later."""
    with message_first():
        yield from items


def _show_first(error: LogPlayerError) -> None:
    """Give the error a class of the same name, which says that a copy without a traceback is the cause."""
    kind = type(error)
    said = copy.copy(error)
    said.__traceback__ = said.__context__ = None

    def cause(_: BaseException) -> BaseException:
        return said

    def keep(_: BaseException, __: BaseException | None) -> None:
        """Spark sets it to None."""

    named = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__cause__": property(cause, keep)}
    error.__class__ = type(kind.__name__, (kind,), named)
