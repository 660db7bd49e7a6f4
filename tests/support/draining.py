"""A ledger, a warehouse, the drain between them, and a clock that tests can set."""

import contextlib
import datetime
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncpg
from redis.asyncio import Redis

from snapbid.drain.counters import ShardCounters
from snapbid.drain.drain import Drain
from snapbid.ledger.budgets.budgets import Budgets
from snapbid.metrics import Metrics
from support.clock import SettableClock
from support.counted import Ledger, counted, register

DAY = "2024-05-01"
NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC).timestamp()
DAY_S = 86_400


def drain_of(
    redis: Redis, shards: list[ShardCounters], metrics: Metrics, clock: Callable[[], float]
) -> Drain:
    return Drain(shards, Budgets(redis, len(shards), clock), metrics, clock)


class Bench:
    """A ledger, a warehouse, the drain between them, and a clock that tests can set."""

    def __init__(self, redis: Redis, connection: asyncpg.Connection, metrics: Metrics) -> None:
        self.redis = redis
        self.connection = connection
        self.metrics = metrics
        self.clock = SettableClock(NOON)
        self.ledger = Ledger(redis)

    def shards(self, count: int = 1) -> list[ShardCounters]:
        return [ShardCounters(self.redis, number) for number in range(count)]

    async def drain(self, shards: list[ShardCounters] | None = None) -> int:
        """A round of a freshly started drain."""
        drain = drain_of(self.redis, shards or self.shards(), self.metrics, self.clock)
        await drain.begin()
        return await drain.round(self.connection)

    async def assert_equal(self) -> None:
        assert await counted(self.connection) == self.ledger.tables()

    async def absorbed_rows(self) -> int:
        return int(await self.connection.fetchval("select count(*) from drain_absorbed"))

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, dsn: str, redis_url: str, metrics_path: Path) -> AsyncIterator["Bench"]:
        """Open on an empty, migrated database and an empty Redis."""
        async with contextlib.AsyncExitStack() as stack:
            connection = await asyncpg.connect(dsn)
            stack.push_async_callback(connection.close)
            redis = Redis.from_url(redis_url)
            stack.push_async_callback(redis.aclose)
            metrics = Metrics(metrics_path)
            stack.callback(metrics.close)
            await register(connection)
            yield cls(redis, connection, metrics)
