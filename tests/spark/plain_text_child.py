"""``logplayer play`` on Spark, in plain text beyond loopback: with --insecure it plays, without it is refused.

    python -m tests.spark.plain_text_child FOLDER

Runs in a network namespace (tests/namespaces.py). Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from logplayer.wire.security import Security
from tests.namespaces import HOST
from tests.spark.spark_support import FileWal, Shards, until
from tests.spark.test_resident import puts


def main(folder: Path) -> None:
    plain = Security(insecure=True)
    wal, shards = FileWal(folder / "wal"), Shards(folder, ("a", "b"), host=HOST, security=plain)
    last = puts(wal, 20)
    where = ["--log", wal.serve(HOST, plain)]
    for name, address in shards.addresses.items():
        where += ["--target", f"{name}={address}"]
    command = [str(Path(sys.executable).with_name("logplayer")), "play", "--master", "local[2]", *where]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found = {"refused": f"{refused.returncode}: {refused.stderr.splitlines()[-1]}"}
    with subprocess.Popen([*command, "--insecure"], stdout=subprocess.PIPE, text=True) as playing:
        try:
            until(lambda: playing.poll() is not None or min(map(shards.index, "ab")) >= last)
            playing.send_signal(signal.SIGINT)
            said, _ = playing.communicate(timeout=60)
            found["insecure"] = f"{playing.returncode}: {said.splitlines()[-1]}"
        except BaseException as error:  # noqa: BLE001 - it is what the test shows.
            found["insecure"] = f"{playing.poll()}: {error}"
            playing.kill()
    print(json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
