"""The report of the last self-audit, which one drain's auditor writes each minute (contract 11)."""

from typing import Any, Final

import msgspec
from redis.asyncio import Redis

from snapbid.base.redis_keys import AUDIT

SHOWN: Final = 20  # differences with their figures
STALE_S: Final = 300.0  # without a complete audit


class Difference(msgspec.Struct, frozen=True):
    """Two figures that should match but differed in two successive audits.

    `comparison`: what was compared (drain/audit.py, COMPARISONS).
    """

    comparison: str
    what: str
    first: int
    second: int


class AuditReport(msgspec.Struct, frozen=True):
    """A completed audit; `at`: when, by the clock of Redis (epoch s).

    `counts`: the number of differences by comparison; `shown`: the first few.
    """

    at: float
    counts: dict[str, int]
    shown: list[Difference]


async def write_audit(redis: Redis, report: AuditReport) -> None:
    """Replace the report. Raises RedisError."""
    await redis.set(AUDIT, msgspec.json.encode(report))


async def fetch_audit(redis: Redis) -> AuditReport | None:
    """Fetch the last report; None if there is none yet. Raises RedisError."""
    text: Any = await redis.get(AUDIT)
    return None if text is None else msgspec.json.decode(text, type=AuditReport)
