"""``python -m tests.golden [--again]``: write the golden files of this release."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from pathlib import Path

import logplayer as lp
from tests.golden import log_directory, messages

HERE = Path(__file__).parent


def write(folder: Path) -> int:
    """The files of this release; how many messages there are."""
    folder.mkdir()
    meanings = {}
    for name, message in messages.all_messages():
        data = message.SerializeToString(deterministic=True)
        (folder / f"{name}.bin").write_bytes(data)
        meanings[name] = messages.meaning(name, data)
    _dump(folder / "messages.json", meanings)
    with tempfile.TemporaryDirectory() as place:
        found = asyncio.run(log_directory.write(folder / "log.tar.gz", Path(place)))
    _dump(folder / "log.json", found)
    return len(meanings)


def _dump(path: Path, facts: object) -> None:
    path.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", action="store_true", help="replace them; only before the release is published")
    options = parser.parse_args()
    folder = HERE / str(lp.__version__)
    if folder.exists() and not options.again:
        sys.exit(f"{folder} is there, and a release's files never change; before it is published, give --again")
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{folder}: {write(folder)} messages and a log directory")


if __name__ == "__main__":
    main()
