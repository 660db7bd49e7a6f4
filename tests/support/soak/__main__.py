"""`make soak MINUTES=60 SEED=7:2 FLEET=1`: scenario after scenario, and a table at the end.

FAULTS=A,B: only those with one of these in their names.
"""

import argparse
import secrets
import signal
import sys
import time
import traceback
from pathlib import Path

from support.soak import network, stage
from support.soak.scenario import Seed, run
from support.soak.tally import Tally


def attempt(seed: Seed, made: Path, options: argparse.Namespace) -> Tally:
    """The result of a scenario; one that could not be finished counts as a difference."""
    try:
        return run(seed, made, several=options.fleet, named=options.faults)
    except Exception as error:
        traceback.print_exc()
        return Tally(scenarios=1, differences=[f"{seed}: the soak failed: {error!r}"])


def main() -> int:
    """Run scenarios; the exit status is 0 if nothing differed."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to begin scenarios")
    parser.add_argument(
        "--seed",
        type=Seed.parse,
        default=Seed(secrets.randbelow(10**6), 0),
        help="of the first scenario, DECK:HAND",
    )
    parser.add_argument("--fleet", action="store_true", help="two machines on a Redis Cluster")
    parser.add_argument("--faults", default="", help="texts in the names of those to play: A,B")
    options = parser.parse_args()
    if options.fleet:
        network.enter()
    seed, tally = options.seed, Tally()
    for number in (signal.SIGTERM, signal.SIGINT):  # so that everything is cleaned up
        signal.signal(number, signal.default_int_handler)
    until = time.monotonic() + options.minutes * 60
    with stage.template() as made:
        try:
            while True:
                outcome = attempt(seed, made, options)
                for line in outcome.differences:
                    print(f"  DIFFERENCE {line}", flush=True)
                tally.add(outcome)
                if time.monotonic() > until:
                    break
                seed = seed.next()
        except KeyboardInterrupt:
            print("stopped")
    print(tally.table())
    return 1 if tally.differences else 0


if __name__ == "__main__":
    sys.exit(main())
