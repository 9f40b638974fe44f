"""One Python session for a document's snippets, as ``python -m asyncio`` gives it: ``await`` works, names stay.

Reads file names from stdin, runs each, and answers with 0 or 1 on stdout. What snippets print goes to stderr. The
event loop runs on in between, so that a server which a snippet started serves.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import sys
import traceback
import types
from pathlib import Path


def load(name: str) -> types.CodeType:
    code = compile(Path(name).read_text(), name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(code, types.CodeType)
    return code


async def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path.insert(0, os.getcwd())
    names: dict[str, object] = {"__name__": "__main__"}
    while name := (await asyncio.to_thread(sys.stdin.readline)).strip():
        try:
            outcome = types.FunctionType(load(name), names)()
            if inspect.iscoroutine(outcome):
                await outcome
            failed = 0
        except Exception:  # noqa: BLE001 - whatever the snippet raises is the answer.
            traceback.print_exc()
            failed = 1
        print(failed, file=answers, flush=True)


asyncio.run(main())
