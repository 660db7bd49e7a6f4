"""Reports of a warehouse that does not answer in time."""

import asyncio
import gc
from datetime import UTC, datetime
from typing import Any

import pytest
from redis.asyncio import Redis
from support.stack import connected

from snapbid.report import reports
from snapbid.report.cache import Cache
from snapbid.report.window import Window
from snapbid.warehouse.reports import open_pool


async def test_nobody_is_surprised_by_what_fails_later(
    database: str, fresh_redis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen in the soak: a traceback of a query that failed when nobody waited any more."""
    monkeypatch.setattr(reports, "ANSWER_TIMEOUT_S", 0.05)
    surprises: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: surprises.append(what))
    today = datetime.now(UTC).date()
    pool = await open_pool(database)
    async with Redis.from_url(fresh_redis) as redis, connected(database) as other:
        asked = reports.Reports(pool, Cache(redis))
        async with other.transaction():
            await other.execute("lock table bid_daily")
            with pytest.raises(reports.WarehouseAway):
                await asked.get("acme", Window(today, today), use_cache=False)
            (task,) = asked._under_way.values()
            pool.terminate()
            await asyncio.wait([task])
        del task
        gc.collect()
    assert not surprises
