"""The fault campaign with a target in each store that this machine has a server for.

python -m tests.campaign.every_store [options of the campaign]
"""

from __future__ import annotations

import contextlib
import shutil
import sys

from logplayer.testing.orphans import end_with_this_process
from tests.campaign import campaign
from tests.servers import find_postgres, postgres_server, redis_server


def main() -> int:
    end_with_this_process()  # Before there are servers: only what is started from now on has its mark.
    with contextlib.ExitStack() as stack:
        if find_postgres() is not None:
            sys.argv += ["--postgres", stack.enter_context(postgres_server())]
        if shutil.which("redis-server") is not None:
            sys.argv += ["--redis", stack.enter_context(redis_server())]
        return campaign.main()


if __name__ == "__main__":
    sys.exit(main())
