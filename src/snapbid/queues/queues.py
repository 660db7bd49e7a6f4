"""Queues of server events for a ledger with several shards, one stream each (contract 7 and 10).

All events of a product go to one stream, which keeps their order: of events with the same id the
first is kept, and sequences are checked in order of arrival. If a stream's node is unavailable, the
events of its products are refused; those of other products are accepted.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.base.redis_keys import ShardKeys, shard_of
from snapbid.queues import queue
from snapbid.queues.queue import EventQueue
from snapbid.redisclient.connection import Connections

GAP: Final = 8  # consecutive shards without data after which the search ends


def stream_of(product: str, shards: int) -> int:
    """Return the shard whose stream carries a product's events."""
    return shard_of(product.encode(), shards)


class EventQueues:
    """One worker's queues of events, one per shard; `replicas`: see Connections."""

    def __init__(self, url: str, replicas: int | None = None, shards: int = 1) -> None:
        connections = Connections(url, replicas)
        self._queues = [EventQueue(connections, shard, shards) for shard in range(shards)]

    @property
    def sink(self) -> "EventQueue | EventQueues":
        """The object to put events into: the only queue, or this object if there are several."""
        return self if len(self._queues) > 1 else self._queues[0]

    async def open(self) -> None:
        """Start connecting, without waiting for the connections."""
        for each in self._queues:
            await each.open()

    async def close(self) -> None:
        """Send pending events if Redis is reachable, then disconnect."""
        await asyncio.gather(*(each.close() for each in self._queues))

    async def put(
        self, received_at_ms: int, product: str, events: Sequence[tuple[str, bytes]]
    ) -> bool:
        """Like `EventQueue.put`, but with one limit on waiting bytes for all queues together."""
        if sum(each.waiting_bytes for each in self._queues) > queue.MAX_WAITING_BYTES:
            return False
        own = self._queues[stream_of(product, len(self._queues))]
        return await own.put(received_at_ms, product, events)


async def fetch_leftovers(redis: Redis, shards: int) -> list[int]:
    """List shards numbered `shards` or higher that still have data after a move to fewer shards.

    A few shards that are empty or unavailable do not end the search, as others may follow.
    """
    leftovers = list[int]()
    number, gap = shards, 0
    while gap < GAP:
        keys = ShardKeys(number)
        try:
            has_data = bool(await redis.exists(keys.epoch, keys.events))
        except (RedisError, OSError):
            has_data = False
        gap = 0 if has_data else gap + 1
        if has_data:
            leftovers.append(number)
        number += 1
    return leftovers
