"""The event streams of this drain: the streams of its share of the shards, and leftovers.

A ledger that had more shards leaves streams behind, and servers that have not been restarted may
still write to them. Leftover stream N is drained together with stream N modulo the number of
shards.

Products take turns even within a stream, however many requests one of them has sent: a stream is
scanned once, and its requests are queued in memory by product. Requests beyond `HELD_BYTES` are
read again when their turn comes. Requests of one product keep their order.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from time import monotonic
from typing import Any, Final

import asyncpg
from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.base.redis_keys import ShardKeys
from snapbid.drain.counters import ShardsUnavailableError
from snapbid.drain.leases import IdleError, Leases
from snapbid.queues import queue
from snapbid.queues.queues import fetch_leftovers
from snapbid.warehouse import leases

ENTRIES: Final = 16  # of a stream, read at once
LOOK_S: Final = 5.0  # between searches for leftover streams
THROUGH_S: Final = 0.5  # spent on scanning a stream before some of it is drained
HELD_BYTES: Final = 32 << 20  # of queued requests in memory
MOST_WAITING: Final = 200_000  # queued requests; beyond that a stream is not scanned further
TAKEN_BYTES: Final = 8 << 20  # taken at once; a single request may be larger


class Waiting:
    """A queued request with `count` events of one product.

    `packed`: the encoded events; None if they have to be read again from Redis.
    """

    __slots__ = ("count", "entry", "field", "packed", "product", "size")

    def __init__(self, entry: bytes, field: bytes, packed: bytes) -> None:
        self.entry = entry
        self.field = field
        self.product, self.count = queue.outline(packed)
        self.size = len(packed)
        self.packed: bytes | None = packed


class EventStream:
    """A shard's event stream, and the requests found in the stream, by product."""

    def __init__(self, redis: Redis, number: int) -> None:
        self.number = number
        self._redis = redis
        self._keys = ShardKeys(number)
        self.forget()

    def forget(self) -> None:
        """Forget all requests read, so the next `look` scans the stream again from its start."""
        self._turns: dict[str, deque[Waiting]] = {}  # the next product comes first
        self._entries: dict[bytes, set[Waiting]] = {}  # entry -> its requests not drained yet
        self._last: bytes | None = None
        self._held = self._count = 0

    async def probe(self) -> None:
        """Raise RedisError if the stream cannot be read."""
        await self._redis.exists(self._keys.events)

    async def read(
        self, first: bytes = b"-", last: bytes = b"+"
    ) -> Sequence[tuple[bytes, Mapping[bytes, bytes]]]:
        """Read the oldest entries between two ids, at most ENTRIES, as (id, fields)."""
        entries: Any = await self._redis.xrange(self._keys.events, first, last, count=ENTRIES)
        return list(entries)

    async def remove(self, ids: Sequence[bytes]) -> None:
        """Remove entries from the stream, by id; unknown ids are ignored."""
        await self._redis.xdel(self._keys.events, *ids)

    async def look(self) -> None:
        """Queue the requests in new entries, spending at most THROUGH_S."""
        if not self._entries:
            self.forget()  # a restored copy of Redis may have entries before the last one seen
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
        """Return whether a product has queued requests."""
        return product in self._turns

    async def take(self, events: int, apart: Collection[str] = ()) -> list[Waiting]:
        """Take requests with about `events` events in total.

        Takes from each product in turn, leaving out the products in `apart`.
        """
        taken: list[Waiting] = []
        left, size = events, 0
        while left > 0 and size < TAKEN_BYTES:
            products = [product for product in self._turns if product not in apart]
            if not products:
                break
            share = max(1, left // len(products))
            for product in products:
                some = await self.take_of(product, share, TAKEN_BYTES - size)
                taken += some
                left -= sum(request.count for request in some)
                size += sum(request.size for request in some)
                if left <= 0 or size >= TAKEN_BYTES:
                    break
        return taken

    async def take_of(self, product: str, events: int, size: int = TAKEN_BYTES) -> list[Waiting]:
        """Take requests of a product until they have `events` events or `size` bytes."""
        taken = []
        requests = self._turns[product]
        while requests and events > 0 and size > 0:
            request = requests[0]
            if request.packed is None:
                await self._read_again(request.entry)
            requests.popleft()
            if request.packed is None:  # its entry is gone
                self._settle(request)
                continue
            taken.append(request)
            events -= max(1, request.count)
            size -= request.size
        del self._turns[product]
        if requests:
            self._turns[product] = requests  # to the end: all other products come first
        return taken

    async def _read_again(self, entry: bytes) -> None:
        """Read the queued requests of an entry back into memory."""
        read = dict(await self.read(entry, entry))
        for request in self._entries[entry]:
            if request.packed is None and (packed := read.get(entry, {}).get(request.field)):
                request.packed = packed
                self._held += request.size

    def put_back(self, requests: Sequence[Waiting]) -> None:
        """Return taken requests to the front of their products' queues."""
        for request in reversed(requests):
            self._turns.setdefault(request.product, deque()).appendleft(request)

    async def finish(self, requests: Sequence[Waiting], unstored: Mapping[str, int]) -> None:
        """Remove requests that were taken and drained.

        `unstored`: how many events of these requests got no row, by the field that counts them
        (`queue.name_minute`). These numbers are first subtracted from the counts of accepted
        events, so that the self-audit never expects too many.
        """
        for minute, count in unstored.items():
            await self._redis.hincrby(self._keys.accepted, minute, -count)
        done = [request.entry for request in requests if self._settle(request)]
        if done:
            await self.remove(done)

    def _settle(self, request: Waiting) -> bool:
        """Forget a request; return whether it was the last one of its stream entry."""
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
    """The event streams of a ledger; `share` returns the streams that this drain works on."""

    def __init__(self, redis: Redis, shards: int) -> None:
        self._redis = redis
        self._streams = [EventStream(redis, number) for number in range(shards)]
        self._leases = Leases(self._streams, leases.EVENTS)
        self._leftovers: list[EventStream] = []
        self._look_at = 0.0  # monotonic

    async def share(self, connection: asyncpg.Connection) -> list[EventStream]:
        """Return the streams to drain now, leftovers last. Raises the errors of Leases.share."""
        try:
            mine = await self._leases.share(connection)
        except IdleError:
            self.forget()  # other drains have them
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
                stream.forget()  # another drain has it
        return [stream for stream in streams if stream.number % count in mine]

    def forget(self) -> None:
        """Have all streams scanned again from their start."""
        for stream in (*self._streams, *self._leftovers):
            stream.forget()

    def note(self, drained: Sequence[EventStream], errors: Mapping[int, RedisError]) -> None:
        """Record at the end of a round which streams could not be read.

        Raises RedisError if none could be read, ShardsUnavailableError if only some could.
        """
        own = {stream.number for stream in drained if stream.number < len(self._streams)}
        of_own = {number: error for number, error in errors.items() if number in own}
        self._leases.note(own - of_own.keys(), of_own)
        if own and own == of_own.keys():
            raise errors[min(own)]
        if lost := {**self._leases.lost, **errors}:  # their texts may quote what partners sent
            raise ShardsUnavailableError({n: RedisError(type(e).__name__) for n, e in lost.items()})
