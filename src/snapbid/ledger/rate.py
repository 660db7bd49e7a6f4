"""Rate limits: so many requests in any rolling minute, counted over all workers and machines.

Redis keeps the times of the admitted requests, and its clock decides. A refused request is not
counted.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct
from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.ledger.calls import script

WINDOW_S: Final = 60

_SCRIPT: Final = Path(__file__).with_name("rate.lua").read_text(encoding="utf-8")
_MICROS: Final = 1_000_000
_WINDOW_MICROS: Final = WINDOW_S * _MICROS


class RateLimiterUnavailable(Exception):
    """Redis did not answer in time."""


class RateDecision(Struct, frozen=True, gc=False):
    """Whether a request is admitted, and what is left of its limit.

    `remaining` more would be admitted now. `wait_s` is the time until one more than these would
    be: until the oldest counted request leaves the window.
    """

    admitted: bool
    remaining: int
    wait_s: int


class RateLimiter:
    """Limits on one Redis, each under a key; `clock` (epoch µs) stands in for the Redis clock."""

    def __init__(
        self, redis: Redis, *, timeout_s: float = 1.0, clock: Callable[[], int] | None = None
    ) -> None:
        self._admit = script(redis, _SCRIPT, timeout_s)
        self._clock = clock

    async def admit(self, key: str, limit: int) -> RateDecision:
        """Count a request under a Redis key unless `limit` were counted within the window.

        Raises RateLimiterUnavailable.
        """
        now = "" if self._clock is None else self._clock()
        try:
            admitted, remaining, wait = await self._admit((key,), (limit, _WINDOW_MICROS, now))
        except (RedisError, OSError) as error:
            raise RateLimiterUnavailable(str(error) or type(error).__name__) from error
        return RateDecision(bool(admitted), remaining, -(-wait // _MICROS))
