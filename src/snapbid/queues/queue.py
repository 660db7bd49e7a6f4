"""Group commit of accepted server events to a stream, which the drain reads (contract 7).

Each shard of the ledger has a stream, for which each worker has a queue. `queues.py` chooses the
stream of a product's events.

Each request becomes one field of a stream entry. Requests that arrive during a round trip share the
next entry; no request waits for a timer. The queue has its own connection, so no bid waits behind a
batch of events.

`put` returns True only once Redis has acknowledged the events. After False, they may still be in
the stream: the client sends them again, and since the warehouse keeps one event per id, nothing
needs to be rolled back.

Whenever the stream's length is measured, the events acknowledged since the last measurement are
added to counts in Redis, by minute of receipt and product. The drain subtracts events that get no
row, and the self-audit compares the counts with the warehouse (drain/accepted.py). If a worker
dies, counts may be too low, but never too high.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Final

import msgspec
from redis.asyncio.connection import AbstractConnection

from snapbid.base.beat import BEAT_S
from snapbid.base.redis_keys import ShardKeys
from snapbid.redisclient.connection import Connections
from snapbid.redisclient.replicas import Command
from snapbid.redisclient.trips import Reply, Requests, RoundTrips, expect

STALL_S: Final = 2.0  # without a reply, the connection is closed
IDLE_S: Final = 0.5  # less than two beats: an idle queue checks its stream every other beat
MEASURED: Final = 64  # round trips between measurements of the stream
ENOUGH: Final = 256  # requests at which an entry is sent at once
MINUTE_MS: Final = 60_000
MAX_ENTRY_BYTES: Final = 1 << 20  # per stream entry, unless a single request is larger
MAX_WAITING_BYTES: Final = 64 << 20  # in this process; beyond, events are refused
MAX_STREAM_BYTES: Final = 1 << 30  # in Redis, roughly; beyond, events are refused as well

logger = logging.getLogger(__name__)


class QueuedEvents(msgspec.Struct, frozen=True, array_like=True):
    """The queued events of one request: (event id, canonical envelope) pairs."""

    received_at_ms: int
    product: str
    events: list[tuple[str, bytes]]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(QueuedEvents).decode


def decode(packed: bytes) -> QueuedEvents:
    """Decode a field of the stream. Raises msgspec.DecodeError."""
    return _decode(packed)


class _Outline(msgspec.Struct, frozen=True, array_like=True):
    received_at_ms: int
    product: str
    events: list[msgspec.Raw]


_decode_outline: Final = msgspec.msgpack.Decoder(_Outline).decode


def outline(packed: bytes) -> tuple[str, int]:
    """Read the product and the number of events from a stream field; ("", 1) if unreadable."""
    try:
        request = _decode_outline(packed)
    except msgspec.DecodeError:
        return "", 1
    return request.product, len(request.events)


def encode(received_at_ms: int, product: str, events: Sequence[tuple[str, bytes]]) -> bytes:
    """Encode a request's events as a field of the stream, for `decode`."""
    return _encode((received_at_ms, product, events))


def add(requests: Iterable[bytes], stream: str) -> tuple[str | bytes, ...]:
    """Return the command that adds encoded requests to a stream as one entry."""
    fields = [part for number, packed in enumerate(requests) for part in (b"%d" % number, packed)]
    return ("XADD", stream, "*", *fields)


def name_minute(minute: int, product: str) -> str:
    """Return the name of the field that counts a product's events in a minute.

    `minute` counts from 1970-01-01.
    """
    return f"{minute} {product}"


def parse_minute(field: bytes) -> tuple[int, str]:
    """Parse a field named by `name_minute` into minute (since 1970) and product."""
    minute, _, product = field.decode().partition(" ")
    return int(minute), product


class _Pending(msgspec.Struct, frozen=True):
    packed: bytes
    minute: tuple[int, str]  # since 1970, and product
    count: int  # events
    done: "Reply[bool]"


class EventQueue:
    """One worker's queue of events for the stream of a shard."""

    def __init__(self, connections: Connections, shard: int = 0, shards: int = 1) -> None:
        self._keys = keys = ShardKeys(shard)
        self._measure: Command = ("MEMORY", "USAGE", keys.events)
        subject = "event stream" if shards == 1 else f"event stream {shard}"
        connect = connections.connector(keys.events)
        self._trips = RoundTrips(connect, self, subject, STALL_S, BEAT_S, ENOUGH)
        self._requests = Requests[_Pending]()
        self._sent_bytes = 0
        self._sent_at = 0.0
        self._measures = False  # whether the round trip under way measures the stream
        self._accepted: Counter[tuple[int, str]] = Counter()  # acknowledged, not yet counted there
        self._full = False
        self.waiting_bytes = 0
        self.flushes = 0

    @property
    def connected(self) -> bool:
        """Whether the queue is connected; otherwise `put` refuses events."""
        return self._trips.connected

    async def open(self) -> None:
        """Start connecting, without waiting for the connection."""
        self._trips.open()

    async def close(self) -> None:
        """Send pending requests if Redis is reachable, then disconnect."""
        await self._trips.flush()
        await self._trips.close()

    async def put(
        self, received_at_ms: int, product: str, events: Sequence[tuple[str, bytes]]
    ) -> bool:
        """Store (event id, canonical envelope) pairs; return whether Redis acknowledged them."""
        packed = encode(received_at_ms, product, events)
        if not self.connected or self._full or self.waiting_bytes + len(packed) > MAX_WAITING_BYTES:
            return False
        done: Reply[bool] = self._trips.reply()
        waiting = self._requests.waiting
        self.waiting_bytes += len(packed)
        minute = received_at_ms // MINUTE_MS, product
        waiting.append(_Pending(packed, minute, len(events), done))
        self._trips.schedule(len(waiting))
        return await done

    # -- round trips (see TripUser) ---------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return len(self._requests.waiting)

    async def prepare(self, connection: AbstractConnection) -> None:
        await connection.send_command(*self._measure)
        self._measured(await connection.read_response())
        await self._trips.confirm(connection, self._keys)

    def next_batch(self, now: float) -> list[Command]:
        self._sent_at = now
        count, self._sent_bytes = self._next_entry()
        requests = self._requests.take(count)
        self._measures = not requests or (self.flushes + 1) % MEASURED == 0
        commands: list[Command] = []
        if requests:
            commands.append(add([request.packed for request in requests], self._keys.events))
        if self._measures:
            commands += [*self._count(), self._measure]
        return commands

    def _count(self) -> list[Command]:
        """Return commands that count acknowledged events. Lost commands are not sent again."""
        counts, self._accepted = self._accepted, Counter()
        return [
            ("HINCRBY", self._keys.accepted, name_minute(*minute), count)
            for minute, count in counts.items()
        ]

    def _next_entry(self) -> tuple[int, int]:
        """Return how many waiting requests the next stream entry takes, and their size (bytes)."""
        size = count = 0
        for request in self._requests.waiting:
            if count and size + len(request.packed) > MAX_ENTRY_BYTES:
                break
            size += len(request.packed)
            count += 1
        return count, size

    def receive(self, replies: list[Any], asked_at: float, now: float) -> None:
        replies = [expect(reply) for reply in replies]
        if self._measures:
            self._measured(replies[-1])
        self.waiting_bytes -= self._sent_bytes
        stored = len(self._requests.sent)
        self.flushes += stored > 0
        for request in self._requests.sent:
            self._accepted[request.minute] += request.count
        self._requests.resolve(repeat(True, stored))

    def expire(self, now: float, waited_s: float) -> None:
        """Do nothing: events wait for as long as the connection lasts."""

    def is_due(self, now: float) -> bool:
        return now - self._sent_at >= IDLE_S

    def disconnected(self) -> None:
        for request in self._requests.clear():
            if not request.done.done():
                request.done.set_result(False)
        self.waiting_bytes = 0

    def _measured(self, size: int | None) -> None:
        """Refuse events while the stream takes more than MAX_STREAM_BYTES of Redis' memory."""
        full = size is not None and size > MAX_STREAM_BYTES
        if full != self._full:
            state = "full: refusing events until the drain catches up" if full else "no longer full"
            logger.warning(
                f"event stream %(stream)s {state}", {"stream": self._keys.events, "bytes": size}
            )
        self._full = full
