"""How long events are kept, and the partitions that hold them (contract 7).

Where events are kept for some days a partition is for a day, and dropped with the ids of its events
when all of that day is older. Where they are kept for ever it is for a month, of which PostgreSQL
can have some hundred before plain queries run out of locks. What cannot be made or dropped is tried
again later, and stops no event.
"""

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from time import monotonic, time
from typing import Final

import asyncpg

from snapbid.warehouse import events, partitions
from snapbid.warehouse.partitions import Span

AHEAD_DAYS: Final = 7
BEHIND_DAYS: Final = 31  # events received longer ago, by whatever clock, get no partition
LOOK_S: Final = 60.0
DELETE_S: Final = 1.0  # of a round

logger = logging.getLogger("snapbid")


class EventDays:
    """Keeps events for so many days, None: for ever; `clock` gives epoch seconds."""

    def __init__(self, keep_days: int | None, clock: Callable[[], float] = time) -> None:
        self._keep_days = keep_days
        self._clock = clock
        self._spans: list[Span] = []
        self._is_stuck = False  # until the next look
        self._look_at = 0.0  # monotonic
        self._horizon: datetime | None = None

    async def look(self, connection: asyncpg.Connection, *, keeps: bool = True) -> None:
        """Make the next days' partitions and drop the oldest, once a minute.

        `keeps`: this drain is the one that does so; others look at what there is.
        """
        if monotonic() >= self._look_at:
            self._look_at = monotonic() + LOOK_S
            self._is_stuck = False
            self._spans = await partitions.fetch_spans(connection)
            if not keeps:
                self._horizon = None
                return
            now = self._now()
            await self.prepare(connection, (now + timedelta(days=n) for n in range(AHEAD_DAYS + 1)))
            if self._keep_days is not None:
                await self._drop(connection)
        if self._horizon is not None:
            try:
                await self._delete(connection, self._horizon)
            except asyncpg.PostgresError as error:
                self._horizon = None
                self._tell(connection, "what is older than SNAPBID_EVENTS_DAYS", "deleted", error)

    async def prepare(self, connection: asyncpg.Connection, moments: Iterable[datetime]) -> None:
        """Make the partitions in which events are received; far days go to `events_other`."""
        now = self._now()
        first, last = now - timedelta(days=BEHIND_DAYS), now + timedelta(days=AHEAD_DAYS + 1)
        for moment in moments:
            if any(span.has(moment) for span in self._spans) or not first <= moment <= last:
                continue
            if self._is_stuck:
                return
            span = (partitions.month if self._keep_days is None else partitions.day)(moment)
            try:
                await partitions.make(connection, span, self._spans)
            except asyncpg.PostgresError as error:
                self._tell(connection, f"the partition {span.name}", "made", error)
            self._spans = await partitions.fetch_spans(connection)

    async def _drop(self, connection: asyncpg.Connection) -> None:
        """Drop what is older by this clock and by the warehouse's."""
        assert self._keep_days is not None
        now = min(self._now(), await partitions.now(connection))
        horizon = partitions.day(now - timedelta(days=self._keep_days)).first
        for span in [span for span in self._spans if span.next <= horizon]:
            if self._is_stuck:
                break
            try:
                await partitions.drop(connection, span)
            except asyncpg.PostgresError as error:
                self._tell(connection, f"the partition {span.name}", "dropped", error)
            else:
                self._spans.remove(span)
                logger.info("events received before %s are dropped", span.next.date())
        self._horizon = horizon

    async def _delete(self, connection: asyncpg.Connection, horizon: datetime) -> None:
        """Delete what has no partition of its own, and ids when their events are gone."""
        until = monotonic() + DELETE_S
        oldest = min([horizon, *(span.first for span in self._spans)])
        tables = (("events_other", horizon), ("event_conflicts", horizon), ("event_ids", oldest))
        for table, moment in tables:
            while await partitions.delete_before(connection, table, moment):
                if monotonic() > until:
                    return
        while await events.discard(connection, horizon):
            if monotonic() > until:
                return
        self._horizon = None

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    def _tell(
        self, connection: asyncpg.Connection, what: str, done: str, error: asyncpg.PostgresError
    ) -> None:
        if connection.is_closed():
            raise error
        self._is_stuck = True
        logger.warning("%s cannot be %s yet: %s", what, done, type(error).__name__)
