"""The streams of events that this drain carries: its share of the shards', and what is left over.

A ledger that had more shards has left streams, which servers of that time may still write to. That
of shard N is carried with stream N modulo the number of shards that there are now.

Products are carried in turns, also those of one stream: it is looked through once, whoever fills
it, and what waits is kept by product. Requests beyond `HELD_BYTES` are read again when it is their
turn. Of one product they keep their order.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from time import monotonic
from typing import Any, Final

import asyncpg
from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.base.redis_keys import ShardKeys
from snapbid.drain.counters import ShardsAwayError
from snapbid.drain.leases import IdleError, Leases
from snapbid.queues import queue
from snapbid.queues.queues import fetch_leftovers
from snapbid.warehouse import leases

ENTRIES: Final = 16  # of a stream, read at once
LOOK_S: Final = 5.0  # between looks for streams that are left over
THROUGH_S: Final = 0.5  # in which a stream is looked through, before some of it is carried
HELD_BYTES: Final = 32 << 20  # of requests that wait, in memory
MOST_WAITING: Final = 200_000  # requests; beyond that a stream is looked through no further
TAKEN_BYTES: Final = 8 << 20  # at once, or a single request


class Waiting:
    """A request in a stream, with so many events of a product; `packed` if it is in memory."""

    __slots__ = ("count", "entry", "field", "packed", "product", "size")

    def __init__(self, entry: bytes, field: bytes, packed: bytes) -> None:
        self.entry = entry
        self.field = field
        self.product, self.count = queue.outline(packed)
        self.size = len(packed)
        self.packed: bytes | None = packed


class EventStream:
    """The stream of a shard, and what is known to wait in it, by product."""

    def __init__(self, redis: Redis, number: int) -> None:
        self.number = number
        self._redis = redis
        self._key = ShardKeys(number).events
        self.forget()

    def forget(self) -> None:
        """Begin anew with what is in the stream."""
        self._turns: dict[str, deque[Waiting]] = {}  # whose turn it is comes first
        self._entries: dict[bytes, set[Waiting]] = {}  # what is not carried of each
        self._last: bytes | None = None
        self._held = self._count = 0

    async def probe(self) -> None:
        """Raise RedisError where the stream cannot be read."""
        await self._redis.exists(self._key)

    async def read(
        self, first: bytes = b"-", last: bytes = b"+"
    ) -> Sequence[tuple[bytes, Mapping[bytes, bytes]]]:
        """The oldest of these entries: their ids and fields."""
        entries: Any = await self._redis.xrange(self._key, first, last, count=ENTRIES)
        return list(entries)

    async def remove(self, ids: Sequence[bytes]) -> None:
        """Remove entries, which may be gone already."""
        await self._redis.xdel(self._key, *ids)

    async def look(self) -> None:
        """Look through what has come since, for some time at most."""
        if not self._entries:
            self.forget()  # an older copy may have been put back, with entries before the last
        until = monotonic() + THROUGH_S
        while self._count < MOST_WAITING and monotonic() < until:
            entries = await self.read(b"-" if self._last is None else b"(" + self._last)
            for id, fields in entries:
                self._last = id
                self._note(id, fields)
            if len(entries) < ENTRIES:
                break

    def _note(self, id: bytes, fields: Mapping[bytes, bytes]) -> None:
        requests = [Waiting(id, field, packed) for field, packed in fields.items()]
        self._entries[id] = set(requests)
        self._count += len(requests)
        for request in requests:
            self._turns.setdefault(request.product, deque()).append(request)
            if self._held + request.size > HELD_BYTES:
                request.packed = None
            else:
                self._held += request.size

    def waits(self, product: str) -> bool:
        """Whether anything of a product waits."""
        return product in self._turns

    async def take(self, events: int, apart: Collection[str] = ()) -> list[Waiting]:
        """Take requests of some `events` events of all products in turns, save those `apart`."""
        taken: list[Waiting] = []
        left, size = events, 0
        while left > 0 and size < TAKEN_BYTES:
            products = [product for product in self._turns if product not in apart]
            if not products:
                break
            share = max(1, left // len(products))
            for product in products:
                some = await self._take_from(product, share, TAKEN_BYTES - size)
                taken += some
                left -= sum(request.count for request in some)
                size += sum(request.size for request in some)
                if left <= 0 or size >= TAKEN_BYTES:
                    break
        return taken

    async def take_of(self, product: str, events: int) -> list[Waiting]:
        """Take requests of some `events` events of a product."""
        return await self._take_from(product, events, TAKEN_BYTES)

    async def _take_from(self, product: str, events: int, size: int) -> list[Waiting]:
        """Take requests of a product, until they have so many events, or bytes."""
        taken = []
        requests = self._turns[product]
        while requests and events > 0 and size > 0:
            request = requests[0]
            if request.packed is None:
                await self._read_again(request.entry)
            requests.popleft()
            if request.packed is None:  # it is gone
                self._settle(request)
                continue
            taken.append(request)
            events -= max(1, request.count)
            size -= request.size
        del self._turns[product]
        if requests:
            self._turns[product] = requests  # its next turn comes after those of all others
        return taken

    async def _read_again(self, entry: bytes) -> None:
        """Bring what waits of an entry back into memory."""
        read = dict(await self.read(entry, entry))
        for request in self._entries[entry]:
            if request.packed is None and (packed := read.get(entry, {}).get(request.field)):
                request.packed = packed
                self._held += request.size

    def put_back(self, requests: Sequence[Waiting]) -> None:
        """Let requests that were taken wait again, as the first of their products."""
        for request in reversed(requests):
            self._turns.setdefault(request.product, deque()).appendleft(request)

    async def finish(self, requests: Sequence[Waiting]) -> None:
        """Remove requests that were taken, and are carried."""
        done = [request.entry for request in requests if self._settle(request)]
        if done:
            await self.remove(done)

    def _settle(self, request: Waiting) -> bool:
        """Forget a request; give whether it was the last one of its entry."""
        self._count -= 1
        if request.packed is not None:
            self._held -= request.size
        of_entry = self._entries[request.entry]
        of_entry.remove(request)
        if of_entry:
            return False
        del self._entries[request.entry]
        return True


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
        try:
            mine = await self._leases.share(connection)
        except IdleError:
            self.forget()  # other drains carry them
            raise
        if monotonic() >= self._look_at:
            left = await fetch_leftovers(self._redis, len(self._streams))
            known = {stream.number: stream for stream in self._leftovers}
            self._leftovers = [known.get(n) or EventStream(self._redis, n) for n in left]
            self._look_at = monotonic() + LOOK_S
        count = len(self._streams)
        streams = [*self._streams, *self._leftovers]
        for stream in streams:
            if stream.number % count not in mine:
                stream.forget()  # another drain carries it
        return [stream for stream in streams if stream.number % count in mine]

    def forget(self) -> None:
        """Begin anew with what is in the streams."""
        for stream in (*self._streams, *self._leftovers):
            stream.forget()

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
