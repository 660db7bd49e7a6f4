"""The moments at which a process does what it does now and then.

To wake takes a process at rest a tenth of a millisecond of processor time, whatever it does then.
So it does all of it at the same moments: multiples of BEAT_S by the event loop's clock.
"""

import asyncio
from typing import Final

BEAT_S: Final = 0.26
_EARLY_S: Final = 0.002  # a timer may end by so much before its time


def left(every_s: float = BEAT_S) -> float:
    """Return the seconds until the next moment; `every_s` is a multiple of BEAT_S, or half."""
    now = asyncio.get_running_loop().time()
    until = every_s - now % every_s
    return until if until > _EARLY_S else until + every_s


async def beat(every_s: float = BEAT_S) -> None:
    """Wait for the next moment."""
    await asyncio.sleep(left(every_s))
