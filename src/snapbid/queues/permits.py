"""Limits of requests per second over all workers and machines, without asking Redis for each.

A worker leases permits: as many as it lately used, to be used within `LEASE_S`. Redis counts what
it has leased by slices of its clock, and leases no more than the limit in any row of slices that a
second and a lease can touch. So no second has more requests than the limit, wherever it begins;
the price is that a limit that is reached is reached once in 1.06 seconds, not in 1.

While requests keep coming the next lease is fetched before the one in use ends. So a request waits
for Redis only where the worker has no lease, and none waits where Redis has said that there are no
permits for now. What was not used is given back with the next lease.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.redisclient.calls import script

LEASE_S: Final = 0.05
SLICE_S: Final = 0.01
SPAN: Final = round((1 + LEASE_S) / SLICE_S) + 1
ANSWER_S: Final = 0.5  # for Redis
ATTEMPTS: Final = 2  # of a request to get a lease that has not ended on its way here

_SCRIPT: Final = Path(__file__).with_name("permits.lua").read_text(encoding="utf-8")
_MICROS: Final = 1_000_000


class PermitsUnavailable(Exception):
    """Redis did not answer in time."""


class Permits:
    """One limit, under a Redis key. `clock` (epoch µs) stands in for the Redis clock."""

    def __init__(
        self, redis: Redis, key: str, limit: int, *, clock: Callable[[], int] | None = None
    ) -> None:
        self.limit = limit
        self._key = key
        self._script = script(redis, _SCRIPT, ANSWER_S)
        self._clock = clock
        self._left = 0  # permits of the lease in use
        self._until = 0.0  # its end
        self._slice = 0  # in which Redis counts it
        self._unused: tuple[int, int] | None = None  # slice and permits of the lease before
        self._none_until = 0.0
        self._asked = self._asked_before = 0  # requests since the last lease, and before it
        self._fetching: asyncio.Task[None] | None = None

    def take(self) -> bool | None:
        """Take a permit; False where there is none for now, None where `fetch` may find one."""
        now = perf_counter()
        self._asked += 1
        if self._left > 0 and now < self._until:
            self._left -= 1
            if self._until - now < LEASE_S / 2 and self._fetching is None:
                self._fetch()
            return True
        return False if now < self._none_until else None

    async def fetch(self) -> bool:
        """Take a permit of a new lease. Raises PermitsUnavailable."""
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
            task.exception()  # nobody need have waited for it

    async def _renew(self) -> None:
        """Get another lease. Requests that come meanwhile still use the one before."""
        wanted = min(max(self._asked, self._asked_before) + 1, self.limit)
        self._asked, self._asked_before = 0, self._asked
        sent = perf_counter()
        if sent >= self._until:
            self._end_lease()
        given_back = self._unused or ("", "")
        self._unused = None
        now = "" if self._clock is None else self._clock()
        try:
            granted, wait, counted = await self._script(
                (self._key,),
                (self.limit, wanted, round(SLICE_S * _MICROS), SPAN, *given_back, now),
            )
        except (RedisError, OSError) as error:  # TimeoutError, too
            raise PermitsUnavailable(str(error) or type(error).__name__) from error
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
