"""The product's ledger without those of its ticks at which nothing is due.

A ledger looks at the time every few milliseconds, mostly in vain, and that was most of what a run
took. Here it sleeps until the first tick that would do something.
"""

import asyncio
from math import ceil
from typing import Any, Final

from snapbid.base.tasks import end
from snapbid.ledger.bids import shard as shard_module
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.shard import LedgerShard
from snapbid.redisclient import trips
from support.simulator.loop import VirtualLoop

NEVER: Final = float("inf")
REPLAY_S: Final = 0.25


class TickingLedger(Ledger):
    """Of one worker, on a virtual loop."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for shard in self._shards:
            shard.trips._schedule_tick = lambda: None  # type: ignore[method-assign]

    async def open(self) -> None:
        await super().open()
        self._ticking = asyncio.create_task(self._tick())

    async def close(self) -> None:
        await super().close()
        await end(self._ticking)

    async def _wait(self) -> None:
        """At other moments than other machines."""
        await asyncio.sleep(REPLAY_S)

    async def _tick(self) -> None:
        loop = self._loop
        assert isinstance(loop, VirtualLoop)
        last = loop.time()
        while True:
            await loop.until(lambda last=last: self._next_tick(last))  # type: ignore[misc]
            last = loop.time()
            for shard in self._shards:
                shard.trips.tick(last)

    def _next_tick(self, last: float) -> float:
        """The first tick after the last one at which something is due."""
        now = self._loop.time()
        due = min([_due(shard, now) for shard in self._shards])
        if due == NEVER:
            return NEVER
        tick_s = trips.TICK_S
        return last + max(ceil((max(due, now) - last) / tick_s), 1) * tick_s


def _due(shard: LedgerShard, now: float) -> float:
    """When `RoundTrips.tick` will do something, as far as is known now."""
    core, own = shard._core, shard.trips
    if own.is_busy:
        slow = shard_module.STALL_S if core._is_slow else shard_module.NOTICE_S
        due = own._waited_from + slow
        for request in (*core._answers, *core._holds):
            if request.deadline < due and not request.done.done():
                due = request.deadline
        return due
    if own._wire is None or own._gathering:
        return NEVER
    return now if core.waiting else core._heartbeat_at + shard_module.HEARTBEAT_S
