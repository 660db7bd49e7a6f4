"""Group commit of accepted server events to a stream, from which the drain reads (contract 7).

Each shard of the ledger has a stream (chosen by `queues.py`), and each worker a queue for each.

Each request becomes one field of a stream entry. Requests that arrive during a round trip share the
next entry; none waits for a timer. The queue has its own connection, so that no bid waits behind a
batch of events.

`put` returns True only once Redis has acknowledged the events. If it returns False, they may still
be in the stream: the client sends them again, and since the warehouse keeps one event per id,
nothing needs to be rolled back.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError

from snapbid.base.beat import BEAT_S, left
from snapbid.base.redis_keys import ShardKeys
from snapbid.redisclient.connection import Connections
from snapbid.redisclient.link import Link
from snapbid.redisclient.replicas import Command, confirmed, waiting
from snapbid.redisclient.wire import Wire

ANSWER_S: Final = 2.0  # for a round trip; a slower connection is closed
IDLE_S: Final = 2 * BEAT_S  # without events, between checks that Redis still answers
MAX_ENTRY_BYTES: Final = 1 << 20  # per stream entry, unless a single request is larger
MAX_WAITING_BYTES: Final = 64 << 20  # in this process; beyond that, events are refused
MAX_STREAM_BYTES: Final = 1 << 30  # in Redis, roughly; beyond that, events are refused as well

logger = logging.getLogger("snapbid")


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
    """Read the product ("" if unreadable) and the number of events of a stream field."""
    try:
        request = _decode_outline(packed)
    except msgspec.DecodeError:
        return "", 1
    return request.product, len(request.events)


def encode(received_at_ms: int, product: str, events: Sequence[tuple[str, bytes]]) -> bytes:
    """Encode a request as a field of the stream: the members of QueuedEvents."""
    return _encode((received_at_ms, product, events))


def add(requests: Iterable[bytes], stream: str) -> tuple[str | bytes, ...]:
    """Return the command that adds encoded requests to a stream as one entry."""
    fields = [part for number, packed in enumerate(requests) for part in (b"%d" % number, packed)]
    return ("XADD", stream, "*", *fields)


class _Pending(NamedTuple):
    packed: bytes
    done: "asyncio.Future[bool]"

    def resolve(self, stored: bool) -> None:
        if not self.done.done():
            self.done.set_result(stored)


class EventQueue:
    """One worker's queue of events for the stream of a shard."""

    def __init__(self, connections: Connections, shard: int = 0, shards: int = 1) -> None:
        self._keys = keys = ShardKeys(shard)
        self._measure = ("MEMORY", "USAGE", keys.events)
        self._connect = connections.connector(keys.events)
        whose = "events" if shards == 1 else f"events of shard {shard}"
        self._link = Link(self._connect, self, f"Redis unavailable for {whose}", ANSWER_S)
        self._wire: Wire | None = None
        self._replicas = 0
        self._pending: list[_Pending] = []
        self._sent: list[_Pending] = []
        self._answered: Callable[[list[Any]], None] | None = None  # while a round trip is under way
        self._stalled: asyncio.TimerHandle | None = None  # time limit of that round trip
        self._trips = 0
        self._full = False
        self.connected = False
        self.waiting_bytes = 0
        self.flushes = 0

    async def open(self) -> None:
        """Start connecting, without waiting for the connection."""
        self._loop = asyncio.get_running_loop()
        self._link.open()

    async def close(self) -> None:
        """Send what is pending if Redis is reachable, then disconnect."""
        while self.connected and (self._pending or self._sent):
            await asyncio.sleep(0.001)
        await self._link.close()

    async def put(
        self, received_at_ms: int, product: str, events: Sequence[tuple[str, bytes]]
    ) -> bool:
        """Store (event id, canonical envelope) pairs; return whether Redis acknowledged them."""
        packed = encode(received_at_ms, product, events)
        if not self.connected or self._full or self.waiting_bytes + len(packed) > MAX_WAITING_BYTES:
            return False
        done: asyncio.Future[bool] = self._loop.create_future()
        if not self._pending and self._answered is None:
            self._loop.call_soon(self._send)  # with others from the same iteration of the loop
        self.waiting_bytes += len(packed)
        self._pending.append(_Pending(packed, done))
        return await done

    # -- the connection (see LinkUser) ------------------------------------------------------------

    async def prepare(self, connection: AbstractConnection) -> None:
        await connection.send_command(*self._measure, check_health=False)
        self._measured([await connection.read_response()])

    async def use(self, connection: AbstractConnection) -> None:
        self._wire = wire = Wire(connection, self._receive)
        self.connected = True
        try:
            trips = self._trips
            while not (await asyncio.wait((wire.ended,), timeout=left(IDLE_S)))[0]:
                if trips == self._trips and self._answered is None:
                    self._begin(self._measured, self._measure)
                trips = self._trips
        finally:
            wire.ended.cancel()  # unless it has ended
        await wire.ended

    def disconnected(self) -> None:
        self.connected = False
        self._wire = self._answered = None
        self._settle()
        for request in (*self._sent, *self._pending):
            request.resolve(False)
        self._sent, self._pending, self.waiting_bytes = [], [], 0

    def _send(self) -> None:
        """Begin a round trip with pending requests, unless one is under way."""
        if self._wire is not None and self._answered is None and self._pending:
            self._sent = self._take()
            self._replicas = self._connect.replicas
            added = add([request.packed for request in self._sent], self._keys.events)
            self._begin(self._stored, added, *waiting(self._keys.mark, self._replicas))

    def _begin(self, answered: Callable[[list[Any]], None], *commands: Command) -> None:
        assert self._wire is not None
        self._answered = answered
        self._stalled = self._loop.call_later(ANSWER_S, self._stall, self._wire)
        self._trips += 1
        self._wire.send(*commands)

    def _receive(self, replies: list[Any]) -> None:
        """Handle the replies to a round trip. Any exception ends the connection."""
        for reply in replies:
            if isinstance(reply, ResponseError):
                raise reply
        answered, self._answered = self._answered, None
        self._settle()
        assert answered is not None
        answered(replies)
        if self._answered is None and self._pending:
            self._loop.call_soon(self._send)

    def _stored(self, replies: list[Any]) -> None:
        confirmed(replies, self._replicas)
        self.flushes += 1
        for request in self._sent:
            self.waiting_bytes -= len(request.packed)
            request.resolve(True)
        self._sent = []
        if self.flushes % 64 == 0:
            self._begin(self._measured, self._measure)

    def _measured(self, replies: list[Any]) -> None:
        """Refuse events while the stream is too large: bids need the memory."""
        full = replies[0] is not None and int(replies[0]) > MAX_STREAM_BYTES
        if full != self._full:
            state = "full: refusing events until the drain catches up" if full else "no longer full"
            logger.warning("event stream %s %s", self._keys.events, state)
        self._full = full

    def _stall(self, wire: Wire) -> None:
        wire.end(RedisError(f"no reply for {ANSWER_S:g} s"))

    def _settle(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _take(self) -> list[_Pending]:
        """Remove and return the requests for the next entry of the stream."""
        size = count = 0
        for request in self._pending:
            size += len(request.packed)
            if count and size > MAX_ENTRY_BYTES:
                break
            count += 1
        taken, self._pending = self._pending[:count], self._pending[count:]
        return taken
