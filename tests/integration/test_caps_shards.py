"""Frequency caps over several shards: what carries them between shards may stop at any point."""

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.capping import PRICE, Capped, opened_capped, users_of
from support.remembered import NOON, Clock, keys, opened, until
from support.spending import limits, reserve, sent

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.bids import persons
from snapbid.ledger.bids.records import BILLING, LOSS, WIN, user_digest, user_shard
from snapbid.ledger.budgets.budgets import Budgets
from snapbid.ledger.caps.outbox import ENTRY_SIZE, OutboxSweeper
from snapbid.ledger.scripts import script
from snapbid.redisclient.connection import Connections, connect
from snapbid.redisclient.replicas import TooFewReplicasError

ONE = ShardKeys(1).prefix
SHARDS, HOUR = 3, 3600
CAP = limits(caps=((2, HOUR),))


@pytest.fixture
async def capped(fresh_redis: str, tmp_path: Path, clock: Clock) -> AsyncIterator[Capped]:
    async with opened_capped(fresh_redis, tmp_path / "spool", shards=SHARDS, clock=clock) as made:
        yield made


def outboxes(store: Any) -> list[bytes]:
    """All entries."""
    return [entry for key in keys(store, "{sb*}:o:*") for entry in store.smembers(key)]


async def test_wins_count_once_however_often_delivered(capped: Capped, store: Any) -> None:
    assert [await capped.bid(n, CAP) for n in range(2)] == ["k", "k"]
    assert [await capped.settle(0, kind) for kind in (WIN, WIN, BILLING)] == ["c", "d", "c"]
    assert len(outboxes(store)) == 2
    for _ in range(3):
        await capped.sweeper.sweep()
        capped.sweeper._delivered.clear()  # as one that ends before it takes them out
    await capped.notify(1, LOSS)
    assert [await capped.bid(n, CAP) for n in (2, 3)] == ["k", "c"]
    await capped.sweeper.sweep()
    assert not outboxes(store)


@pytest.mark.parametrize("seed", range(6))
async def test_entries_may_come_in_any_order_and_again(
    capped: Capped, store: Any, clock: Clock, seed: int
) -> None:
    rng = random.Random(seed)
    of, user = limits(caps=((20, HOUR),)), next(users_of(1, SHARDS))
    kinds = [[WIN], [BILLING], [LOSS], [WIN, BILLING], [BILLING, WIN], [WIN, LOSS], [LOSS, WIN]]
    for number, own in enumerate(kinds):
        assert await capped.bid(number, of, user) == "k"
        for kind in own:
            clock.now += 1.5
            assert await capped.settle(number, kind) == "c"
    entries = outboxes(store)
    assert {len(entry) for entry in entries} == {ENTRY_SIZE}
    deliver = store.register_script(script("deliver", simulated=True, shards=SHARDS))
    shuffled = rng.sample(entries * 2, 2 * len(entries))
    for entry in shuffled:
        deliver(keys=ShardKeys(1).script_keys, args=[int(clock.now * 1000), entry])
    (name,) = keys(store, f"{ONE}fc:*")
    times = sorted(score - NOON * 1000 for _, score in store.zrange(name, 0, -1, withscores=True))
    assert times == [1500, 3000, 7500, 9000, 12_000, 16_500]
    assert not keys(store, f"{ONE}fe:*")


async def test_rolled_back_bids_do_not_count(capped: Capped, store: Any) -> None:
    numbers = capped.in_one_shard()
    late, after = next(numbers), next(numbers)
    bids = [(b"1", 1, PRICE, CAP)]
    waiting = capped.ledger.remember(b"auction-%d" % late, 1, bids, "u", 10.0)
    assert waiting is not None
    await sent(capped.ledger)
    waiting.cancel()
    assert await reserve(capped.ledger, b"auction-%d" % after, (b"1", PRICE, None)) == "k"
    (forgotten,) = outboxes(store)
    win = b"\x01" + forgotten[1:]
    store.sadd(f"{{sb0}}:o:{user_shard(user_digest('u'), SHARDS)}", win)  # as a notice would have
    for _ in range(2):
        await capped.sweeper.sweep()
    assert not keys(store, "{sb*}:f[ce]:*")
    assert not outboxes(store)


async def test_without_the_users_shard_capped_campaigns_pause_and_no_others(
    capped: Capped, store: Any
) -> None:
    lost, there = next(users_of(1, SHARDS)), next(users_of(2, SHARDS))
    shard = capped.ledger._shards[1]
    auctions = (n for n in range(99) if capped.ledger.shard_of(b"auction-%d" % n) != 1)
    await shard.trips.close()
    assert await capped.bid(next(auctions), CAP, lost) == "a"
    assert await capped.bid(next(auctions), CAP, there) == "k"
    auction = b"auction-%d" % next(auctions)
    bids = [(b"1", PRICE, CAP), (b"2", PRICE, None), (b"3", PRICE, limits(2, total=PRICE))]
    assert await reserve(capped.ledger, auction, *bids, user=lost) == "akk"
    assert not keys(store, f"{ONE}fe:*")
    shard.open()
    await until(lambda: shard.connected)
    assert await capped.bid(next(auctions), CAP, lost) == "k"


async def test_undeliverable_entries_wait(
    capped: Capped, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = [next(users_of(shard, SHARDS)) for shard in range(SHARDS)]
    for number, user in enumerate(users):
        assert await capped.bid(number, CAP, user) == "k"
        assert await capped.settle(number, WIN) == "c"
    deliver = capped.sweeper._apply

    async def unavailable(keys: Any, args: Any) -> Any:
        if keys == ShardKeys(1).script_keys:
            raise ConnectionError
        return await deliver(keys=keys, args=args)

    with monkeypatch.context() as patched:
        patched.setattr(capped.sweeper, "_apply", unavailable)
        for _ in range(3):
            await capped.sweeper.sweep()
    assert [len(keys(store, f"{ShardKeys(n).prefix}fc:*")) for n in range(SHARDS)] == [1, 0, 1]
    assert len(outboxes(store)) == 1
    for _ in range(2):
        await capped.sweeper.sweep()
    assert [len(keys(store, f"{ShardKeys(n).prefix}fc:*")) for n in range(SHARDS)] == [1, 1, 1]
    assert not outboxes(store)


async def test_one_sweeper_has_an_outbox_until_it_ends(
    capped: Capped, store: Any, fresh_redis: str, clock: Clock
) -> None:
    other = OutboxSweeper(Connections(fresh_redis), SHARDS, clock, simulated=True)
    await capped.sweeper.sweep()
    assert await capped.bid(0, CAP) == "k"
    assert await capped.settle(0, WIN) == "c"
    await other.sweep()
    assert len(outboxes(store)) == 1
    for shard in range(SHARDS):
        store.delete(f"{ShardKeys(shard).prefix}o")  # its lease has ended
    for _ in range(2):
        await other.sweep()
    assert not outboxes(store)
    assert len(keys(store, "{sb*}:fc:*")) == 1
    await other.close()


async def test_no_hold_ends_before_its_win_is_delivered(
    fresh_redis: str, tmp_path: Path, store: Any
) -> None:
    """In real time: who has won waits for the sweeper, who has not loses the hold."""
    cap, shard = limits(caps=((1, HOUR),)), 1
    users = users_of(shard, SHARDS)
    won, lost = next(users), next(users)
    sweeper = OutboxSweeper(Connections(fresh_redis), SHARDS, lambda: 0.0)
    async with opened(fresh_redis, tmp_path, shards=SHARDS, hold_s=1) as ledger:
        made = Capped(ledger, sweeper)
        for _ in range(2):
            await sweeper.sweep()
        assert [await made.bid(0, cap, won), await made.bid(1, cap, lost)] == ["k", "k"]
        assert await made.settle(0, WIN) == "c"
        (last, _) = sorted(
            store.zscore(key, store.zrange(key, 0, 0)[0]) for key in keys(store, f"{ONE}fe:*")
        )

        def is_over() -> bool:
            settled = [int(of.split()[0]) for of in store.hvals(f"{ONE}spools")]
            return min(int(store.hget(f"{ONE}h", "clock")), *settled) > int(last) + 2000

        await until(is_over, "the holds' end")
        letters = [await made.bid(2, cap, won), await made.bid(3, cap, lost)]
        assert letters == ["c", "c"]  # neither is known to have ended
        for _ in range(3):
            await sweeper.sweep()
        assert [await made.bid(4, cap, won), await made.bid(5, cap, lost)] == ["c", "k"]
    await sweeper.close()


async def test_no_hold_ends_before_a_spooled_win_is_delivered(
    fresh_redis: str, tmp_path: Path, store: Any
) -> None:
    """A process has acknowledged a win that the auction's shard gets after the hold's end, and at
    once says that it has none left.
    """
    cap, shard = limits(caps=((1, HOUR),)), 1
    user = next(users_of(shard, SHARDS))
    sweeper = OutboxSweeper(Connections(fresh_redis), SHARDS, lambda: 0.0)
    async with opened(fresh_redis, tmp_path, shards=SHARDS, hold_s=1) as ledger:
        made = Capped(ledger, sweeper)
        assert await made.bid(0, cap, user) == "k"
        (key,) = keys(store, f"{ONE}fe:*")
        ends = int(store.zrange(key, 0, 0, withscores=True)[0][1])
        store.hset(f"{ONE}spools", "other", f"{ends - 500} {ends}")
        await until(lambda: int(store.hget(f"{ONE}h", "clock")) > ends + 2000, "the hold's end")
        for _ in range(3):
            await sweeper.sweep()
        assert await made.settle(0, WIN) == "c"
        store.hdel(f"{ONE}spools", "other")
        assert await made.bid(1, cap, user) == "c"
        await sweeper.sweep()
        assert await made.bid(2, cap, user) == "c"
    await sweeper.close()


async def test_dry_runs_query_both_shards(capped: Capped, fresh_redis: str, clock: Clock) -> None:
    redis = connect(fresh_redis)
    budgets = Budgets(redis, SHARDS, clock, simulated=True)
    poor = limits(2, total=1, caps=((2, HOUR),))
    assert [await capped.bid(n, CAP) for n in range(2)] == ["k", "k"]
    bids = [(b"1", 1, PRICE, CAP), (b"2", 2, PRICE, poor), (b"3", 9, PRICE, None)]
    assert await budgets.verdicts(b"a", bids, "u") == "cbk"
    assert await budgets.verdicts(b"a", bids, "another") == "kbk"
    assert await budgets.verdicts(b"a", bids, None) == "kbk"
    await redis.aclose()


async def test_a_user_is_erased(
    capped: Capped, store: Any, fresh_redis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persons, "UNDER_WAY_S", 0.0)
    users = users_of(1, SHARDS)
    gone, kept = next(users), next(users)
    for number, user in enumerate((gone, gone, gone, kept)):
        assert await capped.bid(number, limits(caps=((5, HOUR),)), user) == "k"
    await capped.notify(0, WIN)
    await capped.sweeper.sweep()  # takes it out
    for number in (1, 3):
        assert await capped.settle(number, WIN) == "c"
    connections = Connections(fresh_redis)
    counted = await persons.erase(connections, SHARDS, [gone], dry_run=True)
    assert (counted, len(outboxes(store))) == (persons.ErasedUsers(2, 3), 2)
    assert await persons.erase(connections, SHARDS, [gone]) == counted
    assert await capped.settle(2, WIN) == "c"
    for _ in range(2):
        await capped.sweeper.sweep()
    assert len(keys(store, "{sb*}:f[ce]:*")) == 1
    with pytest.raises(TooFewReplicasError):
        await persons.erase(Connections(fresh_redis, replicas=1), SHARDS, [])
    assert await persons.erase(connections, SHARDS, [gone, kept]) == persons.ErasedUsers(1, 1)
