"""What a move of the ledger takes for carried by the drain."""

import asyncio
import time
from pathlib import Path

import pytest
from support.moved import draining
from support.restoring import Stores

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.admin import moving
from snapbid.ledger.admin.moving import LedgerPlace
from snapbid.redisclient.connection import connect

LACKS = "the warehouse lacks counts of the ledger before the move"


async def test_counters_between_two_rounds_of_the_drain_are_not_carried(fresh_redis: str) -> None:
    """It takes them, and puts those back that the warehouse does not know."""
    keys, redis = ShardKeys(0), connect(fresh_redis)
    put_back = "redis.call('SADD', KEYS[1], 'a') redis.call('DEL', KEYS[2])"
    await redis.sadd(keys.changed, "a")

    async def drain() -> None:
        for _ in range(300):
            await redis.rename(keys.changed, keys.taken)
            await redis.eval(put_back, 2, keys.changed, keys.taken)

    async def look() -> set[int]:
        return {await moving._changed(redis, keys) for _ in range(300)}

    _, found = await asyncio.gather(drain(), look())
    await redis.aclose()
    assert found == {1}


@pytest.mark.parametrize("shards", [1, 2])
async def test_a_warehouse_that_is_older_than_the_move_is_named(
    stores: Stores, tmp_path: Path, caplog: pytest.LogCaptureFixture, shards: int
) -> None:
    """A standby lacks what was counted just before, and only the old ledger still has it.

    Seen: it showed 2 wins of 9, and nothing was logged.
    """
    stores.clock.now, stores.shards = time.time(), shards
    old = LedgerPlace(stores.url, shards)
    await stores.sell_and_drain(2)
    standby = stores.copy_warehouse()
    await stores.sell_and_drain(7)
    async with draining(old, stores.dsn, tmp_path / "metrics"):
        await moving.move(old, LedgerPlace(f"{stores.redis.url}?db=1", 3), print)
    stores.redis_database, stores.shards = 1, 3
    await stores.sell_and_drain(1)
    assert LACKS not in caplog.text
    stores.restore_warehouse(standby)
    await stores.drain()
    assert (await stores.wins(), caplog.text.count(LACKS)) == (3, 1)

    for database, number in ((0, shards), (1, 3)):  # as PRODUCTION.md says
        stores.redis_database, stores.shards = database, number
        assert (await stores.command("ledger", "adopt")).returncode == 0
        await stores.drain(2)
    assert (await stores.wins(), await stores.bids()) == (10, 10)
    assert caplog.text.count(LACKS) == 1
