"""Budgets over a real Redis: held, spent, released, never exceeded (contract 3, Budgets)."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from redis import asyncio as redis_asyncio
from support.campaigns import document
from support.remembered import NOON, TTL_S, Clock, at, counts, opened, remembering
from support.spending import HOLD_S, NANO, has_headroom, limits, reserve, sent, state

from snapbid.ledger.bids.ledger import Ledger, LedgerBid
from snapbid.ledger.bids.records import BILLING, LOSS, WIN
from snapbid.ledger.budgets.limits import Limits
from snapbid.operations import spending
from snapbid.warehouse.campaigns import StoredCampaign

DAY = "2030-06-15"
PRICE = 2_000_000  # a CPM; a bid costs 2000 micro-USD
COST = PRICE // 1000


async def bid(ledger: Ledger, number: int, of: Any, price: int = PRICE) -> str:
    return await reserve(ledger, b"auction-%d" % number, (b"1", price, of))


# -- the limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["daily", "total"])
async def test_a_budget_holds_so_many_bids_and_no_more(ledger: Ledger, which: str) -> None:
    budget = 3 * COST + COST // 2
    of = limits(daily=budget) if which == "daily" else limits(total=budget)
    assert [await bid(ledger, n, of) for n in range(5)] == ["k", "k", "k", "b", "b"]
    assert await bid(ledger, 5, of, PRICE // 2) == "k"
    assert await bid(ledger, 6, of, 1) == "b"
    used = (3 * PRICE + PRICE // 2,) * 4
    assert await state(ledger) == used


async def test_a_cent_is_spent_to_the_nano(ledger: Ledger) -> None:
    of = limits(total=10_000)
    letters = [await bid(ledger, n, of, 999_999) for n in range(12)]
    assert "".join(letters) == "k" * 10 + "bb"
    assert await bid(ledger, 20, of, 11) == "b"
    assert await bid(ledger, 21, of, 10) == "k"
    assert (await state(ledger)).used == 10_000 * NANO


async def test_many_at_once_in_several_batches_and_ledgers(
    fresh_redis: str, tmp_path: Path, ledger: Ledger, clock: Clock
) -> None:
    of = [limits(number, daily=100 * COST) for number in range(1, 6)]
    async with opened(fresh_redis, tmp_path / "other", clock=clock) as other:
        calls = [
            reserve(each, b"%d-%d" % (n, campaign.campaign), (b"1", PRICE, campaign))
            for n in range(150)
            for campaign in of
            for each in (ledger, other)[n % 2 : n % 2 + 1]
        ]
        letters = await asyncio.gather(*calls)
    assert letters.count("k") == 500
    assert letters.count("b") == 250


async def test_only_kept_bids_are_remembered_and_counted(ledger: Ledger, store: Any) -> None:
    of, none = limits(total=COST), limits(2, total=1)
    bids = ((b"1", PRICE, none), (b"2", PRICE, of), (b"3", PRICE, of), (b"4", PRICE, None))
    assert await reserve(ledger, b"a", *bids, ssp=7) == "bkbk"
    assert counts(store) == {DAY: {"b:7": 1, "B:1": 1, "B:9": 1}}
    assert await reserve(ledger, b"b", (b"1", PRICE, none), (b"2", PRICE, of), ssp=7) == "bb"
    assert counts(store) == {DAY: {"b:7": 1, "B:1": 1, "B:9": 1}}
    assert await reserve(ledger, b"a", (b"1", PRICE, None), ssp=7, counted=True) == "k"
    assert counts(store) == {DAY: {"b:7": 1, "B:1": 1, "B:9": 2}}
    letters = [await ledger.settle(WIN, b"a", imp) for imp in (b"1", b"2", b"3", b"4")]
    assert letters == ["c", "c", "u", "c"]


# -- notices --------------------------------------------------------------------------------------


async def test_a_win_turns_the_hold_into_spend(ledger: Ledger, clock: Clock) -> None:
    of = limits(daily=2 * COST)
    assert [await bid(ledger, n, of) for n in range(3)] == ["k", "k", "b"]
    for _ in range(3):
        await ledger.settle(WIN, b"auction-0", b"1")
    assert await state(ledger) == (2 * PRICE, 2 * PRICE, PRICE, PRICE)
    clock.now += HOLD_S
    assert await state(ledger) == (PRICE, PRICE, 0, 0)
    assert [await bid(ledger, n, of) for n in range(3, 5)] == ["k", "b"]


@pytest.mark.parametrize("of", [limits(total=COST), limits(daily=COST)], ids=["total", "daily"])
async def test_a_loss_releases_the_hold_at_once(ledger: Ledger, of: Limits) -> None:
    for number in range(5):
        assert await bid(ledger, number, of) == "k"
        assert await bid(ledger, 100, of) == "b"
        for _ in range(2):
            await ledger.settle(LOSS, b"auction-%d" % number, b"1", 102)
        assert (await state(ledger)).used == 0


@pytest.mark.parametrize("order", ["wl", "lw", "bw", "wb", "lbw", "wlb", "bl", "l", "b", "w"])
async def test_money_after_notices_in_any_order(ledger: Ledger, clock: Clock, order: str) -> None:
    """A win is spend whatever else comes, also after a loss has released the hold."""
    kinds = {"w": WIN, "l": LOSS, "b": BILLING}
    of = limits(total=10 * COST)
    assert [await bid(ledger, n, of) for n in range(2)] == ["k", "k"]  # the other one is held
    for letter in order:
        assert await ledger.settle(kinds[letter], b"auction-0", b"1") == "c"
    spent = PRICE if "w" in order else 0
    held = PRICE * 2 if order == "b" else PRICE
    assert await state(ledger) == (spent + held, spent + held, held, held)
    clock.now += HOLD_S
    assert await state(ledger) == (spent, spent, 0, 0)


async def test_holds_expire(ledger: Ledger, clock: Clock) -> None:
    of = limits(total=2 * COST)
    assert await bid(ledger, 0, of) == "k"
    clock.now += 30
    assert await bid(ledger, 1, of) == "k"
    clock.now += HOLD_S - 31
    assert await bid(ledger, 2, of) == "b"
    clock.now += 1
    assert [await bid(ledger, n, of) for n in (2, 3)] == ["k", "b"]
    clock.now += 30
    assert [await bid(ledger, n, of) for n in (3, 4)] == ["k", "b"]


async def test_wins_after_the_hold_are_still_spend(ledger: Ledger, clock: Clock) -> None:
    of = limits(total=2 * COST)
    assert [await bid(ledger, n, of) for n in range(2)] == ["k", "k"]
    clock.now += HOLD_S + 5
    assert [await bid(ledger, n, of) for n in range(2, 4)] == ["k", "k"]
    assert [await ledger.settle(WIN, b"auction-%d" % n, b"1") for n in range(2)] == ["c", "c"]
    assert await state(ledger) == (4 * PRICE, 4 * PRICE, 2 * PRICE, 2 * PRICE)
    await ledger.settle(LOSS, b"auction-2", b"1")
    assert await bid(ledger, 9, of) == "b"


async def test_wins_without_a_budget_count_for_a_later_one(ledger: Ledger) -> None:
    for number in range(3):
        assert await remembering(ledger, b"plain-%d" % number, (b"1", 1, PRICE), within_s=10.0)  # type: ignore[misc]
        await ledger.settle(WIN, b"plain-%d" % number, b"1")
    of = limits(total=4 * COST, daily=10 * COST)
    assert [await bid(ledger, n, of) for n in range(2)] == ["k", "b"]


# -- days and pacing ------------------------------------------------------------------------------


async def test_the_day_ends_exactly_at_midnight(ledger: Ledger, clock: Clock) -> None:
    of = limits(daily=2 * COST, total=5 * COST)
    clock.now = at("2030-06-15T23:59:59") + 0.999
    assert [await bid(ledger, n, of) for n in range(3)] == ["k", "k", "b"]
    clock.now = at("2030-06-16T00:00:00")
    assert [await bid(ledger, n, of) for n in range(3, 6)] == ["k", "k", "b"]
    assert await ledger.settle(LOSS, b"auction-0", b"1") == "c"  # yesterday's money
    assert await bid(ledger, 6, of) == "b"
    assert await ledger.settle(WIN, b"auction-1", b"1") == "c"
    assert await state(ledger) == (3 * PRICE, 2 * PRICE, 2 * PRICE, 2 * PRICE)
    clock.now += HOLD_S
    assert await state(ledger) == (PRICE, 0, 0, 0)


@pytest.mark.parametrize("ssps", [(1, 1), (1, 2)], ids=["alone", "contested"])
async def test_a_bid_made_before_midnight_and_sent_after_it_spends_the_old_days_budget(
    ledger: Ledger, clock: Clock, store: Any, ssps: tuple[int, int]
) -> None:
    """One batch has bids of both days, which are held and spent on their own."""
    of, days, kept = limits(daily=3 * COST, total=9 * COST), (22080, 22081), list[int]()
    old, new = at("2030-06-15T23:59:59") + 0.999, at("2030-06-16T00:00:00") + 0.001

    async def ask(*numbers: int) -> str:
        waiting: list[Any] = []
        for number in numbers:
            clock.now = old if number < 10 else new
            bids = [(b"1", 1, PRICE, of)]
            name, ssp = b"auction-%d" % number, ssps[number % 2]
            waiting.append(ledger.remember(name, ssp, bids, None, 10.0))
        letters = [await done for done in waiting]
        kept.extend(n for n, letter in zip(numbers, letters, strict=True) if letter == "k")
        return "".join(letters)

    assert await ask(0, 1, 2, 3, 4, 5) == "kkkbbb"  # from now on contested, with two SSPs
    assert await ledger.settle(LOSS, b"auction-0", b"1") == "c"
    assert await ask(6, 7, 10, 11, 12, 13, 14) == "kb" + ("kkkbb" if ssps == (1, 1) else "kkhkb")
    kept.remove(0)
    for number in kept:
        assert await ledger.settle(WIN, b"auction-%d" % number, b"1") == "c"
    used = {f"d{day}".encode(): b"%d" % (3 * PRICE) for day in days} | {b"t": b"%d" % (6 * PRICE)}
    assert {k: v for k, v in store.hgetall("{sb0}:m:1").items() if k != b"a"} == used


async def test_holds_of_yesterday_leave_todays_budget_open(
    ledger: Ledger, clock: Clock, fresh_redis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = {"daily": 3 * COST / 1_000_000, "total": 9 * COST / 1_000_000}
    made = json.dumps(document("a", cpm=PRICE / 1_000_000, budget=budget))
    stored = StoredCampaign("a", made, "active", revision=1, number=1, created_at_ms=0)
    monkeypatch.setattr(spending, "time", clock)
    clock.now = at("2030-06-15T23:59:59") + 0.999
    of = limits(daily=3 * COST, total=9 * COST)
    async with redis_asyncio.Redis.from_url(fresh_redis) as client:
        reader = spending.SpendingReader(client, 1)

        async def seen() -> str:
            return (await reader.fetch([stored])).campaigns["a"].state

        assert await seen() == "open"
        assert [await bid(ledger, n, of) for n in range(3)] == ["k"] * 3
        assert await seen() == "spent"
        clock.now = at("2030-06-16T00:00:00")
        assert await seen() == "open"
        assert [await bid(ledger, n, of) for n in range(3, 6)] == ["k"] * 3
        assert await seen() == "spent"


async def test_a_budget_is_open_only_during_the_flight(
    ledger: Ledger, clock: Clock, fresh_redis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flight = {"starts_at": "2030-06-15T10:00:00Z", "ends_at": "2030-06-15T11:00:00Z"}
    made = json.dumps(document("a", budget={"daily": 1}) | flight)
    stored = StoredCampaign("a", made, "active", revision=1, number=1, created_at_ms=0)
    monkeypatch.setattr(spending, "time", clock)
    async with redis_asyncio.Redis.from_url(fresh_redis) as client:
        reader = spending.SpendingReader(client, 1)
        for moment, state in {
            "09:59:59": "scheduled", "10:00:00": "open", "10:59:59": "open", "11:00:00": "ended",
        }.items():  # fmt: skip
            clock.now = at(f"2030-06-15T{moment}")
            report = await reader.fetch([stored])
            assert report.campaigns["a"].state == state


def test_even_pacing_follows_the_day() -> None:
    daily = 100 * 1_000_000
    born = int(at("2030-06-14T08:00:00") * 1000)
    of = limits(daily=daily, even_from_ms=born)
    moments = {"00:00:00": 1, "06:00:00": 26, "12:00:00": 51, "23:45:36": 100, "23:59:59": 100}
    for moment, percent in moments.items():
        assert of.day_nano(int(at(f"2030-06-15T{moment}"))) == daily * NANO * percent // 100
    young = limits(daily=daily, even_from_ms=int(NOON * 1000))
    assert young.day_nano(int(NOON)) == daily * NANO // 100
    last = young.day_nano(int(at("2030-06-15T23:59:59")))
    assert last is not None
    assert 0.5099 < last / (daily * NANO) <= 0.51
    assert young.day_nano(int(at("2030-06-16T12:00:00"))) == daily * NANO * 51 // 100
    assert limits(daily=daily).day_nano(int(NOON)) == daily * NANO
    assert limits(total=daily, even_from_ms=born).day_nano(int(NOON)) is None


async def test_even_pacing_spends_its_share(ledger: Ledger, clock: Clock) -> None:
    of = limits(daily=1000 * COST, even_from_ms=int(NOON * 1000))
    letters = [await bid(ledger, n, of) for n in range(12)]
    assert letters == ["k"] * 10 + ["b"] * 2
    for number in range(10):
        await ledger.settle(WIN, b"auction-%d" % number, b"1")
    clock.now += 87  # a thousandth of the day, and a bit
    assert [await bid(ledger, n, of) for n in range(20, 22)] == ["k", "b"]
    assert await has_headroom(ledger, PRICE, of) == [False]
    clock.now += 87
    assert await has_headroom(ledger, PRICE, of) == [True]


# -- numbers beyond 2^53, clocks, shards ----------------------------------------------------------


@pytest.mark.parametrize("price", [2**53 - 1, 2**53 + 1, 10**17 + 3])
async def test_large_amounts_are_exact(ledger: Ledger, price: int) -> None:
    exactly = -(-3 * price // NANO)
    of = limits(total=exactly, daily=exactly)
    room = exactly * NANO - 3 * price
    assert [await bid(ledger, n, of, price) for n in range(4)] == ["k", "k", "k", "b"]
    assert await bid(ledger, 4, of, room + 1) == "b"
    assert await has_headroom(ledger, room + 1, of) == [False]
    if room:
        assert await has_headroom(ledger, room, of) == [True]
        assert await bid(ledger, 5, of, room) == "k"
    assert (await state(ledger)).used == exactly * NANO
    await ledger.settle(LOSS, b"auction-0", b"1")
    await ledger.settle(WIN, b"auction-1", b"1")
    assert (await state(ledger)).used == exactly * NANO - price


async def test_beyond_64_bits_nothing_is_spent(ledger: Ledger) -> None:
    of = limits(total=10**18)
    large = 2**63 - 1
    assert [await bid(ledger, n, of, large) for n in range(2)] == ["s", "s"]
    assert (await state(ledger)).used == 0


async def test_dry_runs_hold_nothing(ledger: Ledger, store: Any) -> None:
    of = limits(daily=COST)
    for _ in range(3):
        assert await ledger.look(b"a", [(b"1", 1, PRICE, of)], None, 10.0) == "k"
        assert await has_headroom(ledger, PRICE, of, limits(2, total=1)) == [True, False]
    assert counts(store) == {}
    assert (await state(ledger)).used == 0
    assert await bid(ledger, 0, of) == "k"
    assert await ledger.look(b"a", [(b"1", 1, PRICE, of)], None, 10.0) == "b"


async def test_shards_share_a_budget(fresh_redis: str, tmp_path: Path, clock: Clock) -> None:
    of = limits(total=33 * COST + 16)  # on each
    async with opened(fresh_redis, tmp_path, clock=clock, shards=3) as ledger:
        letters = [await bid(ledger, n, of) for n in range(300)]
        assert letters.count("k") == 99
        assert await has_headroom(ledger, PRICE, of) == [False]
        assert await state(ledger) == (99 * PRICE,) * 4


# -- what was never answered ----------------------------------------------------------------------


@pytest.mark.parametrize("on_its_way", [False, True])
async def test_a_bid_that_came_too_late_is_rolled_back(
    ledger: Ledger, store: Any, on_its_way: bool
) -> None:
    of = limits(total=3 * COST)
    wanted: list[LedgerBid] = [(b"1", 1, PRICE, of)]
    first = ledger.remember(b"first", 1, wanted, None, 10.0)
    refused = (b"2", 2, PRICE, limits(2, total=1))
    late = ledger.remember(b"late", 1, [refused, *wanted], None, 10.0)
    assert first is not None
    assert late is not None
    if on_its_way:
        await sent(ledger)
    late.cancel()
    assert await first == "k"
    assert await bid(ledger, 1, of) == "k"
    assert (await state(ledger)).used == 2 * PRICE
    assert counts(store) == {DAY: {"b:1": 2, "B:1": 2}}
    assert await ledger.settle(WIN, b"late", b"1") == "u"


async def test_records_with_limits_live_as_long_as_others(ledger: Ledger, clock: Clock) -> None:
    assert await bid(ledger, 0, limits(total=COST)) == "k"
    clock.now += TTL_S
    assert await ledger.settle(WIN, b"auction-0", b"1") == "c"
    clock.now += 1
    assert await ledger.settle(BILLING, b"auction-0", b"1") == "u"
