"""Limit requests per second across all workers and machines, without a round trip for each.

A worker leases permits: as many as it used recently, valid for `LEASE_S`. Redis divides time into
slices and counts the permits leased in each. It never leases more permits than the limit in `SPAN`
successive slices. Any second and the `LEASE_S` before it touch at most `SPAN` slices, so no second
exceeds the limit, wherever it begins. The price is that under full load the limit is used up every
1.06 s instead of every second.

While requests keep coming, the next lease is fetched before the current one ends. So a request
waits for Redis only if the worker has no lease, and not at all while Redis has no permits left.
Unused permits are returned when the next lease is fetched.
"""

import asyncio
from time import perf_counter
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.base.reasons import text_of
from snapbid.redisclient.pipelined import script
from snapbid.redisclient.scripts import load

LEASE_S: Final = 0.05
SLICE_S: Final = 0.01
SPAN: Final = round((1 + LEASE_S) / SLICE_S) + 1
ANSWER_S: Final = 0.5  # timeout of a call to Redis
_TEXT: Final = load(__package__, "permits")  # read at the start, before an upgrade replaces it
ATTEMPTS: Final = 2  # to get a lease that is still valid when it arrives

_MICROS: Final = 1_000_000


class PermitsUnavailable(Exception):
    """Redis did not answer in time, or answered with an error."""


class Permits:
    """A limit on requests per second, kept under a Redis key."""

    def __init__(self, redis: Redis, key: str, limit: int) -> None:
        self.limit = limit
        self._key = key
        self._script = script(redis, _TEXT, ANSWER_S)
        self._left = 0  # permits of the lease in use
        self._until = 0.0  # end of that lease
        self._slice = 0  # to which Redis counts that lease
        self._unused: tuple[int, int] | None = None  # slice and permits left of an ended lease
        self._none_until = 0.0
        self._asked = self._asked_before = 0  # requests since the last lease, and before it
        self._fetching: asyncio.Task[None] | None = None

    def take(self) -> bool | None:
        """Take a permit from the current lease; return whether this succeeded.

        Returns None if there is no permit in the lease, but `fetch` may get one.
        """
        now = perf_counter()
        self._asked += 1
        if self._left > 0 and now < self._until:
            self._left -= 1
            if self._until - now < LEASE_S / 2 and self._fetching is None:
                self._fetch()
            return True
        return False if now < self._none_until else None

    async def fetch(self) -> bool:
        """Lease permits from Redis and take one; return False if the limit is reached.

        Raises PermitsUnavailable if Redis does not answer in time, or answers with an error.
        """
        for _ in range(ATTEMPTS):
            await asyncio.shield(self._fetching or self._fetch())
            now = perf_counter()
            if now < self._until and self._left > 0:
                self._left -= 1
                return True
            if now < self._none_until:
                break
        return False

    def _fetch(self) -> "asyncio.Task[None]":
        self._fetching = asyncio.ensure_future(self._renew())
        self._fetching.add_done_callback(self._fetched)
        return self._fetching

    def _fetched(self, task: "asyncio.Task[None]") -> None:
        self._fetching = None
        if not task.cancelled():
            task.exception()  # marks it as retrieved: perhaps no request was waiting

    async def _renew(self) -> None:
        """Fetch another lease while requests use the current one. Raises PermitsUnavailable."""
        wanted = min(max(self._asked, self._asked_before) + 1, self.limit)
        self._asked, self._asked_before = 0, self._asked
        sent = perf_counter()
        if sent >= self._until:
            self._end_lease()
        given_back = self._unused or ("", "")
        self._unused = None
        try:
            granted, wait, counted = await self._script(
                (self._key,),
                (self.limit, wanted, round(SLICE_S * _MICROS), SPAN, *given_back),
            )
        except (RedisError, OSError) as error:  # TimeoutError, too
            raise PermitsUnavailable(text_of(error)) from error
        if granted:
            self._end_lease()
            self._left, self._slice, self._until = granted, counted, sent + LEASE_S
            self._none_until = 0.0
        else:
            self._none_until = perf_counter() + wait / _MICROS

    def _end_lease(self) -> None:
        if self._left > 0:
            self._unused = (self._slice, self._left)
            self._left = 0
