"""Carries what the workers have counted of SSPs' requests from Redis to the warehouse, by day.

A day is stored as Redis has it, in place of what was stored before, so that carrying it twice
changes nothing. It is evidence, not accounting (operations/golive/store.py).
"""

from collections.abc import Callable
from datetime import date
from time import monotonic
from typing import Final

import asyncpg

from snapbid.operations.golive.store import EvidenceStore
from snapbid.warehouse import diagnosis
from snapbid.warehouse.diagnosis import StoredDay

EVERY_S: Final = 2.0


class EvidenceDrain:
    """Carries the days that have changed; `clock` gives seconds."""

    def __init__(self, store: EvidenceStore, clock: Callable[[], float] = monotonic) -> None:
        self._store = store
        self._clock = clock
        self._carried_at: float | None = None

    async def begin(self) -> None:
        """Carry at the next round."""
        self._carried_at = None

    async def round(self, connection: asyncpg.Connection) -> int:
        """Store the days that have changed, unless that was just done; return how many."""
        now = self._clock()
        if self._carried_at is not None and now - self._carried_at < EVERY_S:
            return 0
        self._carried_at = now
        source, days = await self._store.take_days()
        if not days:
            return 0
        stored = [
            StoredDay(
                day.number,
                date.fromisoformat(day.day),
                sum(by for name, by in day.counts.items() if name.startswith("status:")),
                day.counts,
                day.examples,
            )
            for day in days
            if day.counts
        ]
        await diagnosis.store(connection, source, stored)
        await self._store.release_days()
        return len(stored)
