"""The product's ledger without those of its ticks at which nothing is due.

A ledger looks at the time every few milliseconds, mostly in vain, and that was most of what a run
took. Here it sleeps until the first tick that would do something.
"""

import asyncio
from math import ceil
from typing import Final

from snapbid.ledger.bids import commit
from snapbid.ledger.bids import ledger as ledger_module
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.shard import LedgerShard
from support.simulator.loop import VirtualLoop

NEVER: Final = float("inf")
REPLAY_S: Final = 0.25


class TickingLedger(Ledger):
    """Of one worker, on a virtual loop."""

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
                shard.tick(last)

    def _next_tick(self, last: float) -> float:
        """The first tick after the last one at which something is due."""
        now = self._loop.time()
        due = min([_due(shard, now) for shard in self._shards])
        if due == NEVER:
            return NEVER
        tick_s = ledger_module.TICK_S
        return last + max(ceil((max(due, now) - last) / tick_s), 1) * tick_s


def _due(shard: LedgerShard, now: float) -> float:
    """When `shard.tick` will do something, as far as is known now."""
    core = shard._core
    if core._sent_at is not None:
        slow = commit.STALL_S if core._is_slow else commit.NOTICE_S
        due = core._waited_from + slow
        for requests in (core._sent_answers, core._answers, core._sent_holds, core._holds):
            for request in requests:
                if request.deadline < due and not request.done.done():
                    due = request.deadline
        return due
    if shard._wire is None or shard._gathering:
        return NEVER
    return now if core._to_roll_back else core._heartbeat_at + commit.HEARTBEAT_S
