"""Budgets in escrow on a real cluster: each shard spends its allowance, none beyond the budget.

ESCROW_SEED repeats a run's order of bids.
"""

import asyncio
import contextlib
import os
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import RedisError
from support.cluster import Cluster, until
from support.remembered import PATIENCE_S, opened
from support.remembered import until as awaited
from support.spending import reserve

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import BidVerdict
from snapbid.ledger.budgets.allocator import Allocator, EscrowedBudget
from snapbid.ledger.budgets.budgets import Budgets
from snapbid.ledger.budgets.escrow import TOTAL
from snapbid.ledger.budgets.limits import Limits
from snapbid.redisclient.connection import Connections

SEED = int(os.environ.get("ESCROW_SEED") or random.SystemRandom().randrange(10**9))
SHARDS, PRICE, BIDS = 3, 1_000_000, 1_500
BUDGET = PRICE * BIDS  # nano-USD
OWN = EscrowedBudget(1, {TOTAL: BUDGET}, PRICE)


def confirm(cluster: Cluster) -> None:
    """Say what a drain would say: that budgets have what was spent."""
    for shard in range(SHARDS):
        keys = ShardKeys(shard)
        node = cluster.primary_of(keys.epoch)
        node.call("HSET", keys.state, "confirmed", node.call("HGET", keys.state, "segment"))


@pytest.fixture
async def ledger(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Ledger]:
    async with opened(cluster.url, tmp_path / "spool", shards=SHARDS, confirmed=False) as ledger:
        await asyncio.to_thread(confirm, cluster)
        yield ledger


class Lossy(Allocator):
    """A fifth of what it says is lost, or its answer is."""

    rng = random.Random(SEED)

    async def _exchange(self, *arguments: Any) -> Any:
        fate = self.rng.random()
        if fate < 0.1:
            raise RedisError("lost")
        answer = await super()._exchange(*arguments)
        if fate < 0.2:
            raise RedisError("its answer is lost")
        return answer


async def allocate(allocator: Allocator, limits: dict[str, int]) -> None:
    while True:
        with contextlib.suppress(RedisError, OSError):
            await allocator.balance([EscrowedBudget(1, limits, PRICE)])
        await asyncio.sleep(0.02)


async def test_a_budget_is_spent_over_shards_and_never_exceeded(
    cluster: Cluster, ledger: Ledger
) -> None:
    print(f"ESCROW_SEED={SEED}")
    day = str(int(time.time()) // 86_400)
    connections = [Connections(cluster.url) for _ in range(2)]
    allocators = [Lossy(own, SHARDS, time.time) for own in connections]
    limits = Limits(1, BUDGET // 1000, BUDGET // 1000, None, shards=1, in_escrow=True)
    tasks = [asyncio.create_task(allocate(own, {TOTAL: BUDGET, day: BUDGET})) for own in allocators]
    kept, killed, quiet_since = 0, False, time.monotonic()
    number = 0
    budgets, used = Budgets(allocators[0]._redis, SHARDS, time.time), 0
    while used < BUDGET * 0.999 or time.monotonic() - quiet_since < 4.0:
        assert time.monotonic() - quiet_since < PATIENCE_S
        auctions = [b"a-%d" % (number + offset) for offset in range(32)]
        number += len(auctions)
        verdicts = await asyncio.gather(*(tried(ledger, auction, limits) for auction in auctions))
        more = verdicts.count(BidVerdict.KEPT)
        if more:
            quiet_since = time.monotonic()
        else:
            await asyncio.sleep(0.02)
            with contextlib.suppress(RedisError, OSError):
                used = (await budgets.states([1]))[1].used
        kept += more
        assert kept <= BIDS
        if kept > BIDS // 3 and not killed:
            killed = True
            await lose_a_primary(cluster)
            await awaited(lambda: ledger.connected)
            await asyncio.to_thread(confirm, cluster)  # of the run that counts now
            quiet_since = time.monotonic()
    for task in tasks:
        task.cancel()
    used = (await budgets.states([1]))[1].used
    assert BUDGET * 0.999 <= used <= BUDGET
    assert kept * PRICE <= used  # a bid whose answer was lost may be held
    for allocator in allocators:
        await allocator.close()


async def lose_a_primary(cluster: Cluster) -> None:
    primary = await asyncio.to_thread(cluster.primary_of, ShardKeys(1).epoch)
    primary.kill()

    def is_replaced() -> bool:
        return cluster.primary_of(ShardKeys(1).epoch) is not primary

    await asyncio.to_thread(until, is_replaced, "another primary")
    primary.start()  # here: a process ends with the thread that started it


async def tried(ledger: Ledger, auction: bytes, limits: Limits) -> str:
    if not ledger.connected:
        return ""
    try:
        return await reserve(ledger, auction, (b"1", PRICE, limits))
    except AssertionError:  # the shard is unavailable
        return ""


class Overtaken(Allocator):
    """Another allocator makes a whole round between its look at the account and its own change."""

    other: Allocator | None = None

    async def _exchange(self, *arguments: Any) -> Any:
        other, self.other = self.other, None
        if other is not None:
            assert await other.balance([OWN]) == {1}
        return await super()._exchange(*arguments)


@pytest.mark.usefixtures("ledger")
async def test_an_allocator_that_was_overtaken_grants_nothing(cluster: Cluster) -> None:
    late = Overtaken(Connections(cluster.url), SHARDS, time.time)
    late.other = other = Allocator(Connections(cluster.url), SHARDS, time.time)
    assert not await late.balance([OWN])
    assert await late.balance([OWN]) == {1}
    for allocator in (late, other):
        await allocator.close()
