"""The self-audit names figures of the ledger that contradict each other."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.capping import Capped, opened_capped
from support.remembered import NOON, Clock
from support.restoring import PRICE, Stores, follow
from support.spending import limits
from support.stack import connected

from snapbid.base.redis_keys import ShardKeys
from snapbid.drain.audit import Auditor
from snapbid.ledger.admin.audits import Difference
from snapbid.ledger.bids import persons
from snapbid.ledger.bids.records import WIN
from snapbid.ledger.budgets.limits import Limits
from snapbid.ledger.scripts import script
from snapbid.redisclient.connection import Connections, connect

BUDGET = 1_000_000  # micro-USD
HOUR = 3600
IN_ESCROW = Limits(1, None, BUDGET, None, in_escrow=True)
OF_ACCOUNT = ShardKeys(1)  # the shard of campaign 1's account, if there are two


@pytest.fixture
async def stores(stores: Stores) -> Stores:
    stores.shards = 2
    await stores.drain()
    return stores


async def audited(stores: Stores) -> list[Difference]:
    """Return the differences that one audit finds."""
    async with contextlib.aclosing(stores.client()) as client, connected(stores.dsn) as connection:
        return await Auditor(client, stores.shards, stores.clock).audit(connection)


async def test_grants_that_an_account_lost_are_named(stores: Stores) -> None:
    """As if another allocator had replaced the account with one that it had read before."""
    key = f"{OF_ACCOUNT.prefix}account:1"
    async with stores.ledger() as ledger, contextlib.aclosing(stores.client()) as client:
        assert await stores.sell(ledger, 5, IN_ESCROW, allocate=True) == 5
        assert await stores.sell(ledger, 5, IN_ESCROW, allocate=True) == 5
        await stores.allocate(IN_ESCROW)
        assert await audited(stores) == []
        before: Any = await client.get(key)
        segment, accounts = msgspec.json.decode(before)
        (granted, *rest), other = accounts["t"]
        lost = 3 * PRICE
        state = msgspec.json.encode([segment, {"t": [[granted - lost, *rest], other]}])
        await client.set(key, state)
        await stores.allocate(IN_ESCROW)
        for _ in range(2):
            assert await audited(stores) == [
                Difference("grants", "shard 1, granted to c-1", granted, granted - lost)
            ]
        assert 0 < await client.ttl(OF_ACCOUNT.discrepancies) <= HOUR


async def test_an_account_that_another_allocator_has_moved_on_is_no_difference(
    stores: Stores,
) -> None:
    """The other one's grants are known to the allowances, and its account not to the first."""
    async with contextlib.aclosing(stores.client()) as client:
        await stores.allocate(IN_ESCROW)
        account = script("account")
        state: Any = await client.get(f"{OF_ACCOUNT.prefix}account:1")
        replaced = await client.eval(
            account, 2, *OF_ACCOUNT.script_keys, HOUR, 1, state[:-1], "[]", 7, 5
        )
        assert replaced == [0]
        assert await client.hgetall(OF_ACCOUNT.discrepancies) == {}


@pytest.fixture
async def capped(stores: Stores, tmp_path: Path, clock: Clock) -> AsyncIterator[Capped]:
    spool = tmp_path / "capped"
    async with opened_capped(stores.url, spool, shards=stores.shards, clock=clock) as made:
        yield made


async def posted(stores: Stores, capped: Capped, number: int) -> None:
    """Leave the outcome of a capped bid in an outbox."""
    assert await capped.bid(number, limits(caps=((9, HOUR),))) == "k"
    assert await capped.settle(number, WIN) == "c"


async def test_entries_that_leave_an_outbox_undelivered_are_named(
    stores: Stores, capped: Capped
) -> None:
    numbers = capped.in_one_shard()
    async with contextlib.aclosing(stores.client()) as client:
        for _ in range(3):
            await posted(stores, capped, next(numbers))
        await capped.sweeper.sweep()
        assert await audited(stores) == []
        await posted(stores, capped, next(numbers))
        await capped.sweeper.sweep()  # takes out the three, and delivers this one
        await posted(stores, capped, next(numbers))
        (outbox,) = [key async for key in client.scan_iter("{sb0}:o:*")]
        await client.spop(outbox)
        for _ in range(3):
            await capped.sweeper.sweep()
            (found,) = await audited(stores)
            shard = outbox.decode()[-1]
            assert found.comparison == "outboxes"
            assert found.what == f"shard 0, for users of shard {shard}"
            assert found.first == found.second + 1
        await client.delete(ShardKeys(0).discrepancies)
        for _ in range(2):
            await posted(stores, capped, next(numbers))
            await capped.sweeper.sweep()
        assert await audited(stores) == []


async def test_entries_of_forgotten_users_are_not_missed(stores: Stores, capped: Capped) -> None:
    await posted(stores, capped, next(capped.in_one_shard()))
    await persons.erase(Connections(stores.url), stores.shards, ["u"])
    async with contextlib.aclosing(stores.client()) as client:
        assert [key async for key in client.scan_iter("{sb*}:o:*")] == []
    await capped.sweeper.sweep()
    assert await audited(stores) == []


OF_ONE = ShardKeys(0)


async def beat(
    client: Any, number: int = 0, primary: bytes = b"", at_ms: int = 0
) -> tuple[int, bytes, int]:
    """Send a heartbeat after an acknowledged one; return its number, the primary and when."""
    args = [int(NOON * 1000), HOUR, "me", "", number, primary, at_ms]
    reply = await client.eval(script("heartbeat", shards=2), 2, *OF_ONE.script_keys, *args)
    return reply[5], reply[6], int(reply[0])


async def test_heartbeats_that_a_promoted_replica_lacks_are_named(stores: Stores) -> None:
    async with contextlib.aclosing(stores.client()) as primary:
        before = await beat(primary)
        with stores.replica() as replica:
            last = [await beat(primary, *before) for _ in range(3)][-1]
            assert last[0] == before[0] + 3
            assert await primary.exists(OF_ONE.discrepancies) == 0
            async with contextlib.aclosing(connect(replica.url)) as promoted:
                await beat(promoted, *before)  # of a process that has lost nothing
                assert await promoted.exists(OF_ONE.discrepancies) == 0
                await beat(promoted, *last[:2], 1)  # acknowledged before this server was started
                assert await promoted.exists(OF_ONE.discrepancies) == 0
                await beat(promoted, *last)
            follow(stores.redis, replica)
        assert await audited(stores) == [
            Difference("heartbeats", "shard 0, acknowledged", last[0], before[0] + 2)
        ]


async def test_heartbeats_that_a_restored_copy_lacks_are_no_difference(stores: Stores) -> None:
    """The operator knows that it is older."""
    async with contextlib.aclosing(stores.client()) as client:
        await beat(client)
    copy = stores.copy_ledger()
    for restore in (stores.restore_ledger, None):
        async with contextlib.aclosing(stores.client()) as client:
            last = [await beat(client) for _ in range(4)][-1]
        if restore is not None:
            restore(copy)
        else:
            with stores.replicated() as put_back:
                async with contextlib.aclosing(stores.client()) as client:
                    last = await beat(client, *last)
                put_back()
        async with contextlib.aclosing(stores.client()) as client:
            assert (await beat(client, *last))[0] <= last[0]
            assert await client.exists(OF_ONE.discrepancies) == 0
