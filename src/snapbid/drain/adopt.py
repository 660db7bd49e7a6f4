"""`snapbid ledger adopt`: the ledger that is there becomes the warehouse's own, as it is or empty.

One that the warehouse had before, or a restored copy of its own, keeps what it has. Before budgets
bid, the drain adds what others have spent since (spend.py). Holds wait for no process of before,
since none of these is there any more.

Numbers in a ledger stand for SSPs and campaigns of one warehouse. What one of another warehouse has
cannot be told from ours, so it is removed: records of bids, holds, budgets, counters, and the
evidence of what SSPs have sent. Server events on their way stay.
"""

import secrets
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

import asyncpg
from redis.asyncio import Redis

from snapbid.base.redis_keys import GOLIVE, ShardKeys
from snapbid.base.settings import StoreSettings
from snapbid.redisclient.connection import Connections
from snapbid.warehouse import away, fence

BATCH: Final = 1000


class Adopted(NamedTuple):
    """How many shards were another warehouse's, and how many changed counters of it are dropped.

    `is_returned`: the warehouse had another ledger meanwhile.
    """

    shards: int
    dropped: int
    is_returned: bool


async def adopt(settings: StoreSettings) -> Adopted:
    """Give up what the shards of other warehouses have. Raises what the stores raise.

    Replicas have it then: else the shards of a primary that is lost would be the former's again.
    """
    connection = await asyncpg.connect(settings.database_url, timeout=away.CONNECT_S)
    connections = Connections(settings.redis_url, settings.redis_replicas)
    redis = connections.client()
    changed = []
    try:
        warehouse = await fence.identity(connection)
        every = [ShardKeys(number) for number in range(settings.ledger_shards)]
        for keys in every:
            changed.append(await _adopt(redis, keys, warehouse))
            await connections.replicate(redis, keys)
        there: list[Any] = [await redis.get(keys.epoch) for keys in every]
        epochs = [(epoch or b"").decode() for epoch in there]
        before = await fence.own_ledger(connection)
        await fence.set_ledger(connection, epochs)
    finally:
        connection.terminate()
        await redis.aclose()
    dropped = [count for count in changed if count is not None]
    is_returned = bool(before) and before != epochs and not dropped
    return Adopted(len(dropped), sum(dropped), is_returned)


async def _adopt(redis: Redis, keys: ShardKeys, warehouse: str) -> int | None:
    """Return how many counters were dropped; None for a shard that is ours or has no owner."""
    owner: Any = await redis.hget(keys.state, "warehouse")
    if owner is None or owner.decode() == warehouse:
        await redis.hdel(keys.state, "carried", "confirmed")
        await redis.delete(keys.processes)
        return None
    dropped: Any = await redis.scard(keys.changed) + await redis.scard(keys.taken)
    # The state goes last: no worker bids before, and the command can be repeated.
    kept = {keys.state.encode(), keys.events.encode()}
    for prefix in (keys.prefix, GOLIVE):
        async for batch in _batches(redis, prefix):
            if gone := [key for key in batch if key not in kept]:
                await redis.unlink(*gone)
    async with redis.pipeline() as pipe:
        pipe.delete(keys.state, keys.segments)
        pipe.set(keys.epoch, secrets.token_hex(8))
        pipe.hset(keys.state, "warehouse", warehouse)
        await pipe.execute()
    return int(dropped)


async def _batches(redis: Redis, prefix: str) -> AsyncIterator[list[bytes]]:
    batch: list[bytes] = []
    async for key in redis.scan_iter(match=f"{prefix}*", count=BATCH):
        batch.append(key)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
