"""Campaigns refused for want of headroom, and what a machine's one reader reads of them."""

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
from snapbid.ledger.budgets.headroom import Headroom, HeadroomReader
from snapbid.ledger.budgets.limits import Limits
from snapbid.ledger.budgets.releases import ALL, DAILY, ReleaseReader, releases_path
from snapbid.redisclient import connection
from snapbid.server.allocating import AllocatorThread
from workload.serving import confirm_budgets

PRICE = 1_000_000
COST = PRICE // 1000
DAY_S = 86_400


@dataclass
class Refusing:
    """A ledger of one shard, and the reader of its releases."""

    url: str
    ledger: Ledger
    clock: Clock
    reader: HeadroomReader

    async def bid(self, auction: str, of: Limits, price: int = PRICE) -> str:
        return await reserve(self.ledger, auction.encode(), (b"1", price, of))

    async def released(self) -> list[int]:
        headroom = await self.reader.read(0)
        assert not headroom.refills
        assert not headroom.is_behind
        return headroom.released


@pytest.fixture
async def refusing(fresh_redis: str, tmp_path: Path) -> AsyncIterator[Refusing]:
    clock = Clock(NOON)
    async with opened(fresh_redis, tmp_path, clock=clock) as ledger:
        redis = connection.connect(fresh_redis)
        reader = HeadroomReader(redis, 1, clock, simulated=True)
        assert (await reader.read(0)).is_behind, "what was released before is not known"
        yield Refusing(fresh_redis, ledger, clock, reader)
        await redis.aclose()


async def test_a_lost_bid_releases(refusing: Refusing) -> None:
    of = limits(total=COST)
    assert [await refusing.bid(name, of) for name in "ab"] == ["k", "b"]
    assert await refusing.released() == []
    await refusing.ledger.settle(LOSS, b"a", b"1")
    assert await refusing.released() == [1]
    assert await refusing.released() == []
    assert await refusing.bid("c", of) == "k"
    await refusing.ledger.settle(LOSS, b"c", b"1")
    assert await refusing.released() == [], "nobody was refused since"


async def test_refused_dry_runs_are_released(refusing: Refusing) -> None:
    """That of a test bid, after which the worker skips the campaign."""
    of = limits(daily=COST)
    assert await refusing.bid("a", of) == "k"
    assert await refusing.ledger.look(b"t", [(b"1", 1, PRICE, of)], None, 10.0) == "b"
    await refusing.ledger.settle(LOSS, b"a", b"1")
    assert await refusing.released() == [1]


async def test_the_end_of_a_hold_releases(refusing: Refusing) -> None:
    of = limits(total=2 * COST)
    assert await refusing.bid("a", of) == "k"
    refusing.clock.now += 10
    assert [await refusing.bid(name, of) for name in "bc"] == ["k", "b"]
    refusing.clock.now += HOLD_S - 11
    assert await refusing.released() == []
    refusing.clock.now += 1
    assert await refusing.released() == [1]
    assert [await refusing.bid(name, of) for name in "de"] == ["k", "b"]
    refusing.clock.now += 10
    assert await refusing.released() == [1]


async def test_the_end_of_a_hold_that_was_won_releases_none(refusing: Refusing) -> None:
    of = limits(total=2 * COST)
    assert await refusing.bid("a", of) == "k"
    refusing.clock.now += 10
    assert [await refusing.bid(name, of) for name in "bc"] == ["k", "b"]
    await refusing.ledger.settle(WIN, b"a", b"1")
    refusing.clock.now += HOLD_S - 10
    assert await refusing.released() == []
    refusing.clock.now += 10
    assert await refusing.released() == [1], "that of b"


async def test_holds_that_another_script_has_ended_release(refusing: Refusing) -> None:
    of = limits(total=COST)
    assert [await refusing.bid(name, of) for name in "ab"] == ["k", "b"]
    refusing.clock.now += HOLD_S
    assert (await refusing.ledger.budgets.states([1]))[1].held == 0
    assert await refusing.released() == [1]


async def test_pacing_releases_when_it_allows_the_lowest_cost(refusing: Refusing) -> None:
    daily = DAY_S * COST  # a bid each second
    of = limits(daily=daily, even_from_ms=int(NOON * 1000))
    first = daily * 1000 // 100  # what may be spent at once
    assert await refusing.bid("a", of, first) == "k"
    assert await refusing.bid("b", of, 30 * PRICE) == "b"
    assert await refusing.bid("c", of, 20 * PRICE) == "b"
    assert await refusing.bid("d", of, 25 * PRICE) == "b"
    refusing.clock.now += 19
    assert await refusing.released() == []
    refusing.clock.now += 1
    assert await refusing.released() == [1]
    assert await refusing.bid("e", of, 20 * PRICE) == "k"


async def test_pacing_releases_nothing_beyond_a_budget(refusing: Refusing) -> None:
    paced = partial(limits, daily=100 * COST, even_from_ms=int((NOON - 2 * DAY_S) * 1000))
    assert await refusing.bid("a", paced(1, total=60 * COST), 51 * PRICE) == "k"  # all until now
    assert await refusing.bid("b", paced(1, total=60 * COST), 10 * PRICE) == "b"
    refusing.clock.now += DAY_S / 2 - 1  # all of the day's is allowed
    assert await refusing.bid("c", paced(2), 100 * PRICE) == "k"
    assert await refusing.bid("d", paced(2)) == "b"
    with looking(refusing.url) as store:
        assert store.zcard("{sb0}:until:pacing") == 0


async def test_a_release_leaves_nothing_of_the_refusal(refusing: Refusing) -> None:
    """It has been waited for the end of a hold, and for pacing."""
    of = limits(daily=DAY_S * COST, even_from_ms=int(NOON * 1000))
    assert await refusing.bid("a", of, DAY_S * PRICE // 100) == "k"
    assert await refusing.bid("b", of, 20 * PRICE) == "b"
    with looking(refusing.url) as store:
        waiting = {b"{sb0}:refused", b"{sb0}:until:hold", b"{sb0}:until:pacing"}
        assert set(store.scan_iter("{sb0}:until:*")) | {b"{sb0}:refused"} == waiting
        await refusing.ledger.settle(LOSS, b"a", b"1")
        assert not store.exists(*waiting)
        assert store.zrange("{sb0}:releases", 0, -1, withscores=True) == [(b"1", 1.0)]
    assert await refusing.released() == [1]


async def test_reading_costs_the_same_however_many_are_refused(refusing: Refusing) -> None:
    spent = limits(1, total=COST - 1)
    costs = []
    with looking(refusing.url) as store:
        for many in (10, 1000):
            for number in range(2, many):
                of = limits(number, total=COST - 1)
                assert await refusing.bid(f"{many}-{number}", of) == "b"
            assert await refusing.bid(f"{many}", spent) == "b"
            store.config_resetstat()
            assert await refusing.released() == []
            made: Any = store.info("commandstats")
            costs.append({name: stats["calls"] for name, stats in made.items()})
    assert costs[0] == costs[1]


async def test_a_release_reaches_all_machines(refusing: Refusing) -> None:
    redis = connection.connect(refusing.url)
    other = HeadroomReader(redis, 1, refusing.clock, simulated=True)
    await other.read(0)
    of = limits(total=COST)
    assert [await refusing.bid(name, of) for name in "ab"] == ["k", "b"]
    await refusing.ledger.settle(LOSS, b"a", b"1")
    assert await refusing.released() == [1]
    assert (await other.read(0)).released == [1]
    await redis.aclose()


async def test_confirmed_budgets_may_all_have_headroom(fresh_redis: str, tmp_path: Path) -> None:
    async with opened(fresh_redis, tmp_path, confirmed=False) as ledger:
        redis = connection.connect(fresh_redis)
        reader = HeadroomReader(redis, 1, lambda: NOON)
        assert await reserve(ledger, b"a", (b"1", PRICE, limits(total=COST))) == "b"
        assert [(await reader.read(0)).is_behind for _ in range(2)] == [True, False]
        confirm_budgets(fresh_redis)
        assert [(await reader.read(0)).is_behind for _ in range(2)] == [True, False]
        with looking(fresh_redis) as store:
            store.flushall()  # another run of Redis has begun
        assert [(await reader.read(0)).is_behind for _ in range(2)] == [True, False]
        await redis.aclose()


async def test_a_new_day_reactivates_daily_budgets(fresh_redis: str, tmp_path: Path) -> None:
    environ = {"SNAPBID_HOME": str(tmp_path), "SNAPBID_REDIS_URL": fresh_redis}
    settings = load({**environ, "SNAPBID_LEDGER_SHARDS": "1"})
    settings.runtime_dir.mkdir()
    answers = [Headroom([], released, not at, NOON + at) for at, released in
             ((0, []), (1, [7]), (DAY_S, []), (DAY_S + 1, []))]  # fmt: skip
    published: list[Any] = []

    class Shard:
        async def read(self, shard: int) -> Headroom:
            published.append(reader.read())
            if not answers:
                raise asyncio.CancelledError
            return answers.pop(0)

    thread = AllocatorThread(settings)
    reader = ReleaseReader(releases_path(settings.runtime_dir))
    with pytest.raises(asyncio.CancelledError):
        await thread._follow_shard(Shard(), 0)  # type: ignore[arg-type]
    reader.close()
    thread._writer.close()
    thread._thread._loop.close()
    assert published == [[], [(ALL, 0)], [(7, 0)], [(DAILY, 0)], []]
