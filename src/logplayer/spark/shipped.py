"""How our objects travel to Spark's Python workers: with a sentence for a worker that does not have this package.

Spark pickles readers, writers and functions by reference, so a worker whose Python lacks the package fails with
``No module named 'logplayer'`` and many lines around it, which say neither which Python that was nor what to do. Here
the object travels as bytes, beside a function that is pickled by value: it needs nothing but Python itself, and it is
the first thing of ours that runs in the worker.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

from pyspark import cloudpickle

P = ParamSpec("P")
R = TypeVar("R")


def unpack(data: bytes) -> Any:
    """In a worker: the object. Imports only what every Python has, before it knows that ours is there."""
    import importlib.util
    import pickle
    import socket
    import sys

    for name in ("logplayer", "pyarrow", "grpc"):
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(
                f"the Python of Spark's workers has no package {name}: {sys.executable} on {socket.gethostname()}. "
                "Install logplayer[spark] there, or set PYSPARK_PYTHON (spark.pyspark.python) to a Python that has it"
            )
    kind, state = pickle.loads(data)
    if kind is None:
        return state
    made = kind.__new__(kind)
    made.__dict__.update(state)
    return made


class Shipped:
    """A reader or writer that Spark pickles."""

    def __reduce__(self) -> tuple[Any, ...]:
        return unpack, (cloudpickle.dumps((type(self), self.__getstate__())),)  # type: ignore[no-untyped-call]


class ShippedFunction(Generic[P, R]):
    """A function for tasks, called as it is.

    Example:
        >>> ShippedFunction(len)("four")
        4
    """

    def __init__(self, function: Callable[P, R]) -> None:
        self._function = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return unpack, (cloudpickle.dumps((None, self._function)),)  # type: ignore[no-untyped-call]


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
