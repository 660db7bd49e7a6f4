"""Drain the workers' request statistics of SSPs from Redis into the warehouse, by day.

A day is stored as it stands in Redis, in place of its earlier version, so draining it twice changes
nothing. These are statistics, not accounting (operations/golive/store.py).
"""

from datetime import date
from time import monotonic
from typing import Final

import asyncpg

from snapbid.operations.golive.store import RequestStatsStore
from snapbid.warehouse import diagnosis
from snapbid.warehouse.diagnosis import StoredDay

EVERY_S: Final = 2.0


class RequestStatsDrain:
    """Drains the request statistics of those days that have changed."""

    def __init__(self, store: RequestStatsStore) -> None:
        self._store = store
        self._drained_at: float | None = None

    async def begin(self) -> None:
        """Have the next round drain without waiting for EVERY_S."""
        self._drained_at = None

    async def round(self, connection: asyncpg.Connection) -> int:
        """Store the days that have changed, at most once per EVERY_S.

        Returns the number of days stored.
        """
        now = monotonic()
        if self._drained_at is not None and now - self._drained_at < EVERY_S:
            return 0
        self._drained_at = now
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
