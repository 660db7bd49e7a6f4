"""Create partitions for events, and delete expired events and audience data (contract 7).

If events are kept for a number of days, each partition holds one day. Once all events of a
partition are older than this number of days, the partition is dropped, and their ids are deleted.
If events are kept for ever, each partition holds a month: PostgreSQL can have a few hundred
partitions before plain queries run out of locks. If creating or dropping a partition fails, it is
tried again later; meanwhile, events are still stored.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic
from typing import Final

import asyncpg

from snapbid.warehouse import audiences, conversions, events, partitions
from snapbid.warehouse.partitions import Span

AHEAD_DAYS: Final = 7
BEHIND_DAYS: Final = 31  # events that seem to be received longer ago get no partition
LOOK_S: Final = 60.0
CLICKS_KEPT: Final = timedelta(days=7)  # after their window: events may wait to be stored
DELETE_S: Final = 1.0  # spent on deleting, per round

logger = logging.getLogger(__name__)


class EventDays:
    """Keeps events for `keep_days` (None: for ever); `clock` returns epoch seconds."""

    def __init__(self, keep_days: int | None, clock: Callable[[], float]) -> None:
        self._keep_days = keep_days
        self._clock = clock
        self._spans: list[Span] = []
        self._is_stuck = False  # something failed; wait for the next look
        self._look_at = 0.0  # monotonic
        self._horizon: datetime | None = None

    async def look(self, connection: asyncpg.Connection, *, keeps: bool = True) -> None:
        """Create the next days' partitions and drop expired ones, at most once a minute.

        Also deletes expired rows, for a limited time; the next call continues. Without `keeps`,
        only reads which partitions exist: another drain creates and drops them.
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
            await self._discard(connection, now)
            if self._keep_days is not None:
                await self._drop(connection)
        if self._horizon is not None:
            try:
                await self._delete(connection, self._horizon)
            except asyncpg.PostgresError as error:
                self._horizon = None
                self._note_failure(connection, "delete events past SNAPBID_EVENTS_DAYS", error)

    async def prepare(self, connection: asyncpg.Connection, moments: Iterable[datetime]) -> None:
        """Create partitions for events received at these times.

        Days far from today get no partition: their events go to `events_other`.
        """
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
                self._note_failure(connection, f"create the partition {span.name}", error)
            self._spans = await partitions.fetch_spans(connection)

    async def _drop(self, connection: asyncpg.Connection) -> None:
        """Drop partitions that are too old by both this machine's clock and the warehouse's."""
        assert self._keep_days is not None
        now = min(self._now(), await partitions.now(connection))
        horizon = partitions.day(now - timedelta(days=self._keep_days)).first
        for span in [span for span in self._spans if span.next <= horizon]:
            if self._is_stuck:
                break
            try:
                await partitions.drop(connection, span)
            except asyncpg.PostgresError as error:
                self._note_failure(connection, f"drop the partition {span.name}", error)
            else:
                self._spans.remove(span)
                logger.info(
                    "dropped the partition %(partition)s: its events were received before %(day)s",
                    {"partition": span.name, "day": span.next.date()},
                )
        self._horizon = horizon

    async def _discard(self, connection: asyncpg.Connection, now: datetime) -> None:
        """Discard ended memberships, ids of persons not seen for a long time, and expired clicks.

        A click has expired if no event can count for it any more, however late the event is stored.
        """
        expired = min(now, await partitions.now(connection)) - CLICKS_KEPT
        clicks = partial(conversions.delete_expired, connection, expired)
        await self._discard_some(connection, "delete expired clicks", clicks)
        days = await audiences.fetch_longest_window(connection)
        members = partial(audiences.discard, connection, days)
        await self._discard_some(
            connection, "discard ended memberships and ids of persons", members
        )

    async def _discard_some(
        self, connection: asyncpg.Connection, what: str, discard: Callable[[], Awaitable[int]]
    ) -> None:
        until = monotonic() + DELETE_S
        try:
            while await discard() and monotonic() < until:
                pass
        except asyncpg.PostgresError as error:
            self._note_failure(connection, what, error)

    async def _delete(self, connection: asyncpg.Connection, horizon: datetime) -> None:
        """Delete expired rows outside daily partitions, and ids of events no longer stored.

        Rows from before `horizon` have expired. Stops after DELETE_S; the next call continues.
        """
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

    def _note_failure(
        self, connection: asyncpg.Connection, what: str, error: asyncpg.PostgresError
    ) -> None:
        if connection.is_closed():
            raise error
        self._is_stuck = True
        logger.warning(
            "failed to %(task)s: %(reason)s; retrying in %(retry_s).0f s",
            {"task": what, "reason": type(error).__name__, "retry_s": LOOK_S},
        )
