"""The streams of events that this drain carries: its share of the shards', and what is left over.

A ledger that had more shards has left streams, which servers of that time may still write to. That
of shard N is carried with stream N modulo the number of shards that there are now.
"""

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, Final

import asyncpg
from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.drain.counters import ShardsAwayError
from snapbid.drain.leases import Leases
from snapbid.ledger.keys import ShardKeys
from snapbid.ledger.queues import fetch_leftovers
from snapbid.warehouse import leases

ENTRIES: Final = 16  # of a stream, read at once
LOOK_S: Final = 5.0  # between looks for streams that are left over


class EventStream:
    """The stream of a shard."""

    def __init__(self, redis: Redis, number: int) -> None:
        self.number = number
        self._redis = redis
        self._key = ShardKeys(number).events

    async def probe(self) -> None:
        """Raise RedisError where the stream cannot be read."""
        await self._redis.exists(self._key)

    async def read(self) -> Sequence[tuple[bytes, Mapping[bytes, bytes]]]:
        """The oldest entries: their ids and fields."""
        entries: Any = await self._redis.xrange(self._key, count=ENTRIES)
        return list(entries)

    async def remove(self, ids: Sequence[bytes]) -> None:
        """Remove entries, which may be gone already."""
        await self._redis.xdel(self._key, *ids)


class EventStreams:
    """The streams of a ledger with so many shards, for one drain."""

    def __init__(self, redis: Redis, shards: int) -> None:
        self._redis = redis
        self._streams = [EventStream(redis, number) for number in range(shards)]
        self._leases = Leases(self._streams, leases.EVENTS)
        self._leftovers: list[EventStream] = []
        self._look_at = 0.0  # monotonic

    async def share(self, connection: asyncpg.Connection) -> list[EventStream]:
        """The streams to carry now, the shards' own before others; raises as Leases.share."""
        mine = await self._leases.share(connection)
        if monotonic() >= self._look_at:
            left = await fetch_leftovers(self._redis, len(self._streams))
            self._leftovers = [EventStream(self._redis, number) for number in left]
            self._look_at = monotonic() + LOOK_S
        count = len(self._streams)
        streams = [*self._streams, *self._leftovers]
        return [stream for stream in streams if stream.number % count in mine]

    def note(self, carried: Sequence[EventStream], errors: Mapping[int, RedisError]) -> None:
        """Take note of which streams could not be read, at the end of a round.

        Raises RedisError where none could, ShardsAwayError where only some could.
        """
        own = {stream.number for stream in carried if stream.number < len(self._streams)}
        of_own = {number: error for number, error in errors.items() if number in own}
        self._leases.note(own - of_own.keys(), of_own)
        if own and own == of_own.keys():
            raise errors[min(own)]
        if away := {**self._leases.lost, **errors}:  # whose texts may quote what was sent
            raise ShardsAwayError({n: RedisError(type(e).__name__) for n, e in away.items()})
