"""Runs many command lines, each in a fork of one process that has imported every verb: a start costs next to nothing.

Reads a JSON list of [directory, words] and answers with a list of [exit code, stdout, stderr].
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

import click

from logplayer.cli.main import VERBS, cli, main


def run(directory: str, words: list[str]) -> tuple[int, str, str]:
    """As ``logplayer WORDS`` in ``directory``."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull) as nothing:
        child = os.fork()
        if child == 0:
            for file, number in ((nothing, 0), (out, 1), (err, 2)):
                os.dup2(file.fileno(), number)
            os.chdir(directory)
            sys.argv = ["logplayer", *words]
            main()
            sys.exit()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
        return code, texts[0], texts[1]


if __name__ == "__main__":
    for verb in VERBS:
        cli.get_command(click.Context(cli), verb)
    print(json.dumps([run(directory, words) for directory, words in json.load(sys.stdin)]))
