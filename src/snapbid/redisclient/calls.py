"""Calls of scripts that are answered within a time, in shared round trips where a client has them.

A client of redis-py gets a timer and a task for each call, some 20 µs of a worker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from redis.asyncio import Redis

Call: TypeAlias = Callable[[Sequence[str], Sequence[Any]], Awaitable[Any]]
"""Takes keys and arguments. Raises RedisError, or OSError where the time is up."""


def script(redis: Redis, text: str, within_s: float) -> Call:
    """How a client calls a script, each time with an answer within so many seconds."""
    shared: Callable[[str, float], Call] | None = getattr(redis, "bounded_script", None)
    if shared is not None:
        return shared(text, within_s)
    registered = redis.register_script(text)

    async def call(keys: Sequence[str], args: Sequence[Any]) -> Any:
        async with asyncio.timeout(within_s):
            return await registered(keys=list(keys), args=list(args))

    return call
