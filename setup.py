"""What pyproject.toml cannot say: wire/fastpath.py is also compiled where there is a compiler."""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FASTPATH = "src/logplayer/wire/fastpath.py"
BUILDS = {"build", "build_ext", "bdist_wheel", "editable_wheel", "install", "develop"}  # Other commands need no code.


def compiled() -> list[Extension]:
    """The module as an extension; none with LOGPLAYER_PURE=1, which makes a wheel for any Python and any machine."""
    if os.environ.get("LOGPLAYER_PURE") == "1" or not BUILDS.intersection(sys.argv):
        return []
    try:
        from mypyc.build import mypycify

        extensions = mypycify(["--ignore-missing-imports", "--follow-imports=silent", FASTPATH])
    except (ImportError, SystemExit) as error:
        print(f"logplayer: {FASTPATH} is not compiled, and runs slower: {error}", file=sys.stderr)
        return []
    for extension in extensions:
        extension.optional = True  # The lack of a compiler is no reason to fail.
    return extensions


class AllOrNone(build_ext):
    """mypyc makes two files of one module, and the one is nothing without the other."""

    def build_extensions(self) -> None:
        super().build_extensions()
        files = [Path(self.get_ext_fullpath(extension.name)) for extension in self.extensions]
        if not all(file.exists() for file in files):
            print(f"logplayer: {FASTPATH} could not be compiled, and runs slower", file=sys.stderr)
            for file in files:
                file.unlink(missing_ok=True)


setup(ext_modules=compiled(), cmdclass={"build_ext": AllOrNone})
