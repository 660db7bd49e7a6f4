"""The rate limit of a key: so many requests in any rolling minute, over all workers (contract 7).

Redis keeps the times of the counted requests and its clock decides. A request that is refused is
not counted; one in test mode, or with mistakes in it, is. Where Redis is away nothing is admitted:
no event could be accepted either.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

WINDOW_S: Final = 60
ANSWER_TIMEOUT_S: Final = 1.0

_SCRIPT: Final = Path(__file__).with_name("admit.lua").read_text(encoding="utf-8")
_MICROS: Final = 1_000_000


class LimitAway(Exception):
    """Redis does not answer."""


class RateLimit:
    """The limit on a Redis; `clock` (epoch µs) stands in for the clock of Redis."""

    def __init__(self, redis: Redis, clock: Callable[[], int] | None = None) -> None:
        self._admit = redis.register_script(_SCRIPT)
        self._clock = clock

    async def take(self, digest: bytes, rate: int) -> int:
        """Count a request of a key: 0, or the seconds until there is room for one.

        Raises LimitAway.
        """
        now = "" if self._clock is None else str(self._clock())
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                wait = await self._admit(
                    keys=[key_of(digest)], args=[rate, WINDOW_S * _MICROS, now]
                )
        except (RedisError, OSError) as error:
            raise LimitAway(type(error).__name__) from error
        return -(-int(wait) // _MICROS)


def key_of(digest: bytes) -> str:
    """The Redis key of an API key's count."""
    return f"events:rate:{digest[:16].hex()}"
