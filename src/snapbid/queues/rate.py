"""Limit requests, and the events in them, in any rolling minute across all workers and machines.

Redis stores the times of admitted requests, by its own clock. Refused requests do not count. A
request may bring several server events, so a second limit can be set on the number of events.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.base.reasons import text_of
from snapbid.redisclient.pipelined import script
from snapbid.redisclient.scripts import load

WINDOW_S: Final = 60

_MICROS: Final = 1_000_000
_WINDOW_MICROS: Final = WINDOW_S * _MICROS


class RateLimiterUnavailable(Exception):
    """Redis did not answer in time, or answered with an error."""


class RateDecision(NamedTuple):
    """The decision on a request, and the state of its limit.

    `remaining`: further requests that would be admitted now. `wait_s`: time until the oldest
    counted request leaves the window and makes room for one more.
    """

    admitted: bool
    remaining: int
    wait_s: int


class Refusal(NamedTuple):
    """A refusal: the limit on `what` ("requests" or "events") is reached. Retry after `wait_s`."""

    what: str
    limit: int
    wait_s: int


class RateLimiter:
    """Rate limits, each under its own Redis key; `clock` (epoch µs) replaces the Redis clock.

    A request with events counts as one event at first; the other events of a batch are admitted
    once their number is known. Every method may raise RateLimiterUnavailable.
    """

    def __init__(
        self, redis: Redis, *, timeout_s: float = 1.0, clock: Callable[[], int] | None = None
    ) -> None:
        self._admit = script(redis, load(__package__, "rate"), timeout_s)
        self._clock = clock

    async def admit(self, key: str, limit: int) -> RateDecision:
        """Count a request under a Redis key, unless `limit` requests came in the last minute."""
        refused, wait_s, remaining = await self._ask((key,), limit, "")
        return RateDecision(not refused, remaining, wait_s)

    async def admit_events(self, key: str, requests: int, events: int) -> Refusal | None:
        """Count a request with events under a Redis key, unless a limit refuses it.

        Returns the refusal; None if the request was counted.
        """
        refused, wait_s, _ = await self._ask(_keys(key), requests, events)
        if refused == 1:
            return Refusal("requests", requests, wait_s)
        return Refusal("events", events, wait_s) if refused else None

    async def admit_more(self, key: str, events: int, count: int) -> Refusal | None:
        """Count `count` more events of an admitted request, unless the limit `events` refuses."""
        refused, wait_s, _ = await self._ask(_keys(key), "", events, count)
        return Refusal("events", events, wait_s) if refused else None

    async def _ask(
        self, keys: tuple[str, ...], requests: int | str, events: int | str, more: int = 0
    ) -> tuple[int, int, int]:
        """Run rate.lua; return the limit that refuses, the wait (s) and the requests left.

        The first is 0 if admitted, 1 for the limit on requests, 2 for the limit on events. If
        `requests` is "", the request was admitted before, and only its further events (`more`) are
        counted. If `events` is "", only requests are counted.
        """
        now = "" if self._clock is None else self._clock()
        args = (_WINDOW_MICROS, now, requests, events, more)
        try:
            refused, wait, remaining = await self._admit(keys, args)
        except (RedisError, OSError) as error:
            raise RateLimiterUnavailable(text_of(error)) from error
        return refused, -(-wait // _MICROS), remaining


def _keys(key: str) -> tuple[str, str]:
    return key, f"{{{key}}}:n"
