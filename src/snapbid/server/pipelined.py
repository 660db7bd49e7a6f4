"""Scripts that share round trips to Redis, so that one costs a request as little as a bid does.

A command by redis-py takes a connection from a pool, wakes several tasks and starts timers: some
100 µs of a worker, more than everything else that an event or a cached report takes.
"""

import asyncio
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError, RedisError, ResponseError

from snapbid import addresses
from snapbid.addresses import Arrangement
from snapbid.ledger import connection
from snapbid.ledger.link import Link
from snapbid.ledger.wire import Wire

ANSWER_S: Final = 1.0  # for a round trip; a slower connection is given up
MOST: Final = 256  # calls in a round trip, so that Redis is not held long

_UNKNOWN_SCRIPT: Final = "NOSCRIPT"

Command = tuple[Any, ...]


def connect(url: str) -> Redis:
    """A client for what is not on the way of a bid; in a cluster no round trips are shared."""
    if addresses.parse(url).arrangement is Arrangement.ONE:
        return PipelinedRedis(url)
    return connection.connect(url)


class PipelinedRedis(Redis):
    """A client whose script calls wait for one round trip at a time, and share the next one.

    Everything else, and calls while that connection is being made, take redis-py's way. A call
    whose answer was lost is not repeated: it raises ConnectionError.
    """

    def __init__(self, url: str) -> None:
        super().__init__(connection_pool=connection.connect(url).connection_pool)
        self.auto_close_connection_pool = True
        self._loop = asyncio.get_running_loop()
        self._wire: Wire | None = None
        self._waiting: list[tuple[Command, asyncio.Future[Any]]] = []
        self._sent: list[asyncio.Future[Any]] = []
        self._stalled: asyncio.TimerHandle | None = None  # of the round trip under way
        self._link = Link(connection.connector(url), self, "scripts wait for Redis", ANSWER_S)
        self._link.open()

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await self._link.close()
        await super().aclose(close_connection_pool)

    async def evalsha(self, sha: str, numkeys: int, *keys_and_args: Any) -> Any:
        """Call a script. Raises RedisError."""
        if self._wire is not None:
            done: asyncio.Future[Any] = self._loop.create_future()
            if not self._waiting and not self._sent:
                self._loop.call_soon(self._send)
            self._waiting.append((("EVALSHA", sha, numkeys, *keys_and_args), done))
            reply = await done
            if not isinstance(reply, ResponseError):
                return reply
            if not str(reply).startswith(_UNKNOWN_SCRIPT):
                raise reply
        return await super().evalsha(sha, numkeys, *keys_and_args)

    # -- the connection (see LinkUser) ------------------------------------------------------------

    async def prepare(self, connection: AbstractConnection) -> None:
        """Nothing: a script that Redis does not know is loaded where it is called."""

    async def use(self, connection: AbstractConnection) -> None:
        self._wire = Wire(connection, self._answered)
        await self._wire.ended

    def disconnected(self) -> None:
        self._wire = None
        self._settle()
        lost = ConnectionError("the connection to Redis was lost")
        for done in (*self._sent, *(done for _, done in self._waiting)):
            if not done.done():
                done.set_exception(lost)
        self._sent, self._waiting = [], []

    def _send(self) -> None:
        """Begin a round trip with what waits, but for the calls that were given up."""
        called = [(command, done) for command, done in self._waiting if not done.done()]
        self._waiting = called[MOST:]
        self._sent = [done for _, done in called[:MOST]]
        if self._sent and self._wire is not None:
            self._stalled = self._loop.call_later(ANSWER_S, self._stall, self._wire)
            self._wire.send(*(command for command, _ in called[:MOST]))

    def _answered(self, replies: list[Any]) -> None:
        self._settle()
        sent, self._sent = self._sent, []
        for done, reply in zip(sent, replies, strict=True):
            if not done.done():
                done.set_result(reply)
        if self._waiting:
            self._loop.call_soon(self._send)

    def _stall(self, wire: Wire) -> None:
        wire.end(RedisError("it has stalled"))

    def _settle(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
