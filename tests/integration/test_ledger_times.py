"""How long a bid is remembered, and on which day it counts (contract 5)."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.remembered import (
    NOON,
    TIME_BUCKET_S,
    TTL_S,
    Clock,
    anomalies,
    at,
    counts,
    day_of,
    expected,
    opened,
    remember,
    settle_all,
)

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import BILLING, SPOOLED, WIN, pack_notice
from snapbid.ledger.scripts import script

LONG_S = 4 * 86_400  # long enough to remember over the end of a day
PRICE = 2_345_678


# -- how long -------------------------------------------------------------------------------------


@pytest.mark.parametrize("into", [0, 1, 899, 1799])
async def test_a_bid_is_remembered_for_its_time_and_no_longer(
    ledger: Ledger, clock: Clock, into: int
) -> None:
    """The same wherever in a time bucket it was made."""
    assert NOON % TIME_BUCKET_S == 0
    clock.now = made = NOON + into
    for imp in (b"1", b"2"):
        await remember(ledger, b"a", (imp, 1, 1))
    clock.now = made + TTL_S
    assert await ledger.settle(WIN, b"a", b"1") == "c"
    assert await ledger.settle(WIN, b"a", b"1") == "d"
    clock.now = made + TTL_S + 1
    assert await settle_all(ledger, b"a", b"1") == "uuu"
    assert await settle_all(ledger, b"a", b"2") == "uuu"


@pytest.mark.parametrize("ttl_s", [1, 2, 3, 5, 7, 10, 59, 7201, 86_400, 2_592_000])
async def test_any_time_to_live_is_exact(fresh_redis: str, tmp_path: Path, ttl_s: int) -> None:
    clock = Clock(0.0)
    async with opened(fresh_redis, tmp_path, clock=clock, ttl_s=ttl_s) as ledger:
        for shift in range(8):
            clock.now = made = NOON + shift * (ttl_s // 7 or 1)
            auction = b"%d" % shift
            await remember(ledger, auction, (b"1", 1, 1))
            clock.now = made + ttl_s
            assert await ledger.settle(WIN, auction, b"1") in "cl"
            clock.now = made + ttl_s + 1
            assert await ledger.settle(BILLING, auction, b"1") == "u"


async def test_a_worker_whose_clock_is_behind_finds_the_bid(ledger: Ledger, clock: Clock) -> None:
    await remember(ledger, b"a", (b"1", 1, 1))
    clock.now -= 3
    assert await ledger.settle(WIN, b"a", b"1") == "c"


# -- which day ------------------------------------------------------------------------------------

ENDS_OF_DAYS = [
    ("2030-06-15", "2030-06-16"),
    ("2030-06-30", "2030-07-01"),
    ("2028-02-28", "2028-02-29"),
    ("2028-02-29", "2028-03-01"),
    ("2030-02-28", "2030-03-01"),
    ("2030-12-31", "2031-01-01"),
    ("2100-02-28", "2100-03-01"),
]


@pytest.mark.parametrize(("day", "following"), ENDS_OF_DAYS)
@pytest.mark.parametrize("bid_at", ["00:00:00", "12:34:56", "23:59:59"])
async def test_a_day_stays_open_until_two(
    fresh_redis: str, tmp_path: Path, store: Any, day: str, following: str, bid_at: str
) -> None:
    clock = Clock(0.0)
    async with opened(fresh_redis, tmp_path, clock=clock, ttl_s=LONG_S) as ledger:
        for number, (notice_at, letter, counted_on) in enumerate(
            [
                (f"{day}T23:59:59", "c", day),
                (f"{following}T00:00:00", "c", day),
                (f"{following}T01:59:59", "c", day),
                (f"{following}T02:00:00", "l", following),
                (f"{following}T23:59:59", "l", following),
            ],
            1,
        ):
            clock.now = at(f"{day}T{bid_at}")
            await remember(ledger, b"%d" % number, (b"1", number, PRICE), ssp=number)
            before = counts(store)
            clock.now = at(notice_at)
            assert await settle_all(ledger, b"%d" % number, b"1", 9) == letter * 3
            assert await settle_all(ledger, b"%d" % number, b"1", 9) == "ddd"
            after = counts(store)
            whole = expected(
                bids=1, wins=1, imps=1, price=PRICE, losses={9: 1}, ssp=number, campaign=number
            )
            settled = {field: value for field, value in whole.items() if field[0] not in "bB"}
            before.setdefault(counted_on, {}).update(settled)
            assert after == before, notice_at
            day_it_came = anomalies(store)[notice_at.partition("T")[0]]
            assert (f"n:{number}:11" in day_it_came) == (letter == "l"), notice_at


async def test_a_bid_just_after_midnight_is_the_new_days(
    fresh_redis: str, tmp_path: Path, store: Any
) -> None:
    clock = Clock(0.0)
    async with opened(fresh_redis, tmp_path, clock=clock, ttl_s=LONG_S) as ledger:
        for moment in ("2030-06-15T23:59:59", "2030-06-16T00:00:00", "2030-06-16T01:59:59"):
            clock.now = at(moment)
            await remember(ledger, moment.encode(), (b"1", 1, 1))
            clock.now += 1
            assert await ledger.settle(WIN, moment.encode(), b"1") == "c"
    counted = expected(bids=1, wins=1, price=1)
    assert counts(store) == {
        "2030-06-15": counted,
        "2030-06-16": {f: 2 * n for f, n in counted.items()},
    }


async def test_much_later_it_is_the_day_of_the_notice(
    fresh_redis: str, tmp_path: Path, store: Any
) -> None:
    clock = Clock(at("2030-02-27T10:00:00"))
    async with opened(fresh_redis, tmp_path, clock=clock, ttl_s=LONG_S) as ledger:
        await remember(ledger, b"a", (b"1", 1, 5))
        clock.now = at("2030-03-02T01:00:00")
        assert await ledger.settle(WIN, b"a", b"1") == "l"
    assert counts(store)["2030-03-02"] == expected(wins=1, price=5)


@pytest.mark.long
async def test_a_whole_century_has_the_right_days(
    fresh_redis: str, tmp_path: Path, store: Any
) -> None:
    """The script's days against Python's: ends of months, leap days, and others at random."""
    first, rng = datetime(2027, 1, 1, tzinfo=UTC), random.Random(3)
    years = *range(2027, 2033), *range(2098, 2106)  # 2028 and 2104 are leap years, 2100 is not
    months = [datetime(year, month, 1, tzinfo=UTC) for year in years for month in range(1, 13)]
    days = {*months, *(month - timedelta(days=1) for month in months)}
    days |= {first + timedelta(days=rng.randrange(78 * 365)) for _ in range(60)}
    clock = Clock(0.0)
    async with opened(fresh_redis, tmp_path, clock=clock) as ledger:
        for number, day in enumerate(sorted(days)):
            clock.now = day.timestamp() + rng.randrange(86_400)
            auction = b"%d" % number
            await remember(ledger, auction, (b"1", 1, 1))
            assert await ledger.settle(BILLING, auction, b"1") == "c"
    counted = expected(bids=1, imps=1)
    assert counts(store) == {day_of(day.timestamp()): counted for day in days}


# -- clocks of several machines -------------------------------------------------------------------


@pytest.mark.parametrize(("early_ms", "letter"), [(1, b"c"), (50, b"c"), (51, b"u")])
async def test_a_win_may_seem_to_come_before_its_bid(
    ledger: Ledger, clock: Clock, store: Any, early_ms: int, letter: bytes
) -> None:
    """It comes to a machine whose clock is behind, and which does not know this run of Redis."""
    assert await remember(ledger, b"a", (b"1", 1, 1))
    came, unknown = (int(clock.now) - 1, 1000 - early_ms), (1, 0)
    packed = pack_notice(WIN | SPOOLED, 0, b"a", b"1", came, unknown)
    settle = store.register_script(script("settle", simulated=True))
    args = [int(clock.now * 1000), TTL_S, packed]
    assert settle(keys=ShardKeys(0).script_keys, args=args) == letter
