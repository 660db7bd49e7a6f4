"""Rate limits on requests in any rolling minute, across all workers and machines.

Redis stores the times of admitted requests, by its own clock. Refused requests do not count.
`EventLimiter` also limits the number of server events.
"""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from msgspec import Struct
from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.redisclient.pipelined import script
from snapbid.redisclient.scripts import load

WINDOW_S: Final = 60

_MICROS: Final = 1_000_000
_WINDOW_MICROS: Final = WINDOW_S * _MICROS


class RateLimiterUnavailable(Exception):
    """Redis did not answer in time, or answered with an error."""


class RateDecision(Struct, frozen=True, gc=False):
    """The decision on a request, and the state of its limit.

    `remaining`: further requests that would be admitted now. `wait_s`: time until the oldest
    counted request leaves the window and makes room for one more.
    """

    admitted: bool
    remaining: int
    wait_s: int


class RateLimiter:
    """Rate limits, each under its own Redis key; `clock` (epoch µs) replaces the Redis clock."""

    def __init__(
        self, redis: Redis, *, timeout_s: float = 1.0, clock: Callable[[], int] | None = None
    ) -> None:
        self._admit = script(redis, load(__package__, "rate"), timeout_s)
        self._clock = clock

    async def admit(self, key: str, limit: int) -> RateDecision:
        """Count a request under a Redis key, unless the window already has `limit` requests.

        Raises RateLimiterUnavailable.
        """
        now = "" if self._clock is None else self._clock()
        try:
            admitted, remaining, wait = await self._admit((key,), (limit, _WINDOW_MICROS, now))
        except (RedisError, OSError) as error:
            raise RateLimiterUnavailable(str(error) or type(error).__name__) from error
        return RateDecision(bool(admitted), remaining, -(-wait // _MICROS))


class Refusal(NamedTuple):
    """A refusal: the limit on `what` ("requests" or "events") is reached. Retry after `wait_s`."""

    what: str
    limit: int
    wait_s: int


class EventLimiter:
    """Rate limits on requests and their events; see `RateLimiter` for the arguments.

    A request counts as one event at first; the other events of a batch are admitted once their
    number is known.
    """

    def __init__(
        self, redis: Redis, *, timeout_s: float = 1.0, clock: Callable[[], int] | None = None
    ) -> None:
        self._admit = script(redis, load(__package__, "event_rate"), timeout_s)
        self._clock = clock

    def admit(self, key: str, requests: int, events: int) -> Awaitable[Refusal | None]:
        """Count a request under a Redis key, or refuse it. Raises RateLimiterUnavailable."""
        return self._ask(key, requests, events, 0)

    def admit_more(self, key: str, events: int, count: int) -> Awaitable[Refusal | None]:
        """Count further events of an admitted request, or refuse them.

        Raises RateLimiterUnavailable.
        """
        return self._ask(key, None, events, count)

    async def _ask(self, key: str, requests: int | None, events: int, more: int) -> Refusal | None:
        now = "" if self._clock is None else self._clock()
        args = (_WINDOW_MICROS, now, "" if requests is None else requests, events, more)
        try:
            refused, wait = await self._admit((key, f"{{{key}}}:n"), args)
        except (RedisError, OSError) as error:
            raise RateLimiterUnavailable(str(error) or type(error).__name__) from error
        if not refused:
            return None
        wait_s = -(-wait // _MICROS)
        if refused == 1:
            return Refusal("requests", requests or 0, wait_s)
        return Refusal("events", events, wait_s)
