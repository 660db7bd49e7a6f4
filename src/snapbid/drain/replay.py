"""`snapbid events replay`: put dead letters back into a stream, for the drain to try again."""

from snapbid.base.redis_keys import ShardKeys
from snapbid.base.settings import Settings
from snapbid.queues import queue
from snapbid.redisclient.connection import Connections
from snapbid.warehouse import events
from snapbid.warehouse.unavailable import session

BATCH = 200


async def replay(settings: Settings) -> int:
    """Replay all dead letters, oldest first; return how many.

    Letters are removed in a transaction that commits once Redis has them. A crash in between leaves
    them in both stores. That is harmless, since the warehouse stores each event id only once.
    Raises the stores' errors.
    """
    assert settings.redis_url is not None
    assert settings.database_url is not None
    stores = Connections(settings.redis_url, settings.redis_replicas)
    redis, keys = stores.client(), ShardKeys(0)
    count = 0
    try:
        async with session(settings.database_url) as connection:
            newest = await events.newest_dead_letter(connection)
            while True:
                async with connection.transaction():
                    payloads = await events.take_dead_letters(connection, newest, BATCH)
                    if payloads:
                        await redis.execute_command(*queue.add(payloads, keys.events))  # type: ignore[no-untyped-call]
                        await stores.replicate(redis, keys)
                if not payloads:
                    return count
                count += len(payloads)
    finally:
        await redis.aclose()
