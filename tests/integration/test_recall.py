"""Campaigns that were refused for want of budget, and what a machine's one reader hears of them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.remembered import HOLD_S, NOON, Clock, looking, opened
from support.spending import limits, reserve

from snapbid.base.settings import load
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import LOSS, WIN
from snapbid.ledger.budgets.limits import Limits
from snapbid.ledger.budgets.refill_requests import Heard, RefillRequests
from snapbid.ledger.budgets.room import ALL, DAILY, RoomReader, room_path
from snapbid.redisclient import connection
from snapbid.server.allocating import AllocatorThread
from workload.serving import confirm_budgets

PRICE = 1_000_000
COST = PRICE // 1000
DAY_S = 86_400


@dataclass
class Listening:
    """A ledger of one shard, and what is heard of it."""

    url: str
    ledger: Ledger
    clock: Clock
    calls: RefillRequests

    async def bid(self, auction: str, of: Limits, price: int = PRICE) -> str:
        return await reserve(self.ledger, auction.encode(), (b"1", price, of))

    async def room(self) -> list[int]:
        heard = await self.calls.hear(0)
        assert not heard.calls
        assert not heard.is_behind
        return heard.room


@pytest.fixture
async def listening(fresh_redis: str, tmp_path: Path) -> AsyncIterator[Listening]:
    clock = Clock(NOON)
    async with opened(fresh_redis, tmp_path, clock=clock) as ledger:
        redis = connection.connect(fresh_redis)
        calls = RefillRequests(redis, 1, clock, simulated=True)
        assert (await calls.hear(0)).is_behind, "what was said before is not known"
        yield Listening(fresh_redis, ledger, clock, calls)
        await redis.aclose()


async def test_a_lost_bid_makes_room(listening: Listening) -> None:
    of = limits(total=COST)
    assert [await listening.bid(name, of) for name in "ab"] == ["k", "b"]
    assert await listening.room() == []
    await listening.ledger.settle(LOSS, b"a", b"1")
    assert await listening.room() == [1]
    assert await listening.room() == []
    assert await listening.bid("c", of) == "k"
    await listening.ledger.settle(LOSS, b"c", b"1")
    assert await listening.room() == [], "nobody was refused since"


async def test_a_look_that_is_refused_hears_of_room(listening: Listening) -> None:
    """That of a test bid, after which the worker skips the campaign."""
    of = limits(daily=COST)
    assert await listening.bid("a", of) == "k"
    assert await listening.ledger.look(b"t", [(b"1", 1, PRICE, of)], None, 10.0) == "b"
    await listening.ledger.settle(LOSS, b"a", b"1")
    assert await listening.room() == [1]


async def test_the_end_of_a_hold_makes_room(listening: Listening) -> None:
    of = limits(total=2 * COST)
    assert await listening.bid("a", of) == "k"
    listening.clock.now += 10
    assert [await listening.bid(name, of) for name in "bc"] == ["k", "b"]
    listening.clock.now += HOLD_S - 11
    assert await listening.room() == []
    listening.clock.now += 1
    assert await listening.room() == [1]
    assert [await listening.bid(name, of) for name in "de"] == ["k", "b"]
    listening.clock.now += 10
    assert await listening.room() == [1]


async def test_the_end_of_a_hold_that_was_won_makes_none(listening: Listening) -> None:
    of = limits(total=2 * COST)
    assert await listening.bid("a", of) == "k"
    listening.clock.now += 10
    assert [await listening.bid(name, of) for name in "bc"] == ["k", "b"]
    await listening.ledger.settle(WIN, b"a", b"1")
    listening.clock.now += HOLD_S - 10
    assert await listening.room() == []
    listening.clock.now += 10
    assert await listening.room() == [1], "that of b"


async def test_holds_that_another_script_has_ended_make_room(listening: Listening) -> None:
    of = limits(total=COST)
    assert [await listening.bid(name, of) for name in "ab"] == ["k", "b"]
    listening.clock.now += HOLD_S
    assert (await listening.ledger.budgets.states([1]))[1].held == 0
    assert await listening.room() == [1]


async def test_pacing_makes_room_when_it_allows_the_lowest_cost(listening: Listening) -> None:
    daily = DAY_S * COST  # a bid each second
    of = limits(daily=daily, even_from_ms=int(NOON * 1000))
    first = daily * 1000 // 100  # what may be spent at once
    assert await listening.bid("a", of, first) == "k"
    assert await listening.bid("b", of, 30 * PRICE) == "b"
    assert await listening.bid("c", of, 20 * PRICE) == "b"
    assert await listening.bid("d", of, 25 * PRICE) == "b"
    listening.clock.now += 19
    assert await listening.room() == []
    listening.clock.now += 1
    assert await listening.room() == [1]
    assert await listening.bid("e", of, 20 * PRICE) == "k"


async def test_pacing_makes_no_room_beyond_a_budget(listening: Listening) -> None:
    paced = partial(limits, daily=100 * COST, even_from_ms=int((NOON - 2 * DAY_S) * 1000))
    assert await listening.bid("a", paced(1, total=60 * COST), 51 * PRICE) == "k"  # all until now
    assert await listening.bid("b", paced(1, total=60 * COST), 10 * PRICE) == "b"
    listening.clock.now += DAY_S / 2 - 1  # all of the day's is allowed
    assert await listening.bid("c", paced(2), 100 * PRICE) == "k"
    assert await listening.bid("d", paced(2)) == "b"
    with looking(listening.url) as store:
        assert store.zcard("{sb0}:calls") == 0


async def test_a_look_costs_the_same_however_many_are_refused(listening: Listening) -> None:
    spent = limits(1, total=COST - 1)
    costs = []
    with looking(listening.url) as store:
        for many in (10, 1000):
            for number in range(2, many):
                of = limits(number, total=COST - 1)
                assert await listening.bid(f"{many}-{number}", of) == "b"
            assert await listening.bid(f"{many}", spent) == "b"
            store.config_resetstat()
            assert await listening.room() == []
            made: Any = store.info("commandstats")
            costs.append({name: stats["calls"] for name, stats in made.items()})
    assert costs[0] == costs[1]


async def test_what_is_said_to_one_machine_is_said_to_all(listening: Listening) -> None:
    redis = connection.connect(listening.url)
    other = RefillRequests(redis, 1, listening.clock, simulated=True)
    await other.hear(0)
    of = limits(total=COST)
    assert [await listening.bid(name, of) for name in "ab"] == ["k", "b"]
    await listening.ledger.settle(LOSS, b"a", b"1")
    assert await listening.room() == [1]
    assert (await other.hear(0)).room == [1]
    await redis.aclose()


async def test_any_may_have_room_once_budgets_are_confirmed(
    fresh_redis: str, tmp_path: Path
) -> None:
    async with opened(fresh_redis, tmp_path, confirmed=False) as ledger:
        redis = connection.connect(fresh_redis)
        calls = RefillRequests(redis, 1, lambda: NOON)
        assert await reserve(ledger, b"a", (b"1", PRICE, limits(total=COST))) == "b"
        assert [(await calls.hear(0)).is_behind for _ in range(2)] == [True, False]
        confirm_budgets(fresh_redis)
        assert [(await calls.hear(0)).is_behind for _ in range(2)] == [True, False]
        with looking(fresh_redis) as store:
            store.flushall()  # another run of Redis has begun
        assert [(await calls.hear(0)).is_behind for _ in range(2)] == [True, False]
        await redis.aclose()


async def test_a_day_lets_those_bid_that_have_a_daily_budget(
    fresh_redis: str, tmp_path: Path
) -> None:
    settings = load({"SNAPBID_HOME": str(tmp_path), "SNAPBID_REDIS_URL": fresh_redis})
    settings.runtime_dir.mkdir()
    heard = [Heard([], rooms, not at, NOON + at) for at, rooms in
             ((0, []), (1, [7]), (DAY_S, []), (DAY_S + 1, []))]  # fmt: skip
    said: list[Any] = []

    class Calls:
        async def hear(self, shard: int) -> Heard:
            said.append(reader.read())
            if not heard:
                raise asyncio.CancelledError
            return heard.pop(0)

    thread = AllocatorThread(settings)
    reader = RoomReader(room_path(settings.runtime_dir))
    with pytest.raises(asyncio.CancelledError):
        await thread._hear(Calls(), 0)  # type: ignore[arg-type]
    reader.close()
    thread._writer.close()
    thread._loop.close()
    assert said == [[], [(ALL, 0)], [(7, 0)], [(DAILY, 0)], []]
