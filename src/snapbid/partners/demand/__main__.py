"""`python -m snapbid.partners.demand`, run by the drain, with the warehouse's address on stdin.

It exits when stdin is closed, so it never outlives the drain.
"""

import asyncio
import os
import sys

from snapbid.base.child import exit_with_parent
from snapbid.partners.demand.making import make
from snapbid.warehouse.unavailable import UNAVAILABLE


def main() -> None:
    """Build the signals once; exit with status 1 if the warehouse is unavailable."""
    dsn = sys.stdin.buffer.readline().decode().strip()
    exit_with_parent()
    os.nice(10)
    try:
        asyncio.run(make(dsn))
    except UNAVAILABLE:
        sys.exit(1)  # the drain logs it


if __name__ == "__main__":
    main()
