"""Server events in a Redis Cluster: a node that is unavailable costs its own products alone."""

import asyncio
from pathlib import Path

import asyncpg
from redis.exceptions import RedisError
from support.cluster import Cluster
from support.event_bench import GEO, HISTORY, accepted
from support.remembered import until
from support.sending import NOW, event
from support.stack import connected

from snapbid.base.redis_keys import ShardKeys
from snapbid.drain.events import EventDrain
from snapbid.events.keys import rate_key
from snapbid.events.outcomes import Product
from snapbid.metrics import Metrics
from snapbid.operations.dashboard import ledger as ops
from snapbid.queues.queues import EventQueues, stream_of
from snapbid.queues.rate import RateLimiter
from snapbid.redisclient.connection import Connections, connect

SHARDS = 3
PRODUCTS = [Product(f"product-{number}", frozenset({"igaming"})) for number in range(12)]


async def put_all(queues: EventQueues, tag: str, sent: set[str]) -> set[int]:
    """Send an event of each product; give the shards whose products were refused."""
    refused = set()
    for product in PRODUCTS:
        pairs = accepted(product, event("login", tag))
        if await queues.put(NOW, product.name, pairs):
            sent.add(pairs[0][0])
        else:
            refused.add(stream_of(product.name, SHARDS))
    return refused


async def test_a_failed_primary_refuses_its_own_products_and_loses_none(
    cluster: Cluster, database: str, tmp_path: Path
) -> None:
    queues, redis = EventQueues(cluster.url, shards=SHARDS), connect(cluster.url)
    metrics, sent = Metrics(tmp_path / "metrics"), set[str]()
    await queues.open()
    try:
        await until(lambda: all(each.connected for each in queues._queues))
        assert not await put_all(queues, "before", sent)
        primary = cluster.primary_of(ShardKeys(1).events)
        lost = {n for n in range(SHARDS) if cluster.primary_of(ShardKeys(n).events) is primary}
        primary.kill()
        await until(lambda: not queues._queues[1].connected)
        assert await put_all(queues, "unavailable", sent) == lost
        async with connected(database) as connection:
            drain = EventDrain(redis, metrics, GEO, HISTORY, shards=SHARDS)
            try:
                async with asyncio.timeout(60):
                    while len(await stored(connection)) < len(sent):
                        await carry(drain, connection)
                primary.start()  # a replacement counts for nothing before it has a replica
                async with asyncio.timeout(60):
                    while await put_all(queues, "again", sent):
                        await asyncio.sleep(0.1)
                    while (await ops.waiting(redis, SHARDS, NOW / 1000)).entries:
                        await carry(drain, connection)
                assert await stored(connection) == sorted(sent)
            finally:
                cluster.heal()
    finally:
        await queues.close()
        await redis.aclose()
        metrics.close()


async def carry(drain: EventDrain, connection: asyncpg.Connection) -> None:
    """A round, as the process does it: again where a part is unavailable."""
    try:
        await drain.round(connection)
    except RedisError:
        await asyncio.sleep(0.1)


async def stored(connection: asyncpg.Connection) -> list[str]:
    rows = await connection.fetch("select event_id from events order by event_id")
    return [row["event_id"] for row in rows]


async def test_a_keys_limits_are_kept_on_the_node_of_the_key(cluster: Cluster) -> None:
    """Both lists are in one slot, whichever it is."""
    redis = Connections(cluster.url).client()
    limiter = RateLimiter(redis)
    try:
        for number in range(20):
            key = rate_key(bytes([number]) * 32)
            assert await limiter.admit_events(key, 1, 1_000) is None
            assert await limiter.admit_more(key, 1_000, 999) is None
            refused = [await limiter.admit_events(key, rate, 1_000) for rate in (1, 2)]
            assert [each and each.what for each in refused] == ["requests", "events"]
    finally:
        await redis.aclose()
