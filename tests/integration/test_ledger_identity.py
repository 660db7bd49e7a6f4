"""Every answer's record is its own, whatever else is asked of the same pair (contract 5)."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.remembered import (
    NOON,
    Clock,
    at,
    counts,
    expected,
    keys,
    opened,
    remember,
    remembering,
    settle_all,
    until,
)
from support.spending import limits, reserve, state

from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import BILLING, LOSS, WIN

DAY = "2030-06-15"
PRICE = 2_000_000
SAMPLE_SEED = 7


async def late(
    ledger: Ledger, auction: bytes, imp: bytes, price: int, *, applied: bool = True, **more: Any
) -> None:
    """A bid that was answered 204: nobody waits for it any more when Redis has applied it."""
    campaign, of = more.get("campaign", 1), more.get("of")
    bid = [(imp, campaign, price, of)]
    done = ledger.remember(auction, 1, bid, more.get("user"), 10.0)
    assert done is not None
    (core,) = ledger._cores
    while applied and not core._answers.sent:
        await asyncio.sleep(0)
    done.cancel()


async def flushed(ledger: Ledger) -> None:
    """Wait until nothing is under way, and late bids are rolled back."""
    (core,), (shard,) = ledger._cores, ledger._shards
    while shard.trips.is_busy or core.waiting or core.unconfirmed:
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("applied", [True, False])
async def test_a_late_repeat_keeps_the_answered_bid(
    ledger: Ledger, store: Any, applied: bool
) -> None:
    for number in range(5):
        auction = b"%d" % number
        assert await remember(ledger, auction, (b"1", 1, 100))
        await late(ledger, auction, b"1", 999, campaign=2, applied=applied)
        await flushed(ledger)
        assert await settle_all(ledger, auction, b"1", 9) == "ccc"
        assert await settle_all(ledger, auction, b"1", 9) == "ddd"
    assert counts(store) == {DAY: expected(bids=5, wins=5, imps=5, price=100, losses={9: 5})}


async def test_only_the_answered_bid_of_a_batch_remains(ledger: Ledger, store: Any) -> None:
    """The order in the batch does not matter."""
    for number, order in enumerate(("al", "la", "lal", "all", "lla")):
        auction, waiting = b"%d" % number, []
        for letter in order:
            price = 100 if letter == "a" else 999
            campaign = 1 if letter == "a" else 2
            done = remembering(ledger, auction, (b"1", campaign, price))
            assert done is not None
            waiting.append(done)
        (core,) = ledger._cores
        while not core._answers.sent:
            await asyncio.sleep(0)
        for letter, done in zip(order, waiting, strict=True):
            if letter == "l":
                done.cancel()
        assert [await waiting[order.index("a")]] == ["k"]
        await flushed(ledger)
        assert await ledger.settle(WIN, auction, b"1") == "c"
    assert counts(store) == {DAY: expected(bids=5, wins=5, price=100)}


async def test_two_workers_of_which_one_is_late(
    fresh_redis: str, tmp_path: Path, store: Any
) -> None:
    """The retry's 200 comes from another worker, in the same second as the late 204."""
    clock, rng = Clock(NOON), random.Random(SAMPLE_SEED)
    async with (
        opened(fresh_redis, tmp_path / "a", clock=clock) as first,
        opened(fresh_redis, tmp_path / "b", clock=clock) as second,
    ):
        for number in range(30):
            auction = b"%d" % number
            calls = [late(first, auction, b"1", 999, campaign=2), bid(second, auction)]
            rng.shuffle(calls)
            await asyncio.gather(*calls)
            await flushed(first)
            assert await second.settle(WIN, auction, b"1") == "c"
    assert counts(store) == {DAY: expected(bids=30, wins=30, price=100)}


async def bid(ledger: Ledger, auction: bytes) -> None:
    assert await remember(ledger, auction, (b"1", 1, 100))


async def test_a_late_repeat_in_another_time_bucket(
    ledger: Ledger, store: Any, clock: Clock
) -> None:
    assert await remember(ledger, b"a", (b"1", 1, 100))
    clock.now += 3000
    await late(ledger, b"a", b"1", 999, campaign=2)
    await flushed(ledger)
    assert await ledger.settle(WIN, b"a", b"1") == "c"
    assert counts(store) == {DAY: expected(bids=1, wins=1, price=100)}


@contextlib.asynccontextmanager
async def unconfirmed(
    ledger: Ledger, of: Any, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[None]:
    """A late bid of campaign 2 for the auction `a`, rolled back only after the block."""
    (core,) = ledger._cores
    await late(ledger, b"a", b"1", 999, campaign=2, of=of, user="u")
    with monkeypatch.context() as patch:
        patch.setattr(
            core, "next_batch", lambda now: []
        )  # before the loop sees that it was cancelled
        await until(lambda: core._to_roll_back)
        yield


@pytest.mark.parametrize("budget", [None, limits(2, total=100_000, caps=((5, 3600),))])
async def test_notices_counted_for_a_late_bid_move_to_the_answered_one(
    fresh_redis: str, tmp_path: Path, store: Any, budget: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They arrived before it was known that the bid had been answered 204."""
    clock = Clock(NOON)
    async with (
        opened(fresh_redis, tmp_path / "a", clock=clock) as first,
        opened(fresh_redis, tmp_path / "b", clock=clock) as second,
    ):
        own = limits(1, total=100_000, caps=((5, 3600),))
        assert await reserve(first, b"a", (b"1", PRICE, own), user="u") == "k"
        async with unconfirmed(first, budget, monkeypatch):
            assert await settle_all(second, b"a", b"1", 7) == "ccc"
            assert counts(store)[DAY]["p:1"] == 999
        await flushed(first)
        assert await settle_all(second, b"a", b"1", 8) == "ddd"
        assert counts(store) == {DAY: expected(bids=1, wins=1, imps=1, price=PRICE, losses={7: 1})}
        assert await state(second) == (PRICE, PRICE, 0, 0)
        assert await state(second, 2) == (0, 0, 0, 0)
        assert not keys(store, "{sb0}:fc:2:*")


async def test_a_late_bid_that_is_rolled_back_leaves_a_closed_day_as_it_is(
    fresh_redis: str, tmp_path: Path, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record is removed, and no later day counts it."""
    clock = Clock(at("2030-06-15T23:59:00"))
    async with opened(fresh_redis, tmp_path, clock=clock, ttl_s=86_400) as ledger:
        async with unconfirmed(ledger, None, monkeypatch):
            before = counts(store)
            clock.now = at("2030-06-16T02:00:00")
        await flushed(ledger)
        assert await ledger.settle(WIN, b"a", b"1") == "u"
    assert counts(store) == before
    assert list(before) == ["2030-06-15"]


async def test_spooled_notices_of_a_late_bid_move_to_the_next_bid(
    fresh_redis: str, tmp_path: Path, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the machine that received them is behind: both bids seem to be newer."""
    clock, behind = Clock(NOON), Clock(NOON - 5)
    async with opened(fresh_redis, tmp_path / "a", clock=clock) as first:
        async with unconfirmed(first, limits(2, total=100_000), monkeypatch):
            async with opened(fresh_redis, tmp_path / "b", clock=clock) as second:
                own = limits(1, total=100_000)
                assert await reserve(second, b"a", (b"1", PRICE, own)) == "k"
            async with opened(fresh_redis, tmp_path / "c", clock=behind, wait=False) as third:
                fired = (third.settle(kind, b"a", b"1", 7) for kind in (WIN, BILLING, LOSS))
                assert await asyncio.gather(*fired) == ["s", "s", "s"]
                await until(lambda: third._spool.is_empty)
            assert counts(store)[DAY]["p:1"] == 999
        await flushed(first)
        assert counts(store) == {DAY: expected(bids=1, wins=1, imps=1, price=PRICE, losses={7: 1})}
        assert await settle_all(first, b"a", b"1", 8) == "ddd"
        assert await state(first) == (PRICE, PRICE, 0, 0)
        assert await state(first, 2) == (0, 0, 0, 0)


async def test_a_late_bid_gives_back_money_and_impression(ledger: Ledger, clock: Clock) -> None:
    of = limits(total=PRICE // 1000, caps=((1, 3600),))
    for number in range(5):
        await late(ledger, b"%d" % number, b"1", PRICE, of=of, user="u")
        await flushed(ledger)
    assert await reserve(ledger, b"a", (b"1", PRICE, of), user="u") == "k"
    await late(ledger, b"a", b"1", 1, of=limits(2, total=1), campaign=2)
    await flushed(ledger)
    assert await state(ledger) == (PRICE,) * 4
    await ledger.settle(LOSS, b"a", b"1")
    assert await state(ledger) == (0,) * 4


async def test_an_auction_that_repeats_for_ever_costs_little(ledger: Ledger, store: Any) -> None:
    """Its replaced records are kept for a while, and are bounded."""
    for round in range(70_000 // 2000):
        waiting = [
            remembering(ledger, b"again", (b"1", 1, round * 2000 + n), within_s=60.0)
            for n in range(2000)
        ]
        assert all(await asyncio.gather(*(done for done in waiting if done is not None)))
    (key,) = keys(store, "{sb0}:r:1:*")
    assert store.hlen(key) == 33
    assert await ledger.settle(WIN, b"again", b"1") == "c"
    assert counts(store)[DAY] == {
        **{"b:1": 70_000, "B:1": 70_000, "w:1": 1, "W:1": 1, "p:1": 69_999, "P:1": 69_999}
    }


# -- times to live --------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [(7200, 3600), (3600, 7200), (7200, 60), (60, 9000)])
async def test_another_ttl_loses_no_open_bid(
    fresh_redis: str, tmp_path: Path, before: int, after: int
) -> None:
    clock = Clock(NOON)
    async with opened(fresh_redis, tmp_path, clock=clock, ttl_s=before) as ledger:
        for number in range(3):
            assert await remember(ledger, b"%d" % number, (b"1", 1, 1))
        clock.now += min(before, 1700) - 10
        assert await ledger.settle(WIN, b"0", b"1") == "c"
    async with opened(fresh_redis, tmp_path, clock=clock, ttl_s=after) as ledger:
        assert await settle_all(ledger, b"0", b"1") == "dcc"
        clock.now += 10
        assert await settle_all(ledger, b"1", b"1") == "ccc"
        assert await remember(ledger, b"new", (b"1", 1, 1))
        clock.now = NOON + max(before, after)
        assert set(await settle_all(ledger, b"new", b"1")) <= set("cl")


@pytest.mark.parametrize(("before", "after"), [(600, 60), (60, 600)])
async def test_another_hold_loses_no_open_bid(
    fresh_redis: str, tmp_path: Path, before: int, after: int
) -> None:
    """Each bid's hold lasts as long as it was to last when it was answered."""
    clock, of = Clock(NOON), limits(1, total=2 * PRICE // 1000)
    async with opened(fresh_redis, tmp_path, clock=clock, hold_s=before) as ledger:
        for auction in (b"a", b"b"):
            assert await reserve(ledger, auction, (b"1", PRICE, of)) == "k"
    async with opened(fresh_redis, tmp_path, clock=clock, hold_s=after) as ledger:
        clock.now += before - 10
        assert await reserve(ledger, b"c", (b"1", PRICE, of)) == "b"
        assert await ledger.settle(WIN, b"a", b"1") == "c"
        clock.now += 20
        assert await reserve(ledger, b"d", (b"1", PRICE, of)) == "k"
        assert await ledger.settle(WIN, b"b", b"1") == "c"


async def test_machines_with_different_ttls_find_each_others_bids(
    fresh_redis: str, tmp_path: Path
) -> None:
    clock = Clock(NOON)
    async with (
        opened(fresh_redis, tmp_path / "a", clock=clock, ttl_s=86_400) as long,
        opened(fresh_redis, tmp_path / "b", clock=clock, ttl_s=600) as short,
    ):
        for number in range(20):
            assert await remember((long, short)[number % 2], b"%d" % number, (b"1", 1, 1))
            clock.now += 1800
        for number in range(20):
            assert await (short, long)[number % 2].settle(WIN, b"%d" % number, b"1") in "cl"


async def test_a_clock_that_is_set_back_hides_nothing(ledger: Ledger, clock: Clock) -> None:
    for back in (1, 300, 1800, 5000):
        assert await remember(ledger, b"%d" % back, (b"1", 1, 1))
        clock.now -= back
        assert await ledger.settle(WIN, b"%d" % back, b"1") == "c"
        assert await remember(ledger, b"again %d" % back, (b"1", 1, 1))
        clock.now += back
        assert await ledger.settle(WIN, b"again %d" % back, b"1") == "c"


async def test_the_newest_counts_whatever_the_clock_says(
    ledger: Ledger, store: Any, clock: Clock
) -> None:
    assert await remember(ledger, b"a", (b"1", 1, 1))
    clock.now -= 60
    assert await remember(ledger, b"a", (b"1", 2, 50))
    assert await ledger.settle(BILLING, b"a", b"1") == "c"
    assert counts(store)[DAY] == {"b:1": 2, "B:1": 1, "B:2": 1, "i:1": 1, "I:2": 1}
