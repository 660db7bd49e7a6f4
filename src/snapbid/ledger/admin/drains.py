"""Reports that each drain writes every few seconds: its version, its clock and its problems.

`serve` reads them from Redis to show operators, so drains may run on other machines.
"""

import asyncio
import contextlib
import os
import platform
from collections.abc import Collection, Mapping
from time import time
from typing import Any, Final

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.base.redis_keys import DRAINS
from snapbid.base.version import version
from snapbid.ledger.bids.clock import compare

EVERY_S: Final = 2.0
FRESH_S: Final = 15.0  # without a newer report, a drain counts as gone
KEPT_S: Final = 3600.0  # after which an old report is removed


class DrainReport(msgspec.Struct, frozen=True):
    """A drain's report on itself.

    `at`: when it was made, by the clock of Redis (epoch s); `ahead_s`: how far the drain's own
    clock is ahead of that of Redis; `troubles`: the current problems.
    """

    host: str
    version: str
    at: float
    ahead_s: float
    troubles: list[str]


async def report(redis: Redis, troubles: Mapping[Any, str]) -> None:
    """Write this drain's report every few seconds until cancelled.

    `troubles` maps each of the drain's tasks to its current problem, and may change. Nothing is
    written while Redis is unavailable; other processes notice the outage themselves.
    """
    name = f"{platform.node()} {os.getpid()}"
    try:
        while True:
            with contextlib.suppress(RedisError, OSError):
                await _report(redis, name, troubles.values())
            await asyncio.sleep(EVERY_S)
    finally:
        with contextlib.suppress(RedisError, OSError):
            await redis.hdel(DRAINS, name)


async def _report(redis: Redis, name: str, troubles: Collection[str]) -> None:
    """Replace this drain's report, and remove outdated reports of other drains."""
    ahead_s = (await compare(redis, 0)).ahead_s
    now = DrainReport(platform.node(), version(), time() - ahead_s, ahead_s, list(troubles))
    await redis.hset(DRAINS, name, msgspec.json.encode(now))
    for other, known in (await _fetch_all(redis)).items():
        if known.at < now.at - KEPT_S:
            await redis.hdel(DRAINS, other)


async def fetch_reports(redis: Redis, now: float) -> list[DrainReport]:
    """Fetch the drains' recent reports; `now`: the time by Redis' clock (epoch s).

    Raises RedisError.
    """
    reports = (await _fetch_all(redis)).values()
    return [report for report in reports if abs(now - report.at) <= FRESH_S]


async def _fetch_all(redis: Redis) -> dict[str, DrainReport]:
    fields: Any = await redis.hgetall(DRAINS)
    return {
        name.decode(): msgspec.json.decode(value, type=DrainReport)
        for name, value in fields.items()
    }
