"""`python -m snapbid.demand`, run by the drain, with the warehouse's address on stdin."""

import asyncio
import os
import sys

from snapbid.demand.making import make

if __name__ == "__main__":
    os.nice(10)
    asyncio.run(make(sys.stdin.readline().strip()))
