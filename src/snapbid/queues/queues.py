"""Server events of a ledger with several shards: a stream for each (contract, sections 7 and 10).

A product's events all go to one stream, so that they keep their order: of the events of one id the
first is kept, and a sequence is judged by who came first. Where a stream's node is away its
products' events are refused, as all are where there is one Redis; those of others go on.
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

GAP: Final = 8  # shards without data, behind which no further one is looked for


def stream_of(product: str, shards: int) -> int:
    """The shard whose stream takes the events of a product."""
    return shard_of(product.encode(), shards)


class EventQueues:
    """One worker's queues; `replicas` is that of Connections."""

    def __init__(self, url: str, replicas: int | None = None, shards: int = 1) -> None:
        connections = Connections(url, replicas)
        self._queues = [EventQueue(connections, shard, shards) for shard in range(shards)]

    @property
    def sink(self) -> "EventQueue | EventQueues":
        """What takes events: a queue that is alone does so itself."""
        return self if len(self._queues) > 1 else self._queues[0]

    async def open(self) -> None:
        """Start to connect, without waiting for the connections."""
        for each in self._queues:
            await each.open()

    async def close(self) -> None:
        """Send what is pending where Redis is reachable, then disconnect."""
        await asyncio.gather(*(each.close() for each in self._queues))

    async def put(
        self, received_at_ms: int, product: str, events: Sequence[tuple[str, bytes]]
    ) -> bool:
        """As `EventQueue.put`; together they keep as much waiting as one would alone."""
        if sum(each.waiting_bytes for each in self._queues) > queue.MAX_WAITING_BYTES:
            return False
        own = self._queues[stream_of(product, len(self._queues))]
        return await own.put(received_at_ms, product, events)


async def fetch_leftovers(redis: Redis, shards: int) -> list[int]:
    """Shards of a ledger that had more of them, whose streams may have events.

    Numbers have no holes but where data was lost, or is away; that is looked for again.
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
