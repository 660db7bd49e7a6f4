"""The report cache in Redis, shared by all workers: it keeps a report for 5 minutes (contract 6).

Redis expires the entries. An entry's age is derived from its remaining time to live, so no two
clocks are compared. While Redis is down, nothing is cached.
"""

import asyncio
import logging
from typing import Final, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.base.reasons import text_of
from snapbid.base.redis_keys import REPORT_CACHE
from snapbid.base.repeats import RepeatedLog
from snapbid.redisclient.pipelined import script
from snapbid.redisclient.scripts import load
from snapbid.report.window import ReportWindow

TTL_S: Final = 300
ANSWER_TIMEOUT_S: Final = 0.5

repeated = RepeatedLog(logging.getLogger(__name__))


class FetchedReport(NamedTuple):
    """A report's body, and its age in whole seconds if it came from the cache."""

    body: bytes
    age_s: int | None = None

    def age(self) -> tuple[tuple[bytes, bytes], ...]:
        """Return the `Age` header in a tuple, which is empty for a fresh report."""
        return () if self.age_s is None else ((b"age", b"%d" % self.age_s),)


class ReportCache:
    """A cache of reports by key, each kept for its `ttl_s`."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._get = script(redis, load(__package__, "cached"), ANSWER_TIMEOUT_S)

    async def get(self, key: str, ttl_s: int = TTL_S) -> FetchedReport | None:
        """Fetch a report; None if it is not stored, or if Redis is unavailable."""
        try:
            body, left_ms = await self._get((key,), ())
        except (RedisError, OSError) as error:
            repeated.warning(
                "failed to read the report cache: %(reason)s; querying the warehouse",
                {"reason": text_of(error)},
            )
            return None
        if body is None:
            return None
        return FetchedReport(body, min(max(0, ttl_s * 1000 - left_ms) // 1000, ttl_s))

    async def put(self, key: str, body: bytes, ttl_s: int = TTL_S) -> None:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await self._redis.set(key, body, ex=ttl_s)
        except (RedisError, OSError) as error:
            repeated.warning(
                "failed to write the report cache: %(reason)s; the next request will query"
                " the warehouse",
                {"reason": text_of(error)},
            )


def redis_key(ssp: str, window: ReportWindow) -> str:
    """Return the Redis key of a report.

    Keys are unique, since an SSP id contains no colon (contract 2).
    """
    return f"{REPORT_CACHE}{ssp}:{window.first}:{window.last}"
