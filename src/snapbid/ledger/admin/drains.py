"""Reports that each drain writes every few seconds: its version, its clock and its problems.

`serve` shows them to operators, so the drains may run on other machines.
"""

import platform
from typing import Any, Final

import msgspec
from redis.asyncio import Redis

from snapbid.base.redis_keys import DRAINS

FRESH_S: Final = 15.0  # without a newer report, a drain counts as gone
KEPT_S: Final = 3600.0  # after which an old report is removed


class DrainReport(msgspec.Struct, frozen=True):
    """A drain's report. `at`: by the clock of Redis (epoch s); `ahead_s`: how far the drain's clock
    is ahead of it."""

    host: str
    version: str
    at: float
    ahead_s: float
    troubles: list[str]


async def write_report(redis: Redis, process: int, report: DrainReport) -> None:
    """Replace a drain's report, and remove outdated reports of other drains. Raises RedisError."""
    name = f"{platform.node()} {process}"
    await redis.hset(DRAINS, name, msgspec.json.encode(report))
    for other, known in (await _fetch_all(redis)).items():
        if known.at < report.at - KEPT_S:
            await redis.hdel(DRAINS, other)


async def fetch_reports(redis: Redis, now: float) -> list[DrainReport]:
    """Fetch recent reports; `now` is by the clock of Redis (epoch s). Raises RedisError."""
    reports = (await _fetch_all(redis)).values()
    return [report for report in reports if abs(now - report.at) <= FRESH_S]


async def remove_report(redis: Redis, process: int) -> None:
    """Remove the report of a drain that is stopping. Raises RedisError."""
    await redis.hdel(DRAINS, f"{platform.node()} {process}")


async def _fetch_all(redis: Redis) -> dict[str, DrainReport]:
    fields: Any = await redis.hgetall(DRAINS)
    return {
        name.decode(): msgspec.json.decode(value, type=DrainReport)
        for name, value in fields.items()
    }
