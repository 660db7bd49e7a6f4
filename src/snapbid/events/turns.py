"""Schedules the reading of batches: one at a time per product, in time slices, round-robin.

This way neither bids nor other products' batches wait for one partner's batch. After each slice the
reader sleeps for a moment instead of just yielding: the server's threads, which receive requests,
also need the interpreter, and a busy event loop would not release it.
"""

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Final, TypeVar

from snapbid.events.answers import EventsUnavailable

SLICE_S: Final = 0.0005
PAUSE_S: Final = 0.001
MOST_WAITING: Final = 64 << 20  # bytes of a product's batches, as they were sent

T = TypeVar("T")


class Slices:
    """Runs generators concurrently, in time slices."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def run(self, steps: Generator[None, None, T]) -> T:
        """Run a generator to its end, pausing after each time slice; return its return value."""
        while True:
            async with self._turn:
                until = perf_counter() + SLICE_S
                while True:
                    try:
                        next(steps)
                    except StopIteration as end:
                        result: T = end.value
                        return result
                    if perf_counter() >= until:
                        break
                await asyncio.sleep(PAUSE_S)


class _ProductTurn:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.size = 0  # bytes of the batches that have it or wait for it


class BatchTurns:
    """Queues batches, so that those of a product are read one at a time, in order of arrival."""

    def __init__(self) -> None:
        self._products: dict[str, _ProductTurn] = {}

    @asynccontextmanager
    async def take(self, product: str, size: int) -> AsyncIterator[None]:
        """Wait for a batch's turn, which ends with the context; `size` is in bytes.

        Raises EventsUnavailable if this would bring the product's batches to over MOST_WAITING
        bytes.
        """
        own = self._products.setdefault(product, _ProductTurn())
        if own.size + size > MOST_WAITING:
            raise EventsUnavailable
        own.size += size
        try:
            async with own.lock:
                yield
        finally:
            own.size -= size
