"""Whether the stores keep what they acknowledge: looked at before a start, and while we run.

A store that does not answer is not judged: what needs it says so, and waits for it.
"""

import asyncio
from typing import Final

import asyncpg
from redis.exceptions import RedisError

from snapbid.ledger import arrangement, remains
from snapbid.risks import Risk, RiskLog, StoreName, forbids
from snapbid.settings import StoreSettings
from snapbid.warehouse import risks as warehouse_risks
from snapbid.warehouse.away import AWAY

PATIENCE_S: Final = 3.0  # with a store
EVERY_S: Final = 60.0


class VolatileStoreError(RuntimeError):
    """A store is configured to lose what it acknowledges: one line for each reason."""

    status = 2  # with which the process exits


async def examine(settings: StoreSettings) -> dict[StoreName, list[Risk]]:
    """Ask both stores; one that does not answer is left out."""
    redis, warehouse = await asyncio.gather(
        _of_redis(settings), _of_warehouse(settings.database_url)
    )
    asked: dict[StoreName, list[Risk] | None] = {"redis": redis, "warehouse": warehouse}
    return {store: risks for store, risks in asked.items() if risks is not None}


async def check(settings: StoreSettings, log: RiskLog) -> None:
    """Log the risks. Raises VolatileStoreError where they forbid a start."""
    risks = await examine(settings)
    allow = settings.allow_volatile
    refused = [
        f"{risk}{'' if risk.severity == 'unsupported' else ', or set SNAPBID_ALLOW_VOLATILE=1'}"
        for store in risks.values()
        for risk in store
        if forbids(risk, allow_volatile=allow)
    ]
    if refused:
        raise VolatileStoreError("\n".join(refused))
    for store, found in risks.items():
        log.update(store, found)


async def watch(settings: StoreSettings, log: RiskLog) -> None:
    """Look again each minute, for ever."""
    while True:
        await asyncio.sleep(EVERY_S)
        for store, risks in (await examine(settings)).items():
            log.update(store, risks)


async def _of_redis(settings: StoreSettings) -> list[Risk] | None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            risks = await arrangement.fetch_risks(settings.redis_url, settings.redis_replicas)
            if not any(risk.name == "arrangement" for risk in risks):
                risks += await remains.fetch_risks(settings.redis_url, settings.ledger_shards)
            return risks
    except (RedisError, OSError):
        return None


async def _of_warehouse(dsn: str) -> list[Risk] | None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            connection = await asyncpg.connect(dsn)
            try:
                return await warehouse_risks.fetch_risks(connection)
            finally:
                connection.terminate()
    except AWAY:
        return None
