"""Measures Redis' load while campaigns without headroom are refused (used by `limits_run.py`)."""

import asyncio
import os
from contextlib import AsyncExitStack, closing
from pathlib import Path
from time import monotonic
from typing import Any, Final

import redis as redis_client

from bench.redis_time import processor_s
from snapbid.base.settings import VARIABLES, load
from snapbid.embedded import Redis
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import BidVerdict
from snapbid.ledger.budgets.limits import Limits
from snapbid.operations.preflight import with_shards
from snapbid.server.allocating import AllocatorThread
from workload.serving import confirm_budgets

CAMPAIGNS: Final = (0, 100, 1_000, 25_000)
WORKERS: Final = (1, 4)
AT_ONCE: Final = 500
SETTLE_S: Final = 1.5
TURN_S: Final = 4.0


async def measure(redis: Redis, folder: Path) -> list[dict[str, Any]]:
    """Measure Redis' share of a core, by the number of refused campaigns and of workers.

    The allocator's thread of one machine runs, and the ledger of each worker; there are no bids.
    """
    environ = {VARIABLES["home"]: str(folder / "machine"), VARIABLES["redis_url"]: redis.url}
    settings = with_shards(load(environ), 1)
    settings.runtime_dir.mkdir(parents=True)
    reader = AllocatorThread(settings)
    reader.start()
    results = []
    try:
        with closing(redis_client.Redis.from_url(redis.url)) as client:
            for campaigns in CAMPAIGNS:
                for workers in WORKERS:
                    async with AsyncExitStack() as stack:
                        ledgers = [await _ledger(redis, folder, stack) for _ in range(workers)]
                        confirm_budgets(redis.url)
                        await _refuse(ledgers[0], campaigns)
                        await asyncio.sleep(SETTLE_S)
                        share = await _share(client)
                    results.append(
                        {"workers": workers, "campaigns": campaigns, "redis_percent": share}
                    )
    finally:
        reader.stop()
    return results


async def _ledger(redis: Redis, folder: Path, stack: AsyncExitStack) -> Ledger:
    spool = folder / f"spool-{os.urandom(4).hex()}"
    ledger = Ledger(redis.url, spool, shards=1, ttl_s=7200, spool_max_bytes=1 << 20)
    await ledger.open()
    stack.push_async_callback(ledger.close)
    while not ledger.connected:
        await asyncio.sleep(0.001)
    return ledger


async def _refuse(ledger: Ledger, campaigns: int) -> None:
    """Have a bid of each of these campaigns refused."""
    for start in range(1, campaigns + 1, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, campaigns + 1))
        waiting = []
        for number in numbers:
            bid = (b"1", number, 1_000_000, Limits(number, None, 1, None))
            done = ledger.remember(b"refused-%d" % number, 1, [bid], None, 60.0)
            assert done is not None
            waiting.append(done)
        assert set(await asyncio.gather(*waiting)) == {BidVerdict.OVER_BUDGET}


async def _share(client: Any) -> float:
    """Return the percentage of a core that Redis uses."""
    began, before = monotonic(), processor_s(client.info("cpu"))
    await asyncio.sleep(TURN_S)
    took = processor_s(client.info("cpu")) - before
    return round(took / (monotonic() - began) * 100, 2)
