"""Frequency caps over a real Redis: impressions and holds of a user in rolling windows.

Over one shard, and over three, of which outboxes carry what notices mean to that of the user.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.capping import PRICE, Capped, opened_capped
from support.remembered import NOON, TTL_S, Clock, counts, keys
from support.spending import HOLD_S, limits, reserve, sent, state

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.bids.records import BILLING, LOSS, NOTICE, WIN, bid_digest
from snapbid.ledger.scripts import script

HOUR = 3600
SWEPT_AT = 16  # holds of a user
GIVEN_UP_S = 900  # how long a hold may wait for a spool


@pytest.fixture(params=[1, 3])
def shards(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
async def capped(
    fresh_redis: str, tmp_path: Path, clock: Clock, shards: int
) -> AsyncIterator[Capped]:
    async with opened_capped(fresh_redis, tmp_path / "spool", shards=shards, clock=clock) as made:
        yield made


async def test_a_user_is_capped_by_holds_and_impressions(capped: Capped) -> None:
    of = limits(caps=((3, HOUR),))
    assert [await capped.bid(n, of) for n in range(4)] == ["k", "k", "k", "c"]
    await capped.notify(0, WIN)
    await capped.notify(1, BILLING)
    assert await capped.bid(5, of) == "c"
    await capped.notify(2, LOSS)
    assert [await capped.bid(n, of) for n in (6, 7)] == ["k", "c"]
    assert await capped.bid(8, of, user="another") == "k"
    assert await capped.bid(9, limits(2, caps=((1, HOUR),))) == "k"


async def test_holds_and_impressions_expire(capped: Capped, clock: Clock) -> None:
    of = limits(caps=((2, HOUR),))
    assert [await capped.bid(n, of) for n in range(3)] == ["k", "k", "c"]
    clock.now += 1.5
    await capped.notify(0, WIN)
    clock.now = NOON + HOLD_S - 0.001
    assert await capped.bid(3, of) == "c"
    clock.now = NOON + HOLD_S
    assert [await capped.bid(n, of) for n in (4, 5)] == ["k", "c"]
    await capped.notify(4, LOSS)
    await capped.notify(1, BILLING)  # after its hold: an impression nevertheless
    assert await capped.bid(6, of) == "c"
    clock.now = NOON + 1.5 + HOUR - 0.001
    assert await capped.bid(7, of) == "c"
    clock.now = NOON + 1.5 + HOUR
    assert [await capped.bid(n, of) for n in (8, 9)] == ["k", "c"]


async def test_the_time_of_an_impression_is_its_billing(capped: Capped, clock: Clock) -> None:
    of = limits(caps=((1, 100),))
    assert await capped.bid(0, of) == "k"
    await capped.notify(0, WIN)
    clock.now += 30
    await capped.notify(0, BILLING)
    clock.now += 99
    assert await capped.bid(1, of) == "c"
    clock.now += 1
    assert await capped.bid(2, of) == "k"
    await capped.notify(2, BILLING)
    clock.now += 99
    await capped.notify(2, WIN, LOSS)
    clock.now += 1
    assert await capped.bid(3, of) == "k"


async def test_an_impression_by_an_old_clock_is_dated_by_the_new_one(
    capped: Capped, clock: Clock, store: Any, shards: int
) -> None:
    """The clock is set ahead, and a worker tells of impressions before it has heard of that."""
    of = limits(caps=((2, 100),))
    assert [await capped.bid(n, of) for n in range(2)] == ["k", "k"]
    came_s = int(clock.now) + 1
    clock.now += HOUR
    for number in range(2):
        auction = b"auction-%d" % number
        notice = NOTICE.pack(BILLING, 0, bid_digest(auction, b"1"), came_s, 0, 0, 0)
        keys = ShardKeys(capped.ledger.shard_of(auction)).script_keys
        settle = script("settle", True, shards)
        assert store.eval(settle, len(keys), *keys, int(clock.now * 1000), TTL_S, notice) == b"c"
    await capped.sweeper.sweep()
    assert await capped.bid(2, of) == "c"
    clock.now += 100
    assert await capped.bid(3, of) == "k"


async def test_every_cap_counts(capped: Capped, clock: Clock) -> None:
    of = limits(caps=((2, HOUR), (3, 5 * HOUR)))
    letters = ""
    for number in range(8):
        letters += (letter := await capped.bid(number, of))
        if letter == "k":
            await capped.notify(number, WIN, BILLING)
        clock.now += HOUR / 2
    assert letters == "kkkccccc"
    clock.now = NOON + 5 * HOUR
    assert await capped.bid(20, of) == "k"


async def test_a_refused_budget_holds_no_impression(capped: Capped) -> None:
    of = limits(total=PRICE // 1000, caps=((2, HOUR),))
    some = capped.in_one_shard()
    first, second, third, fourth, fifth, sixth = (next(some) for _ in range(6))
    assert [await capped.bid(n, of) for n in (first, second, third)] == ["k", "b", "b"]
    await capped.notify(first, LOSS)
    assert await capped.bid(fourth, of) == "k"
    await capped.notify(fourth, LOSS)
    assert [await capped.bid(fifth, of), await capped.bid(sixth, of, "x")] == ["k", "b"]
    await capped.notify(fifth, WIN, BILLING, LOSS)
    assert (await state(capped.ledger)).used == PRICE


async def test_a_cap_refused_holds_no_money(capped: Capped) -> None:
    of = limits(total=10 * PRICE, caps=((1, HOUR),))
    assert [await capped.bid(n, of) for n in range(2)] == ["k", "c"]
    assert (await state(capped.ledger)).used == PRICE


async def test_several_impressions_of_one_answer(capped: Capped, store: Any) -> None:
    of = limits(caps=((2, HOUR),))
    bids = [(b"%d" % number, PRICE, of) for number in range(4)]
    assert await reserve(capped.ledger, b"a", *bids, user="u") == "kkcc"
    assert counts(store) == {"2030-06-15": {"b:1": 1, "B:1": 2}}


async def test_dry_runs_hold_no_impression(capped: Capped, store: Any) -> None:
    of = limits(caps=((1, HOUR),))
    for _ in range(3):
        assert await capped.ledger.look(b"a", [(b"1", 1, PRICE, of)], "u", 10.0) == "k"
    assert await capped.bid(0, of) == "k"
    assert await capped.ledger.look(b"b", [(b"1", 1, PRICE, of)], "u", 10.0) == "c"


async def test_unanswered_bids_do_not_count(capped: Capped) -> None:
    of = limits(caps=((1, HOUR),))
    waiting = capped.ledger.remember(b"late", 1, [(b"1", 1, PRICE, of)], "u", 10.0)
    assert waiting is not None
    await sent(capped.ledger)
    waiting.cancel()
    assert await reserve(capped.ledger, b"next", (b"1", PRICE, None)) == "k"
    assert await capped.bid(0, of) == "k"


async def test_user_records_expire(capped: Capped, store: Any) -> None:
    of = limits(caps=((2, HOUR), (5, 10)))
    for number in range(2):
        assert await capped.bid(number, of) == "k"
    await capped.notify(0, WIN)
    (holds,), (impressions,) = keys(store, "{sb*}:fe:*"), keys(store, "{sb*}:fc:*")
    assert HOLD_S < store.ttl(holds) <= HOLD_S + 60 + GIVEN_UP_S
    assert HOUR < store.ttl(impressions) <= HOUR + 60


async def test_holds_that_ended_by_themselves_are_removed(
    capped: Capped, clock: Clock, store: Any
) -> None:
    """Not at each bid, but no more of them stay than SWEPT_AT."""
    of = limits(caps=((1000, HOUR),))
    most = 0
    for number in range(3 * SWEPT_AT):
        assert await capped.bid(number, of) == "k"
        clock.now += HOLD_S
        most = max(most, store.zcard(keys(store, "{sb*}:fe:*")[0]))
    assert 1 < most <= SWEPT_AT


async def test_no_user_sees_more_than_the_cap_in_any_window(
    fresh_redis: str, tmp_path: Path, capped: Capped, clock: Clock, shards: int
) -> None:
    """Users that come back hundreds of times, over two workers at once, with losses between."""
    rng = random.Random(5)
    of = limits(caps=((2, 40), (5, 200)))
    seen: dict[str, list[float]] = {}

    async def visit(worker: Capped, number: int, user: str) -> None:
        if await worker.bid(number, of, user) != "k":
            return
        outcome = rng.choice(("win", "win", "loss", "nothing"))
        if outcome == "loss":
            await worker.notify(number, LOSS)
        elif outcome == "win":
            moment = clock.now
            await worker.notify(number, WIN, BILLING)
            seen.setdefault(user, []).append(moment)

    async with opened_capped(fresh_redis, tmp_path / "other", shards=shards, clock=clock) as other:
        for step in range(400):
            clock.now += rng.choice((0.25, 1, 3, 7.5))
            if step % 4 == 0:  # well before holds end, which wait for no outbox in simulated time
                for each in (capped, other):  # one of them has the outboxes
                    await each.sweeper.sweep()
            await asyncio.gather(
                *(
                    visit((capped, other)[n % 2], step * 100 + n, f"user {rng.randrange(4)}")
                    for n in range(12)
                )
            )
    assert sum(map(len, seen.values())) > 60
    for times in seen.values():
        for most, seconds in ((2, 40), (5, 200)):
            assert all(
                later - earlier >= seconds
                for earlier, later in zip(times, times[most:], strict=False)
            )
