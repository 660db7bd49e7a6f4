"""The ledger's number of shards, and queries to all shards, even if some are unavailable."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

from redis.asyncio import Redis
from redis.exceptions import ConnectionError, RedisError

from snapbid.base.redis_keys import ShardKeys

AT_ONCE: Final = 16  # shards queried at once

T = TypeVar("T")


async def of_each(shards: int, ask: Callable[[int], Awaitable[T]]) -> list[T | None]:
    """Query all shards; return their answers in order, None for an unavailable shard.

    Raises RedisError or OSError if all are unavailable.
    """
    answers: list[T | BaseException] = []
    for start in range(0, shards, AT_ONCE):
        asked = map(ask, range(start, min(start + AT_ONCE, shards)))
        answers += await asyncio.gather(*asked, return_exceptions=True)
    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    for error in errors:
        if not isinstance(error, RedisError | OSError) or len(errors) == shards:
            raise error
    return [None if isinstance(answer, BaseException) else answer for answer in answers]


def all_of(answers: Iterable[T | None]) -> list[T]:
    """Return the answers of all shards. Raises ConnectionError if a shard is unavailable."""
    complete = []
    for number, answer in enumerate(answers):
        if answer is None:
            raise ConnectionError(f"{name(number)} of the ledger is unavailable")
        complete.append(answer)
    return complete


def unavailable(answers: Iterable[object | None]) -> list[int]:
    """List the shards that did not answer."""
    return [number for number, answer in enumerate(answers) if answer is None]


async def fetch_count(redis: Redis) -> int:
    """Fetch the ledger's number of shards; 0 if there is no ledger. Raises RedisError."""
    count: Any = await redis.hget(ShardKeys(0).state, "shards")
    return int(count or 0)


async def record_count(redis: Redis, shards: int) -> int:
    """Record a new ledger's number of shards, unless one is recorded; return the recorded number.

    Raises RedisError.
    """
    await redis.hsetnx(ShardKeys(0).state, "shards", str(shards))
    return await fetch_count(redis)


def name(shard: int) -> str:
    """Name a shard for operators, as in `shard 1`."""
    return f"shard {shard}"


def names(shards: Iterable[int]) -> str:
    """Name several shards for operators, as in `shard 1, shard 3`."""
    return ", ".join(map(name, shards))


async def fetch_unavailable(redis: Redis, shards: int) -> list[int]:
    """List the shards that do not answer. Raises RedisError or OSError if none answers."""
    return unavailable(await of_each(shards, lambda shard: redis.exists(ShardKeys(shard).epoch)))
