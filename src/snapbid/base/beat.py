"""The beat: common times for all periodic work of a process.

Waking an idle process costs a tenth of a millisecond of processor time, however little it does. So
all periodic work happens at the same times: multiples of BEAT_S on the event loop's clock.
"""

import asyncio
from typing import Final

BEAT_S: Final = 0.26
_EARLY_S: Final = 0.002  # a timer may fire early by this much


def left(every_s: float = BEAT_S) -> float:
    """Return the seconds until the event loop's clock reaches the next multiple of `every_s`.

    `every_s` is a whole number of beats, or a beat divided by a whole number.
    """
    now = asyncio.get_running_loop().time()
    until = every_s - now % every_s
    return until if until > _EARLY_S else until + every_s


async def beat(every_s: float = BEAT_S) -> None:
    """Wait until the event loop's clock reaches the next multiple of `every_s`."""
    await asyncio.sleep(left(every_s))
