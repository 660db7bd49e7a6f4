"""Accepted server events on their way to the warehouse: group commit to a stream (contract 7).

Each request is one field of a stream entry; what comes while a round trip is under way travels
together in the next. There is no timer that a request waits for. The connection is the queue's own,
so that no bid waits behind a batch.

`put` answers True only after Redis has acknowledged. Where it has not, the events may be in the
stream nevertheless; the client sends them again and the warehouse keeps one of each event id, so
nothing needs to be taken back.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from snapbid.ledger.connection import connector
from snapbid.tasks import end

STREAM: Final = "{sb0}:e"
ANSWER_S: Final = 2.0  # for a round trip; then the connection is given up
IDLE_S: Final = 0.5  # then Redis is asked whether it is still there
RETRY_S: Final = (0.05, 0.1, 0.2, 0.4)
MAX_ENTRY_BYTES: Final = 1 << 20  # of a stream entry, unless a single request is larger
MAX_WAITING_BYTES: Final = 64 << 20  # in this process; more is refused
MAX_STREAM_BYTES: Final = 1 << 30  # in Redis, about; more is refused until the drain has caught up

logger = logging.getLogger("snapbid")


class Events(msgspec.Struct, frozen=True, array_like=True):
    """One request's events as they are queued: (event id, canonical envelope) each."""

    received_at_ms: int
    product: str
    events: list[tuple[str, bytes]]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Events).decode


def decode(packed: bytes) -> Events:
    """What `Queue.put` wrote. Raises msgspec.DecodeError."""
    return _decode(packed)


def encode(received_at_ms: int, product: str, events: Iterable[tuple[str, bytes]]) -> bytes:
    """A request as it stands in the stream."""
    return _encode(Events(received_at_ms, product, list(events)))


def add(requests: Iterable[bytes]) -> tuple[str | bytes, ...]:
    """The command that puts requests, as `encode` gives them, into one entry of the stream."""
    fields = [part for place, one in enumerate(requests) for part in (b"%d" % place, one)]
    return ("XADD", STREAM, "*", *fields)


class _Waiting(NamedTuple):
    packed: bytes
    done: "asyncio.Future[bool]"


class Queue:
    """One worker's way into the stream."""

    def __init__(self, url: str) -> None:
        self._connect: Callable[[], AbstractConnection] = connector(url)
        self._waiting: list[_Waiting] = []
        self._sent: list[_Waiting] = []
        self._bytes = 0
        self._wake: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._full = False
        self.connected = False
        self.flushes = 0

    async def open(self) -> None:
        """Starts to connect; does not wait for it."""
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())

    async def close(self) -> None:
        """Sends what waits, if Redis is there, and closes."""
        if self._task is None:
            return
        while self.connected and (self._waiting or self._sent):
            await asyncio.sleep(0.001)
        await end(self._task)

    async def put(
        self, received_at_ms: int, product: str, events: Iterable[tuple[str, bytes]]
    ) -> bool:
        """Whether Redis has the events, (event id, canonical envelope) each."""
        packed = encode(received_at_ms, product, events)
        if not self.connected or self._full or self._bytes + len(packed) > MAX_WAITING_BYTES:
            return False
        done: asyncio.Future[bool] = self._loop.create_future()
        self._bytes += len(packed)
        self._waiting.append(_Waiting(packed, done))
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
        return await done

    # -- the connection ----------------------------------------------------------------------

    async def _run(self) -> None:
        attempt = 0
        while True:
            connection = self._connect()
            try:
                async with asyncio.timeout(ANSWER_S):
                    await connection.connect()  # type: ignore[no-untyped-call]
                    await self._measure(connection)
                self.connected, attempt = True, 0
                while True:
                    await self._commit(connection)
            except (RedisError, OSError, EOFError) as error:  # TimeoutError is an OSError
                if attempt == 0:
                    logger.warning("events wait for Redis: %s", error or type(error).__name__)
                attempt += 1
            except Exception:
                logger.exception("the events' connection failed")
                attempt += 1
            finally:
                self._lose()
                await connection.disconnect(nowait=True)
            await asyncio.sleep(RETRY_S[min(attempt, len(RETRY_S) - 1)])

    def _lose(self) -> None:
        """The connection is gone: nobody waits any longer."""
        self.connected = False
        for one in (*self._sent, *self._waiting):
            _answer(one, False)
        self._sent, self._waiting, self._bytes = [], [], 0

    async def _commit(self, connection: AbstractConnection) -> None:
        """One round trip with what waits, or a look at Redis where nothing does."""
        if not self._waiting:
            self._wake = self._loop.create_future()
            try:
                async with asyncio.timeout(IDLE_S):
                    await self._wake
            except TimeoutError:
                async with asyncio.timeout(ANSWER_S):
                    await self._measure(connection)
                return
        self._sent = self._take()
        command = add([one.packed for one in self._sent])
        async with asyncio.timeout(ANSWER_S):
            await connection.send_command(*command, check_health=False)
            await connection.read_response()
        self.flushes += 1
        for one in self._sent:
            self._bytes -= len(one.packed)
            _answer(one, True)
        self._sent = []
        if self.flushes % 64 == 0:
            async with asyncio.timeout(ANSWER_S):
                await self._measure(connection)

    def _take(self) -> list[_Waiting]:
        """Requests for one entry of the stream."""
        size = count = 0
        for one in self._waiting:
            if count and size + len(one.packed) > MAX_ENTRY_BYTES:
                break
            size += len(one.packed)
            count += 1
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    async def _measure(self, connection: AbstractConnection) -> None:
        """Looks how large the stream is: it must not take the memory that bids need."""
        await connection.send_command("MEMORY", "USAGE", STREAM, check_health=False)
        size = await connection.read_response()
        full = size is not None and int(size) > MAX_STREAM_BYTES
        if full != self._full:
            logger.warning("the events' stream is %s", "full" if full else "taking events again")
        self._full = full


def _answer(one: _Waiting, kept: bool) -> None:
    if not one.done.done():
        one.done.set_result(kept)
