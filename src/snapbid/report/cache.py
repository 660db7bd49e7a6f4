"""The cache of reports: 5 minutes per SSP and window, shared by all workers in Redis (contract 6).

Redis lets an entry expire by itself, and its age is what is gone of its time to live, so that no
two clocks are compared. A cache that cannot be reached is an empty one.
"""

import asyncio
import logging
from typing import Final, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.ledger.keys import REPORT_CACHE
from snapbid.report.window import Window

TTL_S: Final = 300
ANSWER_TIMEOUT_S: Final = 0.5

logger = logging.getLogger("snapbid")


class Cached(NamedTuple):
    """A report's body as it was stored, and how many whole seconds ago."""

    body: bytes
    age_s: int


class Cache:
    """Reports by canonical SSP id and window."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def get(self, ssp: str, window: Window) -> Cached | None:
        """The report, or None where there is none (any more)."""
        key = key_of(ssp, window)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                async with self._redis.pipeline(transaction=True) as pipe:
                    pipe.get(key)
                    pipe.pttl(key)
                    body, left_ms = await pipe.execute()
        except (RedisError, OSError) as error:
            logger.warning("a report is not looked up in Redis: %s", error or "no answer")
            return None
        if body is None:
            return None
        return Cached(body, min(max(0, TTL_S * 1000 - left_ms) // 1000, TTL_S))

    async def put(self, ssp: str, window: Window, body: bytes) -> None:
        """Keep a report."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await self._redis.set(key_of(ssp, window), body, ex=TTL_S)
        except (RedisError, OSError) as error:
            logger.warning("a report is not kept in Redis: %s", error or "no answer")


def key_of(ssp: str, window: Window) -> str:
    """The Redis key of a report; an SSP id has no colon (contract 2)."""
    return f"{REPORT_CACHE}{ssp}:{window.first}:{window.last}"
