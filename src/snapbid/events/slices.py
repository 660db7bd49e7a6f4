"""Long work in slices, so that bids which the same process answers do not wait for it.

After each slice the loop is left idle for a moment rather than run once: the server's own threads,
which bring in the requests, need the interpreter too, and do not get it from a loop that is busy.
"""

import asyncio
from collections.abc import Generator
from time import perf_counter
from typing import Final, TypeVar

SLICE_S: Final = 0.0005
PAUSE_S: Final = 0.001

T = TypeVar("T")


class Slices:
    """One piece of work; gives way to others whenever a slice is over."""

    def __init__(self) -> None:
        self._until = perf_counter() + SLICE_S

    async def pause(self) -> None:
        """Let others go first, if this slice is over."""
        if perf_counter() >= self._until:
            await asyncio.sleep(PAUSE_S)
            self._until = perf_counter() + SLICE_S

    async def run(self, steps: Generator[None, None, T]) -> T:
        """All steps of a generator, and what it returns."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            if perf_counter() >= self._until:
                await self.pause()
