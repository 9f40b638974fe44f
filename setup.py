"""What pyproject.toml cannot say: wire/hot.py is also compiled, where there is a compiler. Else it runs as it is."""

import os
import sys

from setuptools import Extension, setup

HOT = "src/logplayer/wire/hot.py"
BUILDS = {"build", "build_ext", "bdist_wheel", "editable_wheel", "install", "develop"}  # Other commands need no code.


def compiled() -> list[Extension]:
    """The module as an extension; none with LOGPLAYER_PURE=1, which makes a wheel for any Python and any machine."""
    if os.environ.get("LOGPLAYER_PURE") == "1" or not BUILDS.intersection(sys.argv):
        return []
    try:
        from mypyc.build import mypycify

        extensions = mypycify(["--ignore-missing-imports", "--follow-imports=silent", HOT])
    except (ImportError, SystemExit) as error:
        print(f"logplayer: {HOT} is not compiled, and runs slower: {error}", file=sys.stderr)
        return []
    for extension in extensions:
        extension.optional = True  # The lack of a compiler is no reason to fail.
    return extensions


setup(ext_modules=compiled())
