"""Script calls that share round trips to Redis, and so cost a worker little time.

A separate command through redis-py takes a pooled connection, wakes several tasks and starts
timers. This costs a worker some 100 µs, more than all other work on an event or a cached report.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError, ResponseError

from snapbid.base import addresses
from snapbid.base.addresses import Arrangement
from snapbid.base.beat import BEAT_S
from snapbid.base.redis_keys import ShardKeys
from snapbid.redisclient import connection
from snapbid.redisclient.nodes import is_elsewhere
from snapbid.redisclient.replicas import Command
from snapbid.redisclient.trips import Reply, Requests, RoundTrips

STALL_S: Final = 1.0  # without a reply, the connection is closed
TICK_S: Final = BEAT_S / 13  # between checks of deadlines, while a call is under way: 20 ms
MOST: Final = 256  # calls in a round trip, so as not to block Redis for long

_UNKNOWN_SCRIPT: Final = "NOSCRIPT"

Call: TypeAlias = Callable[[Sequence[str], Sequence[Any]], Awaitable[Any]]
"""Calls a script with keys and arguments. Raises RedisError, or OSError if it times out."""


def connect(url: str) -> Redis:
    """Return a client for use off the bid path: a PipelinedRedis if `url` is a single Redis."""
    if addresses.parse(url).arrangement is Arrangement.ONE:
        return PipelinedRedis(url)
    return connection.connect(url)


def script(redis: Redis, text: str, within_s: float) -> Call:
    """Return a function that calls a script and times out after `within_s`.

    With a client other than PipelinedRedis, each call costs a timer and a task, some 20 µs.
    """
    registered = redis.register_script(text)
    calls = redis.calls if isinstance(redis, PipelinedRedis) else None

    async def call(keys: Sequence[str], args: Sequence[Any]) -> Any:
        if calls is not None and calls.connected:
            command = ("EVALSHA", registered.sha, len(keys), *keys, *args)
            reply = await calls.ask(command, within_s)
            if not isinstance(reply, ResponseError):
                return reply
            if not str(reply).startswith(_UNKNOWN_SCRIPT):
                raise reply
        async with asyncio.timeout(within_s):
            return await registered(keys=list(keys), args=list(args))

    return call


class PipelinedRedis(Redis):
    """A client whose script calls share round trips.

    Calls made during a round trip are sent together in the next. Other commands, and script calls
    before the connection is up, go through redis-py. A call whose reply was lost is not repeated:
    it raises ConnectionError.
    """

    def __init__(self, url: str) -> None:
        super().__init__(connection_pool=connection.connect(url).connection_pool)
        self.auto_close_connection_pool = True
        self.calls = _ScriptCalls(url)

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await self.calls.close()
        await super().aclose(close_connection_pool)


class _ScriptCall(msgspec.Struct, frozen=True):
    command: Command
    deadline: float
    done: "Reply[Any]"


class _ScriptCalls:
    """Runs Lua scripts over a separate connection, several calls per round trip."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.get_running_loop()
        connect = connection.connector(url)
        self._trips = RoundTrips(connect, self, "script calls", STALL_S, TICK_S, MOST)
        self._requests = Requests[_ScriptCall]()
        self._trips.open()

    async def close(self) -> None:
        """Disconnect. Calls under way raise ConnectionError."""
        await self._trips.close()

    @property
    def connected(self) -> bool:
        """Whether the connection accepts calls."""
        return self._trips.connected

    def ask(self, command: Command, within_s: float) -> "Reply[Any]":
        """Queue a command for the next round trip; return its reply."""
        waiting = self._requests.waiting
        done: Reply[Any] = self._trips.reply()
        waiting.append(_ScriptCall(command, self._loop.time() + within_s, done))
        self._trips.schedule(len(waiting))
        return done

    # -- round trips (see TripUser) ---------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return len(self._requests.waiting)

    async def prepare(self, connection: AbstractConnection) -> None:
        """Refuse a server that takes no writes, such as a demoted primary.

        Scripts are loaded when they are called.
        """
        await connection.send_command("DEL", ShardKeys(0).script_keys[1])
        await connection.read_response()

    def next_batch(self, now: float) -> list[Command]:
        return [call.command for call in self._requests.take(MOST)]

    def receive(self, replies: list[Any], asked_at: float, now: float) -> None:
        self._requests.resolve(replies)
        for reply in replies:
            if isinstance(reply, ResponseError) and is_elsewhere(reply):
                raise reply

    def expire(self, now: float, waited_s: float) -> None:
        for call in self._requests:
            if call.deadline <= now and not call.done.done():
                call.done.set_exception(TimeoutError("no answer in time"))

    def is_due(self, now: float) -> bool:
        return False

    def disconnected(self) -> None:
        lost = ConnectionError("the connection to Redis was lost")
        for call in self._requests.clear():
            if not call.done.done():
                call.done.set_exception(lost)
