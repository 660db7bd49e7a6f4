"""Script calls that share round trips to Redis, at the low cost per call of a bid.

A command through redis-py takes a pooled connection, wakes several tasks and starts timers: some
100 µs of a worker, more than the rest of handling an event or a cached report.
"""

import asyncio
from collections.abc import Sequence
from math import inf
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError, RedisError, ResponseError

from snapbid.base import addresses
from snapbid.base.addresses import Arrangement
from snapbid.redisclient import connection
from snapbid.redisclient.calls import Call
from snapbid.redisclient.link import Link
from snapbid.redisclient.wire import Wire

ANSWER_S: Final = 1.0  # for a round trip; a slower connection is closed
TICK_S: Final = 0.02  # between checks of deadlines, while a call is under way
MOST: Final = 256  # calls in a round trip: bounds how long Redis is busy

_UNKNOWN_SCRIPT: Final = "NOSCRIPT"

Command = tuple[Any, ...]


def connect(url: str) -> Redis:
    """Return a client for use off the bid path; in a cluster, round trips are not shared."""
    if addresses.parse(url).arrangement is Arrangement.ONE:
        return PipelinedRedis(url)
    return connection.connect(url)


class PipelinedRedis(Redis):
    """A client whose script calls share round trips: those made during one share the next.

    All other commands, and script calls before the connection is up, go through redis-py. A call
    whose reply was lost is not repeated: it raises ConnectionError.
    """

    def __init__(self, url: str) -> None:
        super().__init__(connection_pool=connection.connect(url).connection_pool)
        self.auto_close_connection_pool = True
        self._loop = asyncio.get_running_loop()
        self._wire: Wire | None = None
        self._waiting: list[tuple[Command, float, asyncio.Future[Any]]] = []  # with deadlines
        self._sent: list[tuple[float, asyncio.Future[Any]]] = []
        self._sent_at = 0.0
        self._ticking = False
        connector = connection.connector(url)
        self._link = Link(connector, self, "Redis unavailable for script calls", ANSWER_S)
        self._link.open()

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await self._link.close()
        await super().aclose(close_connection_pool)

    def bounded_script(self, text: str, within_s: float) -> Call:
        """Return a function that calls a script; see `calls.script`."""
        registered = self.register_script(text)

        async def call(keys: Sequence[str], args: Sequence[Any]) -> Any:
            if self._wire is not None:
                command = ("EVALSHA", registered.sha, len(keys), *keys, *args)
                reply = await self._ask(command, self._loop.time() + within_s)
                if not isinstance(reply, ResponseError):
                    return reply
                if not str(reply).startswith(_UNKNOWN_SCRIPT):
                    raise reply
            async with asyncio.timeout(within_s):
                return await registered(keys=list(keys), args=list(args))

        return call

    async def evalsha(self, sha: str, numkeys: int, *keys_and_args: Any) -> Any:
        """Call a script. Raises RedisError."""
        if self._wire is not None:
            reply = await self._ask(("EVALSHA", sha, numkeys, *keys_and_args), inf)
            if not isinstance(reply, ResponseError):
                return reply
            if not str(reply).startswith(_UNKNOWN_SCRIPT):
                raise reply
        return await super().evalsha(sha, numkeys, *keys_and_args)

    def _ask(self, command: Command, deadline: float) -> "asyncio.Future[Any]":
        """Queue a command for the next round trip; return the future of its reply."""
        done: asyncio.Future[Any] = self._loop.create_future()
        if not self._waiting and not self._sent:
            self._loop.call_soon(self._send)
        self._waiting.append((command, deadline, done))
        if not self._ticking:
            self._ticking = True
            self._loop.call_later(TICK_S, self._tick)
        return done

    def _tick(self) -> None:
        """Time out calls past their deadline, and end a stalled connection."""
        now = self._loop.time()
        for deadline, done in (
            *self._sent,
            *((deadline, done) for _, deadline, done in self._waiting),
        ):
            if deadline <= now and not done.done():
                done.set_exception(TimeoutError("no answer in time"))
        self._ticking = bool(self._sent or self._waiting)
        if self._ticking:
            self._loop.call_later(TICK_S, self._tick)
        if self._sent and self._wire is not None and now - self._sent_at > ANSWER_S:
            self._wire.end(RedisError(f"no reply for {ANSWER_S:g} s"))

    # -- the connection (see LinkUser) ------------------------------------------------------------

    async def prepare(self, connection: AbstractConnection) -> None:
        """Do nothing: an unknown script is loaded when it is called."""

    async def use(self, connection: AbstractConnection) -> None:
        self._wire = Wire(connection, self._answered)
        await self._wire.ended

    def disconnected(self) -> None:
        self._wire = None
        lost = ConnectionError("the connection to Redis was lost")
        for done in (*(done for _, done in self._sent), *(done for *_, done in self._waiting)):
            if not done.done():
                done.set_exception(lost)
        self._sent, self._waiting = [], []

    def _send(self) -> None:
        """Begin a round trip with the waiting calls that have not timed out."""
        called = [call for call in self._waiting if not call[2].done()]
        self._waiting = called[MOST:]
        del called[MOST:]
        self._sent = [(deadline, done) for _, deadline, done in called]
        if called and self._wire is not None:
            self._sent_at = self._loop.time()
            self._wire.send(*[command for command, _, _ in called])

    def _answered(self, replies: list[Any]) -> None:
        sent, self._sent = self._sent, []
        for (_, done), reply in zip(sent, replies, strict=True):
            if not done.done():
                done.set_result(reply)
        if self._waiting:
            self._loop.call_soon(self._send)
