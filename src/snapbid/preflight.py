"""Whether the stores keep what they acknowledge: looked at before a start, and while we run.

A store that does not answer is not judged: what needs it says so, and waits for it.
"""

import asyncio
from typing import Final

import asyncpg
from redis.exceptions import RedisError

from snapbid.ledger import arrangement, connection, format, remains
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
    await _note_format(settings.redis_url)


async def watch(settings: StoreSettings, log: RiskLog) -> None:
    """Look again each minute, for ever."""
    while True:
        await asyncio.sleep(EVERY_S)
        for store, risks in (await examine(settings)).items():
            log.update(store, risks)


async def fetch_redis_risks(settings: StoreSettings) -> list[Risk]:
    """Ask Redis and the ledger in it for their risks. Raises RedisError or OSError."""
    url = settings.redis_url
    risks = await arrangement.fetch_risks(url, settings.redis_replicas)
    if any(risk.name == "arrangement" for risk in risks):
        return risks
    redis = connection.connect(url)
    try:
        risks += await format.fetch_risks(redis, "Redis (SNAPBID_REDIS_URL)")
    finally:
        await redis.aclose()
    return risks + await remains.fetch_risks(url, settings.ledger_shards)


async def _of_redis(settings: StoreSettings) -> list[Risk] | None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await fetch_redis_risks(settings)
    except (RedisError, OSError):
        return None


async def _note_format(url: str) -> None:
    """Note in the ledger who uses it; a Redis that does not take it is not asked again."""
    redis = connection.connect(url)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await format.note(redis)
    except (RedisError, OSError):
        pass
    finally:
        await redis.aclose()


async def _of_warehouse(dsn: str) -> list[Risk] | None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            session = await asyncpg.connect(dsn)
            try:
                return await warehouse_risks.fetch_risks(session)
            finally:
                session.terminate()
    except AWAY:
        return None
