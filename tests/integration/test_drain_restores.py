"""A ledger or a warehouse that is lost, restored from a copy, or replaced (contract 5.3)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio.client import PubSub
from support.draining import DAY_S
from support.remembered import PATIENCE_S, until
from support.restoring import Stores
from support.spending import limits
from support.stack import Stack, run

from snapbid.base.redis_keys import ShardKeys
from snapbid.drain.counters import NOTHING, Reading, ShardCounters
from snapbid.drain.fence import UnrelatedStoresError
from snapbid.drain.tidy import KEPT_DAYS
from snapbid.ledger.budgets.limits import Limits

BUDGET = 200_000  # micro-USD: ten bids

Earlier = Callable[[Stores], AbstractContextManager[Callable[[], None]]]
"""What puts the ledger's data of that moment back."""


@pytest.mark.parametrize("earlier", [Stores.emptied, Stores.copied, Stores.replicated])
@pytest.mark.parametrize(
    "own", [limits(1, total=BUDGET), limits(1, daily=BUDGET)], ids=["total", "daily"]
)
async def test_what_was_spent_stays_spent(stores: Stores, earlier: Earlier, own: Limits) -> None:
    """Seen: a total budget of 0.20 USD was spent twice."""
    await stores.drain()
    assert await stores.sell_and_drain(2, own) == 2
    with earlier(stores) as put_back:
        await stores.drain()
        assert await stores.sell_and_drain(4, own) == 4
        put_back()
    async with stores.ledger() as ledger:
        assert await stores.sell(ledger, 1, own) == 0  # nobody knows yet what was spent
        await stores.drain()
        assert await stores.sell(ledger, 12, own) == 4
        await stores.drain()
    assert await stores.wins() == 10


class TestLostLedger:
    @pytest.mark.parametrize("is_older_copy", [False, True])
    async def test_what_was_spent_stays_spent_in_several_shards(
        self, stores: Stores, is_older_copy: bool
    ) -> None:
        """Of a budget in escrow: what a shard was granted counts as spent there first."""
        stores.shards = 3
        own = Limits(1, None, BUDGET * 3, None, in_escrow=True)
        await stores.drain()
        async with stores.ledger() as ledger:
            await stores.allocate(own)
            sold = await stores.sell(ledger, 4, own)
            assert sold == 4
        copy = stores.copy_ledger() if is_older_copy else None
        if is_older_copy:
            await stores.drain()
        async with stores.ledger() as ledger:
            sold += await stores.sell(ledger, 100, own, allocate=True, most=20)
        await stores.drain()
        assert sold == 24
        stores.restore_ledger(copy)
        async with stores.ledger() as ledger:
            assert await stores.sell(ledger, 6, own) == 0
            await stores.drain()
            sold += await stores.sell(ledger, 100, own, allocate=True)
            assert sold == 30
            await stores.drain()
        assert await stores.wins() == sold

    async def test_another_day_has_another_budget(self, stores: Stores) -> None:
        own = limits(1, daily=BUDGET)
        await stores.drain()
        assert await stores.sell_and_drain(12, own) == 10
        stores.restore_ledger(None)
        stores.clock.now += DAY_S
        await stores.drain()
        async with stores.ledger() as ledger:
            assert await stores.sell(ledger, 12, own) == 10

    async def test_it_is_counted_once_however_often_it_is_lost(self, stores: Stores) -> None:
        own = limits(1, total=BUDGET)
        for sold in (3, 4):
            await stores.drain()
            assert await stores.sell_and_drain(sold, own) == sold
            stores.restore_ledger(None)
        await stores.drain(2)
        async with stores.ledger() as ledger:
            assert await stores.sell(ledger, 12, own) == 3


class TestRestart:
    async def test_budgets_go_on(self, stores: Stores) -> None:
        own = limits(1, total=BUDGET, daily=BUDGET)
        await stores.drain()
        async with stores.ledger() as ledger:
            assert await stores.sell(ledger, 4, own) == 4
            await stores.drain()
            assert await stores.sell(ledger, 2, own) == 2
        stores.restart_ledger()
        async with stores.ledger() as ledger:
            assert await stores.sell(ledger, 1, own) == 0
            await stores.drain()
            assert await stores.sell(ledger, 12, own) == 4
            await stores.drain()
        assert await stores.wins() == 10

    async def test_bids_rolled_back_afterwards_are_rolled_back(self, stores: Stores) -> None:
        async with stores.ledger() as ledger:
            await stores.sell(ledger, 5)
            await stores.drain()
        stores.restart_ledger()
        await stores.sell_and_drain(2)
        assert (await stores.wins(), await stores.bids()) == (7, 7)


class TestEarlierLedger:
    @pytest.mark.parametrize("earlier", [Stores.copied, Stores.replicated])
    @pytest.mark.parametrize("is_drained", [True, False])
    async def test_figures_never_go_down(
        self, stores: Stores, earlier: Earlier, is_drained: bool
    ) -> None:
        """However often it is put back. Seen: 45 wins were acknowledged, and the warehouse went
        from 40 down to 25.
        """
        async with stores.ledger() as ledger:
            await stores.sell(ledger, 25)
        if is_drained:
            await stores.drain()
        with earlier(stores) as put_back:
            for count, total in ((15, 40), (10, 50)):
                await stores.sell_and_drain(count)
                assert await stores.wins() == total
                put_back()
        await stores.sell_and_drain(5)
        assert (await stores.wins(), await stores.bids()) == (55, 55)

    async def test_a_copy_of_days_that_are_over(self, stores: Stores) -> None:
        async with stores.ledger() as ledger:
            await stores.sell(ledger, 3)
        copy = stores.copy_ledger()
        await stores.drain()
        stores.clock.now += 5 * DAY_S
        await stores.drain()
        stores.restore_ledger(copy)
        await stores.drain()
        await stores.sell_and_drain(2)
        assert await stores.wins() == 5

    async def test_it_is_named(self, stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
        await stores.sell_and_drain(1)
        copy = stores.copy_ledger()
        await stores.drain()
        assert "ends with batch" not in caplog.text
        await stores.sell_and_drain(1)
        stores.restore_ledger(copy)
        await stores.drain(2)
        assert caplog.text.count("the ledger's data ends with batch") == 1


class TestReplacedLedger:
    """A Redis that goes on running gets other data."""

    async def test_running_programs_notice(self, stores: Stores) -> None:
        own = limits(1, total=BUDGET)
        async with stores.ledger() as ledger, stores.draining() as drain:
            await drain()
            assert await stores.sell(ledger, 2, own) == 2
            await drain()
            with stores.replicated() as put_back:
                assert await stores.sell(ledger, 5, own) == 5
                await drain()
                put_back()
            assert await stores.sell(ledger, 1, own) == 0
            await stores.sell(ledger, 5, campaign=2)
            await drain()
            assert await stores.sell(ledger, 12, own) == 3
            await drain()
        assert (await stores.wins(), await stores.wins("c-2"), await stores.bids()) == (10, 5, 15)

    async def test_a_primary_that_forgets_whom_it_replicated_goes_on(self, stores: Stores) -> None:
        """Redis does so after `repl-backlog-ttl` without a replica; its data is the same."""
        own, keys = limits(1, total=BUDGET), ShardKeys(0)
        async with contextlib.aclosing(stores.client()) as client:
            await stores.drain()
            with stores.replicated() as put_back:
                put_back()
            await stores.drain(2)
            segment = await client.hget(keys.state, "segment")
            async with stores.ledger() as ledger:
                assert await stores.sell(ledger, 2, own) == 2
                assert await client.hget(keys.state, "origin") != b"0" * 40
                await client.config_set("repl-backlog-ttl", 1)
                async with asyncio.timeout(PATIENCE_S):
                    while (await client.info("replication"))["master_replid2"] != 0:
                        await asyncio.sleep(0.05)
                assert await stores.sell(ledger, 2, own) == 2
            assert await client.hget(keys.state, "segment") == segment
            assert await client.hget(keys.state, "origin") == b"0" * 40

    async def test_data_that_was_written_back_key_by_key(self, stores: Stores) -> None:
        """Redis does not know that; the drain does, from then on."""
        async with stores.ledger() as ledger, stores.draining() as drain:
            await stores.sell(ledger, 25)
            await drain()
            client = stores.client()
            keys: Any = await client.keys()
            copy: list[Any] = [(key, await client.dump(key)) for key in keys]
            await stores.sell(ledger, 15)
            await drain()
            for key, value in copy:
                await client.restore(key, 0, value, replace=True)
            await client.aclose()
            await drain()
            assert (await stores.wins(), await stores.bids()) == (40, 40)
            await stores.sell(ledger, 5)
            await drain()
        assert (await stores.wins(), await stores.bids()) == (45, 45)


class TestOlderWarehouse:
    async def test_it_has_less_than_the_ledger_has_read(self, stores: Stores) -> None:
        """Seen: the ledger went back, nothing was counted, and the warehouse went back to a moment
        in between; the drain began anew for ever."""
        await stores.sell_and_drain(1)
        older = stores.copy_ledger()
        backup = ""
        for count in (1, 2, 4):
            await stores.sell_and_drain(count)
            backup = backup or stores.copy_warehouse()
        assert await stores.wins() == 8
        stores.restore_ledger(older)
        await stores.drain()
        stores.restore_warehouse(backup)
        async with stores.ledger() as ledger:
            await stores.sell(ledger, 5)
        await stores.drain(2)
        assert (await stores.wins(), await stores.bids()) == (7, 7)

    @pytest.mark.parametrize("absorbed", [1, 2, 3])
    async def test_it_has_a_part_of_a_round(
        self, stores: Stores, absorbed: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Seen: a standby two batches behind was promoted amid a round of several."""
        monkeypatch.setattr("snapbid.drain.counters.BATCH", 1)
        async with stores.ledger() as ledger:
            for campaign in (1, 2):
                await stores.sell(ledger, 3, campaign=campaign)
            await stores.lose_after(absorbed)
            backup = stores.copy_warehouse()
            await stores.lose_after(absorbed + 3)
            stores.restore_warehouse(backup)
            await stores.sell(ledger, 1)
            await stores.drain(2)
        assert (await stores.wins(), await stores.wins("c-2"), await stores.bids()) == (4, 3, 7)

    async def test_it_goes_back_and_then_to_what_it_had_been(self, stores: Stores) -> None:
        """Batches of the same number may have held something else."""
        async with stores.ledger() as ledger:
            await stores.sell(ledger, 1)
            await stores.drain()
            before = stores.copy_warehouse()
            await stores.sell(ledger, 2)
            await stores.drain()
            later = stores.copy_warehouse()
            stores.restore_warehouse(before)
            await stores.sell(ledger, 4)
            await stores.drain()
            assert await stores.wins() == 7
            stores.restore_warehouse(later)
            await stores.drain(2)
        assert (await stores.wins(), await stores.bids()) == (7, 7)

    async def test_both_go_back_to_different_moments_and_forward_again(
        self, stores: Stores
    ) -> None:
        """What the ledger has counted since then is not in the later backup."""
        await stores.sell_and_drain(1)
        older = stores.copy_ledger()
        for count in (2, 4):
            await stores.sell_and_drain(count)
        later = stores.copy_warehouse()
        stores.restore_ledger(older)
        for count in (8, 16):
            await stores.sell_and_drain(count)
        assert await stores.wins() == 31
        stores.restore_warehouse(later)
        await stores.drain(2)
        assert (await stores.wins(), await stores.bids()) == (31, 31)

    @pytest.mark.parametrize("earlier", [Stores.copied, Stores.replicated])
    async def test_a_removed_day_that_comes_back_adds_nothing(
        self, stores: Stores, earlier: Earlier
    ) -> None:
        """Nothing shows that the ledger is older: no batch was read since the copy.

        Seen: 3 of 4 wins counted twice, on a day that was closed.
        """
        await stores.sell_and_drain(3)
        with earlier(stores) as put_back:
            stores.clock.now += KEPT_DAYS * DAY_S
            await stores.drain()  # removes the day
            put_back()
            await stores.sell_and_drain(2)
            backup = stores.copy_warehouse()
            await stores.sell_and_drain(1)
            stores.restore_warehouse(backup)
            await stores.drain(2)
        assert (await stores.wins(), await stores.bids()) == (6, 6)

    async def test_it_catches_up(self, stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
        async with stores.ledger() as ledger:
            await stores.sell(ledger, 3)
            await stores.drain()
            copy = stores.copy_warehouse()
            await stores.sell(ledger, 4, campaign=2)
            await stores.drain()
            stores.restore_warehouse(copy)
            assert (await stores.wins(), await stores.wins("c-2")) == (3, 0)
            await stores.drain(2)
            assert (await stores.wins(), await stores.wins("c-2")) == (3, 4)
        assert caplog.text.count("the warehouse is older than the ledger") == 1

    async def test_no_campaign_inherits_what_was_not_drained(self, stores: Stores) -> None:
        """Seen: the backup had all that was drained, but not the campaign that bid since."""
        await stores.drain()
        backup = stores.copy_warehouse()
        lost = await stores.add_campaign("lost")
        await stores.drain()
        async with stores.ledger() as ledger:
            await stores.sell(ledger, 3, campaign=lost)
        stores.restore_warehouse(backup)
        assert await stores.add_campaign("later") != lost
        await stores.drain(2)
        assert await stores.wins("later") == 0

    async def test_a_campaign_bids_before_the_drain_has_seen_the_backup(
        self, stores: Stores
    ) -> None:
        """Seen: it had the number of one that was lost, and so that one's wins and budget."""
        await stores.drain()
        backup = stores.copy_warehouse()
        lost = await stores.add_campaign("lost")
        async with stores.ledger() as ledger:
            await stores.sell(ledger, 4, limits(lost, total=BUDGET))
            stores.restore_warehouse(backup)
            hasty = await stores.add_campaign("hasty")
            await stores.drain(2)
            assert await stores.sell(ledger, 12, limits(hasty, total=BUDGET)) == 10
            await stores.drain()
        assert await stores.wins("hasty") == 10

    async def test_a_lost_campaign_that_is_added_again_has_its_counts(self, stores: Stores) -> None:
        await stores.drain()
        backup = stores.copy_warehouse()
        lost = await stores.add_campaign("lost")
        async with stores.ledger() as ledger:
            await stores.sell(ledger, 4, limits(lost, total=BUDGET))
            await stores.drain()
            stores.restore_warehouse(backup)
            await stores.drain()
            assert await stores.add_campaign("lost") == lost
            await stores.drain()
            assert await stores.wins("lost") == 4
            assert await stores.sell(ledger, 12, limits(lost, total=BUDGET)) == 6


async def test_a_running_drain_absorbs_again_what_a_backup_lacks(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    """Seen: restored in one transaction, so that no statement of the drain failed."""
    async with stores.ledger() as ledger, stores.draining() as drain:
        await stores.sell(ledger, 3)
        await drain()
        dump = stores.dump_warehouse()
        await stores.sell(ledger, 4)
        await drain()
        stores.restore_in_place(dump)
        assert await stores.wins() == 3
        await drain()
        assert (await stores.wins(), await stores.bids()) == (7, 7)
    assert caplog.text.count("the warehouse is older than the ledger") == 1


@pytest.mark.parametrize("more", [0, 2], ids=["nothing new", "more to drain"])
async def test_a_drain_at_work_absorbs_again_what_a_backup_lacks(
    stores: Stores, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had compared the stores a moment before."""
    async with stores.ledger() as ledger, stores.draining() as drain:
        await stores.sell(ledger, 3)
        await drain()
        dump = stores.dump_warehouse()
        await stores.sell(ledger, 4, campaign=2)
        await drain()
        read = ShardCounters.read

        async def restore_and_read(
            shard: ShardCounters, batch: int, after: Reading = NOTHING
        ) -> Reading:
            monkeypatch.undo()
            reading = await read(shard, batch, after)
            stores.restore_in_place(dump)
            return reading

        monkeypatch.setattr(ShardCounters, "read", restore_and_read)
        await stores.sell(ledger, more)
        await drain()
        await drain()
        assert (await stores.wins(), await stores.wins("c-2")) == (3 + more, 4)


class TestAnotherLedger:
    """The warehouse knows its own: a former one is refused, a new one is taken over."""

    async def test_a_former_one_spends_no_budget_again(self, stores: Stores) -> None:
        """Seen: 70 wins of a budget of 50, with a copy that was put back after a loss."""
        own = limits(1, total=BUDGET)
        await stores.drain()
        assert await stores.sell_and_drain(4, own) == 4
        copy = stores.copy_ledger()
        stores.restore_ledger(None)
        await stores.drain()
        assert await stores.sell_and_drain(3, own) == 3
        stores.restore_ledger(copy)
        with pytest.raises(UnrelatedStoresError, match="an earlier one of this warehouse"):
            await stores.drain()
        async with stores.ledger() as ledger:
            await stores.own(ledger)
            assert ledger.is_foreign
            assert ledger.remember(b"a", 1, [(b"1", 1, 1, None)], None, 1.0) is None
            done = await stores.command("ledger", "adopt")
            assert "belongs to this warehouse again" in done.stdout
            await stores.own(ledger)
            await until(lambda: ledger.connected)
            assert await stores.sell(ledger, 1, own) == 0
            await stores.drain()
            assert await stores.sell(ledger, 12, own) == 3
            await stores.drain()
        assert (await stores.wins(), await stores.bids()) == (10, 10)

    @pytest.mark.parametrize("shards", [1, 2])
    async def test_another_database_of_the_same_redis(self, stores: Stores, shards: int) -> None:
        """Seen: 70 wins of a budget of 50, with database 1, and then 0 again."""
        stores.shards = shards
        for number in (0, 1):
            stores.redis_database = number
            await stores.drain()
            await stores.sell_and_drain(3)
        stores.redis_database = 0
        for _ in range(2):
            with pytest.raises(UnrelatedStoresError, match="snapbid ledger adopt"):
                await stores.drain()
        assert await stores.wins() == 6

    async def test_a_new_one_beside_a_drain_that_is_at_work(self, stores: Stores) -> None:
        """Seen: one of two machines named another database, and its bids were never counted."""
        async with stores.ledger() as ledger:
            await stores.sell(ledger, 3)
        async with stores.draining() as drain:
            await drain()
            stores.redis_database = 1
            async with stores.ledger() as ledger:
                await stores.own(ledger)
                assert ledger.is_foreign
            with pytest.raises(UnrelatedStoresError, match="a drain carries another one"):
                await stores.drain()
            await drain()

    async def test_a_new_one_is_taken_over(
        self, stores: Stores, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Emptied under everybody who uses it."""
        async with stores.ledger() as ledger, stores.draining() as drain:
            await drain()
            await stores.own(ledger)
            await stores.sell(ledger, 3)
            await drain()
            client = stores.client()
            await client.flushall()
            await client.aclose()
            await until(lambda: ledger.is_foreign)
            await drain()
            await stores.own(ledger)
            await until(lambda: ledger.connected)
            await stores.sell(ledger, 2)
            await drain()
        assert (await stores.wins(), await stores.bids()) == (5, 5)
        assert caplog.text.count("it belongs to this warehouse from now on") == 1

    async def test_a_shard_whose_data_was_lost(self, stores: Stores) -> None:
        stores.shards = 3
        async with stores.ledger() as ledger, stores.draining() as drain:
            await stores.sell(ledger, 9)
            await drain()
            client = stores.client()
            await client.delete(*await client.keys(f"{ShardKeys(1).prefix}*"))
            await client.aclose()
            await drain()
            await stores.own(ledger)
            await until(lambda: ledger.connected)
            await stores.sell(ledger, 9)
            await drain()
        assert (await stores.wins(), await stores.bids()) == (18, 18)

    @pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
    async def test_another_number_of_shards(self, stores: Stores, before: int, after: int) -> None:
        """Seen: 93 wins of a budget of 60, named only as notices that may be unknown."""
        stores.shards = before
        await stores.sell_and_drain(3)
        stores.shards = after
        why = f"SNAPBID_LEDGER_SHARDS is {after}, and the ledger has {before}"
        with pytest.raises(UnrelatedStoresError, match=why):
            await stores.drain()

    @pytest.mark.long
    async def test_programs_refuse_a_former_one_by_name(self, stores: Stores) -> None:
        for number in (0, 1):
            stores.redis_database = number
            await stores.drain()
            await stores.sell_and_drain(1)
        stores.redis_database = 0
        for program in (("drain",), ("serve",), ("forget", "--id", "u"), ("events", "replay")):
            done = await stores.command(*program)
            assert done.returncode != 0, program
            assert "an earlier one of this warehouse" in done.stderr


class TestAnotherWarehouse:
    async def test_no_campaign_inherits_anothers_counts(self, stores: Stores) -> None:
        """Seen: a campaign with 1 win showed 21, 20 of them another one's."""
        empty = stores.copy_warehouse()
        await replace_identity(stores, empty)
        async with stores.ledger() as ledger:
            await stores.sell(ledger, 20)
            await stores.drain()
        async with stores.ledger() as ledger:
            await stores.sell(ledger, 5)
        stores.restore_warehouse(empty)
        for _ in range(2):
            with pytest.raises(UnrelatedStoresError, match="snapbid ledger adopt"):
                await stores.drain()
        assert await stores.wins() == 0

    async def test_a_ledger_that_no_drain_has_seen_belongs_to_its_servers(
        self, stores: Stores
    ) -> None:
        """Seen: a new warehouse had the bids that were made for the old one."""
        async with stores.ledger() as ledger:
            ledger.belong_to("11111111-1111-1111-1111-111111111111")
            stores.restart_ledger()
            await until(lambda: not ledger.connected)
            await until(lambda: ledger.connected)
            await stores.sell(ledger, 1)
        with pytest.raises(UnrelatedStoresError, match="11111111-"):
            await stores.drain()

    async def test_a_ledger_has_an_epoch_while_it_is_adopted(self, stores: Stores) -> None:
        """Seen: a heartbeat in between found none, and logged an unexpected error."""
        await stores.sell_and_drain(1)
        await stores.fetch("update warehouse_identity set id = gen_random_uuid() returning 1")
        client = stores.client()
        await client.config_set("notify-keyspace-events", "KA")
        async with client.pubsub() as events:
            await events.subscribe(f"__keyspace@0__:{ShardKeys(0).epoch}")
            await events.get_message(timeout=10)  # that it is subscribed
            done = await stores.command("ledger", "adopt")
            assert done.returncode == 0
            seen = [message["data"] async for message in _messages(events)]
        await client.aclose()
        assert seen == [b"set"]

    async def test_nothing_is_remembered_until_it_is_adopted(
        self, stores: Stores, tmp_path: Path
    ) -> None:
        own = limits(1, total=BUDGET)
        await stores.drain()
        async with stores.ledger() as ledger:
            assert await stores.sell(ledger, 8, own) == 8
        await stores.fetch("update warehouse_identity set id = gen_random_uuid() returning 1")
        await stores.fetch("delete from campaign_daily returning 1")
        warehouse = str(await stores.fetch("select id from warehouse_identity"))
        environ = {"SNAPBID_REDIS_URL": stores.redis.url, "SNAPBID_DATABASE_URL": stores.dsn}
        async with stores.ledger() as ledger:
            ledger.belong_to(warehouse)
            assert ledger.is_foreign
            assert not ledger.connected
            assert ledger.remember(b"a", 1, [(b"1", 1, 1, None)], None, 1.0) is None
            replicated = environ | {"SNAPBID_REDIS_REPLICAS": "1"}
            done = await asyncio.to_thread(run, environ, "ledger", "adopt")
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout.startswith("the ledger belongs to this warehouse now")
            done = await asyncio.to_thread(run, replicated, "ledger", "adopt")
            assert (done.returncode, done.stdout) == (1, "")
            assert "0 of 1 replicas" in done.stderr
            await until(lambda: ledger.connected)
            await stores.drain()
            assert await stores.sell(ledger, 12, own) == 10
            await stores.drain()
        assert await stores.wins() == 10
        done = await asyncio.to_thread(run, environ, "ledger", "adopt")
        assert done.stdout == "the ledger already belongs to this warehouse\n"

    async def test_a_server_names_it(self, stores: Stores, tmp_path: Path) -> None:
        await stores.drain()
        await stores.fetch("update warehouse_identity set id = gen_random_uuid() returning 1")
        server = Stack(
            {
                "SNAPBID_HOME": str(tmp_path / "home"),
                "SNAPBID_DATABASE_URL": stores.dsn,
                "SNAPBID_REDIS_URL": stores.redis.url,
            }
        )
        with contextlib.closing(server):
            server.launch()
            await until(lambda: b'["a ledger of this warehouse"]' in server.get("/readyz")[1])


async def replace_identity(stores: Stores, copy: str) -> None:
    """Make a copied database another warehouse."""
    dsn = stores.dsn
    stores.dsn = dsn.replace(dsn.split("?")[0], f"postgresql:///{copy}")
    await stores.fetch("update warehouse_identity set id = gen_random_uuid() returning 1")
    stores.dsn = dsn


async def _messages(events: PubSub) -> AsyncIterator[dict[str, Any]]:
    """Yield what has been published by now."""
    while message := await events.get_message(timeout=0.1):
        yield message
