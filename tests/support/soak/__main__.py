"""`make soak MINUTES=60 SEED=7:2`: scenario after scenario, and a table at the end."""

import argparse
import secrets
import sys
import time

from support.soak import stage
from support.soak.scenario import Seed, run
from support.soak.tally import Tally


def main() -> int:
    """The exit status: 0 where nothing differed."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to begin scenarios")
    parser.add_argument(
        "--seed",
        type=Seed.parse,
        default=Seed(secrets.randbelow(10**6), 0),
        help="of the first scenario, DECK:HAND",
    )
    given = parser.parse_args()
    seed, tally = given.seed, Tally()
    until = time.monotonic() + given.minutes * 60
    with stage.template() as made:
        try:
            while True:
                found = run(seed, made)
                for line in found.differences:
                    print(f"  DIFFERENCE {line}", flush=True)
                tally.add(found)
                if time.monotonic() > until:
                    break
                seed = seed.next()
        except KeyboardInterrupt:
            print("stopped")
    print(tally.table())
    return 1 if tally.differences else 0


if __name__ == "__main__":
    sys.exit(main())
