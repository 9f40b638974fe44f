"""The fault campaign with a target in each store that this machine has a server for; options as for the campaign."""

from __future__ import annotations

import contextlib
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from logplayer.testing import campaign
from servers import find_postgres, postgres_server, redis_server


def main() -> int:
    with contextlib.ExitStack() as stack:
        if find_postgres() is not None:
            sys.argv += ["--postgres", stack.enter_context(postgres_server())]
        if shutil.which("redis-server") is not None:
            sys.argv += ["--redis", stack.enter_context(redis_server())]
        return campaign.main()


if __name__ == "__main__":
    sys.exit(main())
