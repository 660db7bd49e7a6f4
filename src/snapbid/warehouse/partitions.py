"""Create and drop the partitions of `events`, one per day or month of receipt.

Events of a day without a partition are kept in `events_other` until its partition is created.
Creating or dropping a partition waits at most a second for others' locks, and can be retried.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import asyncpg

BATCH: Final = 5_000  # rows deleted at once
_PATIENCE: Final = "set local lock_timeout = '1s'"


class Span(NamedTuple):
    """A partition and its range of time, from `first` up to, but not including, `next`."""

    name: str
    first: datetime
    next: datetime

    def has(self, moment: datetime) -> bool:
        return self.first <= moment < self.next


def day(moment: datetime) -> Span:
    """Return the partition of a UTC day."""
    first = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return Span(f"events_{first:%Y%m%d}", first, first + timedelta(days=1))


def month(moment: datetime) -> Span:
    """Return the partition of a UTC month."""
    first = day(moment).first.replace(day=1)
    following = (first + timedelta(days=31)).replace(day=1)
    return Span(f"events_{first:%Y%m}", first, following)


async def fetch_spans(connection: asyncpg.Connection) -> list[Span]:
    """Fetch the existing partitions, oldest first."""
    rows = await connection.fetch("select name, first, next from event_partitions order by first")
    return [Span(*row) for row in rows]


async def make(connection: asyncpg.Connection, span: Span, others: Iterable[Span]) -> None:
    """Create a partition for the part of `span` not in `others`; fill it from `events_other`.

    Raises asyncpg.PostgresError on failure, with nothing changed.
    """
    first, following = span.first, span.next
    for other in others:
        if other.first <= first < other.next:
            first = other.next
        elif first < other.first < following:
            following = other.first
    async with connection.transaction():
        await connection.execute(
            f"""
            {_PATIENCE};
            create table {span.name} (
                like events including defaults including constraints, primary key (event_id));
            with moved as (
                delete from events_other
                where received_at >= '{first}' and received_at < '{following}' returning *)
            insert into {span.name} select * from moved;
            alter table events attach partition {span.name}
                for values from ('{first}') to ('{following}');
            """
        )


async def drop(connection: asyncpg.Connection, span: Span) -> None:
    """Drop a partition with its events.

    Raises asyncpg.PostgresError on failure, with nothing changed.
    """
    async with connection.transaction():
        await connection.execute(f"{_PATIENCE}; drop table {span.name}")


async def delete_before(connection: asyncpg.Connection, table: str, moment: datetime) -> int:
    """Delete a batch of rows received before `moment`; return the number of deleted rows."""
    status: str = await connection.execute(
        f"""
        with oldest as (
            select received_at from {table} where received_at < $1 order by received_at
            limit {BATCH})
        delete from {table} where received_at <= (select max(received_at) from oldest)
        """,
        moment,
    )
    return int(status.split()[1])


async def now(connection: asyncpg.Connection) -> datetime:
    """Return the time by the warehouse's clock."""
    moment: datetime = await connection.fetchval("select now()")
    return moment
