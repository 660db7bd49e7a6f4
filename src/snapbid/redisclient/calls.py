"""Script calls with a time limit, in shared round trips if the client supports them.

With a plain client of redis-py, each call takes a timer and a task, some 20 µs of a worker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from redis.asyncio import Redis

Call: TypeAlias = Callable[[Sequence[str], Sequence[Any]], Awaitable[Any]]
"""A call with keys and arguments. Raises RedisError, or OSError if it times out."""


def script(redis: Redis, text: str, within_s: float) -> Call:
    """Return a function that calls a script, and times out after `within_s`."""
    shared: Callable[[str, float], Call] | None = getattr(redis, "bounded_script", None)
    if shared is not None:
        return shared(text, within_s)
    registered = redis.register_script(text)

    async def call(keys: Sequence[str], args: Sequence[Any]) -> Any:
        async with asyncio.timeout(within_s):
            return await registered(keys=list(keys), args=list(args))

    return call
