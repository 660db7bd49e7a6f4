"""`snapbid ledger adopt`: take over the ledger in Redis, emptying another warehouse's.

A former ledger of this warehouse, or a restored copy of its own ledger, keeps its data. Before
campaigns with a budget bid, the drain adds the spend that is missing from the data (confirm.py).
Holds no longer wait for notices that the processes registered in the ledger may have spooled,
since none of these processes is running.

A ledger names SSPs and campaigns by the numbers that its warehouse gave them; in another warehouse
the same numbers denote other SSPs and campaigns. So another warehouse's ledger is emptied of bid
records, holds, budgets, counters and request statistics. Server events that are still queued stay.
"""

import secrets
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis

from snapbid.base.redis_keys import GOLIVE, ShardKeys
from snapbid.base.settings import StoreSettings
from snapbid.redisclient.connection import Connections, scan
from snapbid.warehouse import fence
from snapbid.warehouse.unavailable import session

BATCH: Final = 1000


class Adopted(NamedTuple):
    """The result of adopting a ledger."""

    shards: int  # that belonged to another warehouse
    dropped: int  # their counters that had not been drained yet
    is_returned: bool  # the warehouse has had another ledger in between


async def adopt(settings: StoreSettings) -> Adopted:
    """Adopt the ledger; clear all shards that belong to another warehouse.

    Waits until replicas have the changes; otherwise a failover could undo them. Raises the errors
    of both stores.
    """
    connections = Connections(settings.redis_url, settings.redis_replicas)
    redis = connections.client()
    changed = []
    try:
        async with session(settings.database_url) as connection:
            warehouse = await fence.identity(connection)
            every = [ShardKeys(number) for number in range(settings.shards)]
            for keys in every:
                changed.append(await _adopt(redis, keys, warehouse, settings.shards))
                await connections.replicate(redis, keys)
            there: list[Any] = [await redis.get(keys.epoch) for keys in every]
            epochs = [(epoch or b"").decode() for epoch in there]
            before = await fence.own_ledger(connection)
            await fence.set_ledger(connection, epochs)
    finally:
        await redis.aclose()
    dropped = [count for count in changed if count is not None]
    is_returned = bool(before) and before != epochs and not dropped
    return Adopted(len(dropped), sum(dropped), is_returned)


async def _adopt(redis: Redis, keys: ShardKeys, warehouse: str, shards: int) -> int | None:
    """Adopt a shard, emptying it if it belongs to another warehouse.

    Returns the number of counters dropped, or None if the shard was not emptied.
    """
    owner: Any = await redis.hget(keys.state, "warehouse")
    if owner is None or owner.decode() == warehouse:
        await redis.hdel(keys.state, "carried", "confirmed")
        await redis.delete(keys.processes)
        return None
    # State and epoch are replaced last: until then no worker bids, heartbeats find a ledger, and
    # the command can be repeated.
    await redis.hset(keys.state, "warehouse", f"{warehouse} is adopting it")
    dropped: Any = await redis.scard(keys.changed) + await redis.scard(keys.taken)
    kept = {keys.state.encode(), keys.epoch.encode(), keys.events.encode()}
    for prefix in (keys.prefix, GOLIVE):
        async for batch in scan(redis, prefix, BATCH):
            if gone := [key for key in batch if key not in kept]:
                await redis.unlink(*gone)
    async with redis.pipeline() as pipe:
        pipe.delete(keys.state, keys.segments)
        pipe.set(keys.epoch, secrets.token_hex(8))
        pipe.hset(keys.state, mapping={"warehouse": warehouse, "shards": shards})
        await pipe.execute()
    return int(dropped)
