"""Checks at start and every minute that the stores are durable and belong together.

A store that does not answer is skipped; the code that uses it logs the failure and waits.
"""

import asyncio
import logging
from collections.abc import Sequence
from time import monotonic
from typing import Final, NamedTuple, TypeVar

import asyncpg
import msgspec
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, RedisError

from snapbid.base import addresses
from snapbid.base.addresses import Arrangement
from snapbid.base.redis_keys import ShardKeys
from snapbid.base.risks import Risk, RiskLog, StoreName, forbids
from snapbid.base.settings import Settings, StoreSettings
from snapbid.catalog.catalog import Catalog, CatalogError
from snapbid.ledger.admin import format
from snapbid.ledger.admin.parts import fetch_count, of_each, record_count
from snapbid.redisclient import arrangement, connection
from snapbid.redisclient.connection import Connections
from snapbid.warehouse import fence, leases
from snapbid.warehouse import risks as warehouse_risks
from snapbid.warehouse.unavailable import UNAVAILABLE, brief_session

PATIENCE_S: Final = 3.0  # timeout of a store
EVERY_S: Final = 60.0
AGAIN_S: Final = 0.25
LEDGER: Final = "ledger"  # the name of a risk

ADOPT: Final = "or make it this warehouse's own again with snapbid ledger adopt"
PERMISSIONS: Final = "~* &* +@all -@dangerous +info +role +cluster|slots +cluster|nodes"
NAMES: Final = "set SNAPBID_REDIS_URL and SNAPBID_DATABASE_URL to stores that belong together"

S = TypeVar("S", bound=StoreSettings)
T = TypeVar("T", bound=Settings)

logger = logging.getLogger(__name__)


class VolatileStoreError(RuntimeError):
    """A store may lose acknowledged writes, or the stores do not match; the message says why."""

    status = 2  # exit status of the process


async def examine(settings: StoreSettings) -> dict[StoreName, list[Risk]]:
    """Return the risks of both stores, leaving out a store that does not answer."""
    redis, warehouse = await asyncio.gather(
        _of_redis(settings), _of_warehouse(settings.database_url)
    )
    if redis is not None and warehouse is not None and settings.ledger_shards is not None:
        redis += await fetch_ledger_risks(settings)
    asked: dict[StoreName, list[Risk] | None] = {"redis": redis, "warehouse": warehouse}
    return {store: risks for store, risks in asked.items() if risks is not None}


async def check(settings: S, log: RiskLog) -> S:
    """Log the risks; return the settings with the ledger's number of shards.

    Decides this number for a new ledger. Waits for the stores while the number is unknown. Raises
    VolatileStoreError if the risks forbid a start, or if SNAPBID_LEDGER_SHARDS differs from the
    ledger's number.
    """
    shards, is_logged = await find_shards(settings), False
    while shards is None:
        await _check_risks(settings, log)
        if not is_logged:
            logger.warning(
                "waiting for Redis or the warehouse: the ledger's number of shards is unknown"
            )
            is_logged = True
        await asyncio.sleep(AGAIN_S)
        shards = await find_shards(settings)
    settings = with_shards(settings, shards)
    await _check_risks(settings, log)
    return with_shards(settings, await _note_ledger(settings))


async def _check_risks(settings: StoreSettings, log: RiskLog) -> None:
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
    """Examine the stores every minute, forever, and log changes of their risks."""
    while True:
        await asyncio.sleep(EVERY_S)
        for store, risks in (await examine(settings)).items():
            log.update(store, risks)


async def fetch_redis_risks(settings: StoreSettings) -> list[Risk]:
    """Return the risks of Redis and the ledger in it. Raises RedisError or OSError."""
    url = settings.redis_url
    redis = connection.connect(url)
    try:
        risks = await arrangement.fetch_risks(url, settings.redis_replicas)
        if not any(risk.name == "arrangement" for risk in risks):
            risks += await format.fetch_risks(redis, "Redis (SNAPBID_REDIS_URL)")
        return risks
    except NoPermissionError as error:
        text = f"Redis (SNAPBID_REDIS_URL) refuses a command to its user ({error})"
        remedy = f"allow it with ACL SETUSER ({PERMISSIONS} is enough)"
        return [Risk("redis", "permission", "unsupported", text, remedy)]
    finally:
        await redis.aclose()


async def _of_redis(settings: StoreSettings) -> list[Risk] | None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await fetch_redis_risks(settings)
    except (RedisError, OSError):
        return None


async def _note_ledger(settings: StoreSettings) -> int:
    """Record the ledger's format and number of shards; return the number that the ledger has.

    If that fails, returns the number in the settings; workers and the drain will record it.
    """
    redis = connection.connect(settings.redis_url)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await format.note(redis)
            return await record_count(redis, settings.shards)
    except (RedisError, OSError):
        return settings.shards
    finally:
        await redis.aclose()


async def find_shards(settings: Settings) -> int | None:
    """Return the ledger's number of shards, or the number that a new ledger would get.

    The ledger, the warehouse and the published catalog record it. A new ledger has one shard per
    primary, and no fewer than its predecessor, unless SNAPBID_LEDGER_SHARDS says otherwise. If
    Redis does not answer and nothing else records the number, returns None for a cluster, and
    otherwise 1. Raises VolatileStoreError if that setting differs from the ledger's number.
    """
    recorded, primaries = await _count_in_redis(settings)
    own = settings.ledger_shards
    if recorded and own not in (None, recorded):
        raise VolatileStoreError(_differing(own, recorded))
    if recorded or own:
        return recorded or own
    known = await _count_in_warehouse(settings.database_url) or _count_in_catalog(settings)
    if primaries:
        return max(primaries, known)
    assert settings.redis_url is not None
    is_cluster = addresses.parse(settings.redis_url).arrangement is Arrangement.CLUSTER
    return known or (None if is_cluster else 1)


def with_shards(settings: T, shards: int) -> T:
    """Return the settings with the ledger's number of shards."""
    return msgspec.structs.replace(settings, ledger_shards=shards)


async def _count_in_redis(settings: Settings) -> tuple[int, int]:
    """Return the number of shards that Redis records, and the number of primaries.

    Primaries are counted only if no number of shards is recorded. A number that is unknown or not
    counted is 0. If Redis is unavailable, both are 0.
    """
    assert settings.redis_url is not None
    connections = Connections(settings.redis_url)
    redis = connections.client()
    try:
        async with asyncio.timeout(PATIENCE_S):
            recorded = await fetch_count(redis)
            return recorded, 0 if recorded else await connections.count_primaries()
    except (RedisError, OSError):
        return 0, 0
    finally:
        await redis.aclose()


async def _count_in_warehouse(dsn: str | None) -> int:
    """Return the number of shards of the warehouse's own ledger; 0 if unknown."""
    if dsn is None:
        return 0
    try:
        async with brief_session(dsn, PATIENCE_S) as session:
            return len(await fence.own_ledger(session))
    except UNAVAILABLE:
        return 0


def _count_in_catalog(settings: Settings) -> int:
    """Return the number of shards in this machine's last published catalog; 0 without one."""
    try:
        return len(Catalog.open(settings.catalog_path).ledger)
    except (OSError, CatalogError):
        return 0


async def check_ledger(settings: StoreSettings) -> None:
    """Raise VolatileStoreError if this ledger must not be used with the warehouse."""
    for risk in await fetch_ledger_risks(settings):
        raise VolatileStoreError(str(risk))


async def fetch_ledger_risks(settings: StoreSettings) -> list[Risk]:
    """Return a risk if both stores answer, but the ledger cannot be used with the warehouse.

    The problem must last for `PATIENCE_S`, the time a drain may need to take over a new ledger.
    """
    until = monotonic() + PATIENCE_S
    while (risks := await _of_ledger(settings)) and monotonic() < until:
        await asyncio.sleep(AGAIN_S)
    return risks


async def _of_ledger(settings: StoreSettings) -> list[Risk]:
    redis = Connections(settings.redis_url, settings.redis_replicas).client()
    try:
        async with brief_session(settings.database_url, PATIENCE_S) as session:
            found = await find_ledger(session, redis, settings.shards)
    except (*UNAVAILABLE, RedisError, OSError):
        return []
    finally:
        await redis.aclose()
    text, _, remedy = found.problem.partition(": ")
    return [Risk("redis", LEDGER, "unsupported", text, remedy)] if text else []


async def _of_warehouse(dsn: str) -> list[Risk] | None:
    try:
        async with brief_session(dsn, PATIENCE_S) as session:
            return await warehouse_risks.fetch_risks(session)
    except UNAVAILABLE:
        return None


class Ledger(NamedTuple):
    """The identity of the ledger in Redis."""

    epochs: Sequence[str]  # of each shard; "" if it is empty or unavailable
    moved_from: str  # an epoch of the ledger it was moved from; "" if none
    shards: int  # the number recorded in the ledger; 0 if none


class Finding(NamedTuple):
    """The result of checking a ledger."""

    problem: str  # "" if none
    is_new: bool = False  # it may be taken over


def judge(ledger: Ledger, own: Sequence[str], former: set[int]) -> Finding:
    """Decide whether a ledger may be used with the warehouse.

    `own`: the epochs of the warehouse's own ledger, by shard. `former`: the shards of `ledger` from
    whose data sets the warehouse has absorbed counters.
    """
    count = len(ledger.epochs)
    if ledger.shards not in (0, count):
        return Finding(_differing(count, ledger.shards))
    if not any(own) or (ledger.moved_from and ledger.moved_from in own):
        return Finding("")
    pairs = list(zip(ledger.epochs, own, strict=False))
    is_own = any(epoch and epoch == known for epoch, known in pairs)
    if is_own and len(own) != count:
        return Finding(_differing(count, len(own)))
    if any(n in former and pair[0] != pair[1] for n, pair in enumerate(pairs)):
        return Finding(
            "the ledger in Redis is an earlier one of this warehouse, without the spend since then:"
            f" {NAMES}, {ADOPT}"
        )
    return Finding("", is_new=not is_own)


def _differing(shards: int | None, known: int) -> str:
    return (
        f"SNAPBID_LEDGER_SHARDS is {shards}, and the ledger has {known}: restart without it, or"
        " move the ledger with snapbid ledger move"
    )


async def find_ledger(connection: asyncpg.Connection, redis: Redis, shards: int) -> Finding:
    """Check whether the ledger may be used, without changing it.

    A ledger that is closed or belongs to another warehouse is not a problem: workers and drains
    handle both (ledger/bids/shard.py, drain/fence.py). Raises RedisError, asyncpg's errors, or
    OSError.
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
    """Decide whether a ledger may be used; `known`: the epochs of the warehouse's own ledger."""
    finding = judge(ledger, known, await fence.former(connection, ledger.epochs))
    if finding.is_new and (await leases.look(connection)).others:
        return finding._replace(
            problem="the ledger in Redis is new, and a drain carries another one to this"
            f" warehouse: {NAMES}"
        )
    return finding
