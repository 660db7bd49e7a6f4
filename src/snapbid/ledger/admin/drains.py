"""What each drain says of itself every few seconds: its version, its clock, and what keeps it.

So `serve` can tell the operator, who would otherwise have to read a log on another machine.
"""

import platform
from typing import Any, Final

import msgspec
from redis.asyncio import Redis

from snapbid.base.redis_keys import DRAINS

FRESH_S: Final = 15.0  # after which a drain that says nothing more counts as gone
KEPT_S: Final = 3600.0  # after which what it said is removed


class DrainReport(msgspec.Struct, frozen=True):
    """`at`: by the clock of Redis (epoch s), of which the drain's own is `ahead_s` ahead."""

    host: str
    version: str
    at: float
    ahead_s: float
    troubles: list[str]


async def write_report(redis: Redis, process: int, report: DrainReport) -> None:
    """Replace what a drain said before. Raises RedisError."""
    name = f"{platform.node()} {process}"
    await redis.hset(DRAINS, name, msgspec.json.encode(report))
    for other, known in (await _fetch_all(redis)).items():
        if known.at < report.at - KEPT_S:
            await redis.hdel(DRAINS, other)


async def fetch_reports(redis: Redis, now: float) -> list[DrainReport]:
    """Fetch what drains have said lately; `now` is by Redis (epoch s). Raises RedisError."""
    reports = (await _fetch_all(redis)).values()
    return [report for report in reports if abs(now - report.at) <= FRESH_S]


async def remove_report(redis: Redis, process: int) -> None:
    """Forget a drain that ends. Raises RedisError."""
    await redis.hdel(DRAINS, f"{platform.node()} {process}")


async def _fetch_all(redis: Redis) -> dict[str, DrainReport]:
    fields: Any = await redis.hgetall(DRAINS)
    return {
        name.decode(): msgspec.json.decode(value, type=DrainReport)
        for name, value in fields.items()
    }
