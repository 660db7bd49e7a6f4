"""`make soak MINUTES=60 SEED=7:2`: scenario after scenario, and a table at the end."""

import argparse
import secrets
import signal
import sys
import time
import traceback
from pathlib import Path

from support.soak import stage
from support.soak.scenario import Seed, run
from support.soak.tally import Tally


def attempt(seed: Seed, made: Path) -> Tally:
    """What came of a scenario; one that could not be played to its end differs, too."""
    try:
        return run(seed, made)
    except Exception as error:
        traceback.print_exc()
        return Tally(scenarios=1, differences=[f"{seed}: the soak failed: {error!r}"])


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
    for number in (signal.SIGTERM, signal.SIGINT):  # nothing is left behind
        signal.signal(number, signal.default_int_handler)
    until = time.monotonic() + given.minutes * 60
    with stage.template() as made:
        try:
            while True:
                found = attempt(seed, made)
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
