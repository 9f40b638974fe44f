"""What ``tools/rivals`` runs: fetch the rivals' parts, start and stop the Kafka brokers, show their state."""

from __future__ import annotations

import argparse
import sys

from bench.rivals import jars
from bench.rivals.brokers import DEFAULT_PORT, Brokers
from logplayer.errors import LogPlayerError, UserError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools/rivals", description=__doc__)
    parser.add_argument("what", choices=("fetch", "up", "down", "status"))
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="the brokers listen right above this port")
    given = parser.parse_args(arguments)
    brokers = Brokers(port=given.port)
    try:
        if given.what == "fetch":
            for rival in jars.POMS:
                print(f"{rival}: the jars are in {jars.fetch(rival)}")
            return 0
        if given.what == "down":
            print(f"stopped {brokers.down()} brokers")
            return 0
        found = brokers.up() if given.what == "up" else brokers.status()
    except LogPlayerError as error:
        print(f"rivals: {error}", file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
    for broker in found:
        state = "ready" if broker.ready else "frozen" if broker.frozen else "starting" if broker.pid else "down"
        print(f"{broker.name}  port {broker.port}  pid {broker.pid or '-'}  {state}")
    if given.what == "up":
        print(f"kafka: {brokers.bootstrap} (stop them with `tools/rivals down`)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
