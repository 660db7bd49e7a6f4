"""A stream of accepted events, a warehouse, and the drain between them."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
from redis.asyncio import Redis

from snapbid.base.redis_keys import ShardKeys
from snapbid.drain.events import EventDrain
from snapbid.events.outcomes import BatchResult, Product
from snapbid.metrics import Metrics
from snapbid.queues import queue
from snapbid.reference import history
from snapbid.reference.geo import GeoDatabase
from snapbid.warehouse.events import join
from support.event_reading import read_batch
from support.sending import NOW

GEO = GeoDatabase()
HISTORY = history.load()
CASINO = Product("casino", frozenset({"igaming"}))


def accepted(product: Product, *documents: dict[str, Any]) -> list[tuple[str, bytes]]:
    """What the queue is given of events: their ids and envelopes."""
    read = read_batch(json.dumps(documents).encode(), product, NOW)
    assert isinstance(read, BatchResult), read
    return [(event.event_id, event.envelope) for event in read.accepted]


class Bench:
    """A stream, a warehouse, and the drain between them."""

    def __init__(
        self, dsn: str, connection: asyncpg.Connection, redis_url: str, folder: Path
    ) -> None:
        self.dsn = dsn
        self.redis_url = redis_url
        self.redis = redis = Redis.from_url(redis_url)
        self.connection = connection
        self.metrics = Metrics(folder)
        self.references = GEO, HISTORY
        self.drain = EventDrain(redis, self.metrics, *self.references)

    async def accept(
        self, *documents: dict[str, Any], product: Product = CASINO, at: int = NOW
    ) -> list[str]:
        """Accept a batch as the endpoint does; returns the event ids."""
        pairs = accepted(product, *documents)
        await self.add(queue.encode(at, product.name, pairs))
        return [event_id for event_id, _ in pairs]

    async def add(self, *requests: bytes) -> None:
        await self.redis.execute_command(*queue.add(requests, ShardKeys(0).events))  # type: ignore[no-untyped-call]

    async def round(self) -> int:
        carried = await self.drain.round(self.connection)
        assert await self.redis.xlen(ShardKeys(0).events) == 0
        return carried

    async def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.connection.fetch(sql, *values)]

    async def flags(self) -> dict[str, list[str]]:
        """The flags by event name; of several events of a name, those of the first."""
        flagged = await self.rows("select event, flags from events order by arrival desc")
        return dict(flagged)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, dsn: str, redis_url: str, folder: Path) -> AsyncIterator["Bench"]:
        """Open on an empty, migrated database and an empty Redis; metrics go to the folder."""
        connection = await asyncpg.connect(dsn)
        assert await join(connection)
        bench = cls(dsn, connection, redis_url, folder)
        try:
            yield bench
        finally:
            bench.metrics.close()
            await bench.redis.aclose()
            await bench.connection.close()
