"""Checks at start, and then every minute, that the stores are durable and belong together.

A store that does not answer is skipped: whoever needs it logs that, and waits for it.
"""

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Final, NamedTuple

import asyncpg
from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.base.redis_keys import ShardKeys
from snapbid.base.risks import Risk, RiskLog, StoreName, forbids
from snapbid.base.settings import StoreSettings
from snapbid.ledger.admin import format, remains
from snapbid.ledger.admin.parts import of_each
from snapbid.redisclient import arrangement, connection
from snapbid.redisclient.connection import Connections
from snapbid.warehouse import fence, leases
from snapbid.warehouse import risks as warehouse_risks
from snapbid.warehouse.unavailable import UNAVAILABLE

PATIENCE_S: Final = 3.0  # timeout of a store
EVERY_S: Final = 60.0
AGAIN_S: Final = 0.25
LEDGER: Final = "ledger"  # the name of a risk


ADOPT: Final = "or make it this warehouse's own again with snapbid ledger adopt"
NAMES: Final = "set SNAPBID_REDIS_URL and SNAPBID_DATABASE_URL to stores that belong together"


class VolatileStoreError(RuntimeError):
    """A store may lose what it acknowledges, or is another's; one line per reason."""

    status = 2  # exit status of the process


async def examine(settings: StoreSettings) -> dict[StoreName, list[Risk]]:
    """Return the risks of both stores, leaving out one that does not answer."""
    redis, warehouse = await asyncio.gather(
        _of_redis(settings), _of_warehouse(settings.database_url)
    )
    if redis is not None and warehouse is not None:
        redis += await _of_ledger(settings)
    asked: dict[StoreName, list[Risk] | None] = {"redis": redis, "warehouse": warehouse}
    return {store: risks for store, risks in asked.items() if risks is not None}


async def check(settings: StoreSettings, log: RiskLog) -> None:
    """Log the risks. Raises VolatileStoreError if they forbid a start."""
    risks = await examine(settings)
    until = monotonic() + PATIENCE_S  # for a drain to take over a new ledger
    while any(risk.name == LEDGER for risk in risks.get("redis", ())) and monotonic() < until:
        await asyncio.sleep(AGAIN_S)
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
    """Check and log again every minute, forever."""
    while True:
        await asyncio.sleep(EVERY_S)
        for store, risks in (await examine(settings)).items():
            log.update(store, risks)


async def fetch_redis_risks(settings: StoreSettings) -> list[Risk]:
    """Return the risks of Redis and the ledger in it. Raises RedisError or OSError."""
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
    """Record our format in the ledger; not retried if Redis does not accept it."""
    redis = connection.connect(url)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await format.note(redis)
    except (RedisError, OSError):
        pass
    finally:
        await redis.aclose()


async def check_ledger(settings: StoreSettings) -> None:
    """Raise VolatileStoreError if the ledger does not belong to the warehouse."""
    for risk in await _of_ledger(settings):
        raise VolatileStoreError(str(risk))


async def _of_ledger(settings: StoreSettings) -> list[Risk]:
    """Return the risk that the ledger does not belong to the warehouse, if both answer."""
    redis = Connections(settings.redis_url, settings.redis_replicas).client()
    try:
        async with asyncio.timeout(PATIENCE_S):
            session = await asyncpg.connect(settings.database_url)
            try:
                found = await find_ledger(session, redis, settings.ledger_shards)
            finally:
                session.terminate()
    except (*UNAVAILABLE, RedisError, OSError):
        return []
    finally:
        await redis.aclose()
    text, _, remedy = found.problem.partition(": ")
    return [Risk("redis", LEDGER, "unsupported", text, remedy)] if text else []


async def _of_warehouse(dsn: str) -> list[Risk] | None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            session = await asyncpg.connect(dsn)
            try:
                return await warehouse_risks.fetch_risks(session)
            finally:
                session.terminate()
    except UNAVAILABLE:
        return None


class Ledger(NamedTuple):
    """The ledger in Redis: the epoch of each shard, "" if it is empty or unavailable.

    `shards`: the number of shards that the ledger records, 0 if none.
    """

    epochs: Sequence[str]
    moved_from: str
    shards: int


class Finding(NamedTuple):
    """The problem of a ledger, "" if there is none; and whether it may be taken over as new."""

    problem: str
    is_new: bool = False


def judge(ledger: Ledger, own: Sequence[str], former: set[int]) -> Finding:
    """Compare a ledger with the warehouse's own; `former` are the shards known to the warehouse."""
    count = len(ledger.epochs)
    if ledger.shards not in (0, count):
        return Finding(_shards(count, ledger.shards))
    if not any(own) or (ledger.moved_from and ledger.moved_from in own):
        return Finding("")
    pairs = list(zip(ledger.epochs, own, strict=False))
    is_own = any(epoch and epoch == known for epoch, known in pairs)
    if is_own and len(own) != count:
        return Finding(_shards(count, len(own)))
    if any(n in former and pair[0] != pair[1] for n, pair in enumerate(pairs)):
        return Finding(
            "the ledger in Redis is an earlier one of this warehouse, and does not know what was"
            f" spent since: {NAMES}, {ADOPT}"
        )
    return Finding("", is_new=not is_own)


def _shards(configured: int, known: int) -> str:
    return (
        f"SNAPBID_LEDGER_SHARDS is {configured}, and the ledger has {known}: set it to {known}, or"
        " move the ledger with snapbid ledger move"
    )


async def find_ledger(connection: asyncpg.Connection, redis: Redis, shards: int) -> Finding:
    """Check whether the ledger may be used, without changing it.

    One that belongs to another warehouse or is closed gives no finding: its users handle it
    (ledger/bids/shard.py, fence.py). Raises what the stores raise.
    """

    async def look(number: int) -> list[str]:
        keys = ShardKeys(number)
        async with redis.pipeline(transaction=False) as pipe:
            pipe.mget(keys.epoch, f"{keys.prefix}closed")
            pipe.hmget(keys.state, "warehouse", "moved_from", "shards")
            (epoch, closed), state = await pipe.execute()
        return [(value or b"").decode() for value in (epoch, closed, *state)]

    there = [row or [""] * 5 for row in await of_each(shards, look)]
    epochs, closed, warehouses, moved_from, counts = zip(*there, strict=True)
    identity = await fence.identity(connection)
    if any(closed) or any(name not in ("", identity) for name in warehouses):
        return Finding("")
    ledger = Ledger(epochs, max(moved_from), max(int(count or 0) for count in counts))
    return await compare_ledger(connection, ledger, await fence.own_ledger(connection))


async def compare_ledger(
    connection: asyncpg.Connection, ledger: Ledger, known: Sequence[str]
) -> Finding:
    """Compare a ledger with the one known to belong to the warehouse."""
    finding = judge(ledger, known, await fence.former(connection, ledger.epochs))
    if finding.is_new and (await leases.look(connection)).others:
        return finding._replace(
            problem="the ledger in Redis is new, and a drain carries another one to this"
            f" warehouse: {NAMES}"
        )
    return finding
