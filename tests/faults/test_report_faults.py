"""Reports from a warehouse that does not answer in time."""

import asyncio
import gc
from datetime import UTC, datetime
from typing import Any

import pytest
from redis.asyncio import Redis
from support.stack import connected

from snapbid.base.errors import Problem
from snapbid.report import reports
from snapbid.report.cache import ReportCache
from snapbid.report.window import ReportWindow
from snapbid.warehouse.reports import open_pool


async def test_a_query_that_fails_later_logs_no_traceback(
    database: str, fresh_redis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the soak a query failed after its request had been answered, and logged a traceback."""
    monkeypatch.setattr(reports, "ANSWER_TIMEOUT_S", 0.05)
    surprises: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: surprises.append(what))
    today = datetime.now(UTC).date()
    pool = await open_pool(database)
    async with Redis.from_url(fresh_redis) as redis, connected(database) as other:
        asked = reports.ReportSource(pool, ReportCache(redis))
        async with other.transaction():
            await other.execute("lock table bid_daily")
            with pytest.raises(Problem):
                await asked.get("acme", ReportWindow(today, today), use_cache=False)
            (task,) = asked._fetches.values()
            pool.terminate()
            await asyncio.wait([task])
        del task
        gc.collect()
    assert not surprises
