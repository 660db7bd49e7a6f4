"""Long work in time slices, so that bids served by the same process need not wait for it.

After each slice the event loop sleeps for a moment instead of yielding once: the server's own
threads, which receive the requests, need the interpreter too, and do not get it from a busy loop.
"""

import asyncio
from collections.abc import Generator
from time import perf_counter
from typing import Final, TypeVar

SLICE_S: Final = 0.0005
PAUSE_S: Final = 0.001

T = TypeVar("T")


class Slices:
    """The time slices of one piece of work."""

    def __init__(self) -> None:
        self._until = perf_counter() + SLICE_S

    async def pause(self) -> None:
        """Let other tasks run if the current slice is over."""
        if perf_counter() >= self._until:
            await asyncio.sleep(PAUSE_S)
            self._until = perf_counter() + SLICE_S

    async def run(self, steps: Generator[None, None, T]) -> T:
        """Run a generator to its end, pausing between steps; return its return value."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            if perf_counter() >= self._until:
                await self.pause()
