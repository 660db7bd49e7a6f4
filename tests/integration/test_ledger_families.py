"""Nobody takes over another SSP family's auction (contract 5.2)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.remembered import (
    NOON,
    Clock,
    anomalies,
    counts,
    expected,
    keys,
    opened,
    remembering,
    settle_all,
    until,
)
from support.spending import limits, reserve, state

from snapbid.embedded import Redis
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import BILLING, LOSS, WIN

DAY = "2030-06-15"
VICTIM, VARIANT, THIEF = 1, 2, 3
FAMILIES = {VARIANT: VICTIM}


@pytest.fixture(autouse=True)
def families(ledger: Ledger) -> None:
    ledger.use_families(FAMILIES)


async def verdict(ledger: Ledger, ssp: int, auction: bytes = b"a", price: int = 100) -> str:
    done = remembering(ledger, auction, (b"1", ssp, price), ssp=ssp)
    assert done is not None
    return await done


@pytest.mark.parametrize("notices", ["", "w", "l", "wb", "lw"])
async def test_an_open_record_stays_with_its_family(
    ledger: Ledger, store: Any, notices: str
) -> None:
    """Whatever notices have come for it, the other family's bid is refused and counts nothing."""
    kinds = {"w": WIN, "b": BILLING, "l": LOSS}
    assert await verdict(ledger, VICTIM) == "k"
    for letter in notices:
        assert await ledger.settle(kinds[letter], b"a", b"1", 7) == "c"
    assert await verdict(ledger, THIEF, price=999) == "t"
    for letter, kind in kinds.items():
        assert await ledger.settle(kind, b"a", b"1", 7) == ("d" if letter in notices else "c")
    whole = expected(bids=1, wins=1, imps=1, price=100, losses={7: 1})
    assert counts(store) == {DAY: whole}
    assert anomalies(store)[DAY][f"n:{THIEF}:41"] == 1


async def test_within_a_family_the_later_bid_replaces_the_record(
    ledger: Ledger, store: Any
) -> None:
    for ssp, price in ((VICTIM, 100), (VARIANT, 200), (VICTIM, 300)):
        assert await verdict(ledger, ssp, price=price) == "k"
        assert await ledger.settle(WIN, b"a", b"1") == "c"
    day = counts(store)[DAY]
    assert (day["p:1"], day["p:2"], day["b:1"], day["b:2"]) == (400, 200, 2, 1)


async def test_two_families_in_one_batch(ledger: Ledger, store: Any) -> None:
    """The first of a batch has the auction; the other counts nothing."""
    waiting = [
        remembering(ledger, b"a", (b"1", ssp, 100), (b"2", ssp, 100), ssp=ssp)
        for ssp in (VICTIM, THIEF, VARIANT, THIEF)
    ]
    assert [await done for done in waiting if done is not None] == ["kk", "tt", "kk", "tt"]
    day = counts(store)[DAY]
    assert {field: day[field] for field in day if field[0] in "bB"} == {
        "b:1": 1,
        "b:2": 1,
        "B:1": 2,
        "B:2": 2,
    }


async def test_an_answer_keeps_the_impressions_that_are_free(ledger: Ledger, store: Any) -> None:
    assert await verdict(ledger, VICTIM) == "k"
    done = remembering(ledger, b"a", (b"1", 3, 100), (b"2", 3, 100), ssp=THIEF)
    assert done is not None
    assert await done == "tk"
    assert await ledger.settle(WIN, b"a", b"2") == "c"
    day = counts(store)[DAY]
    assert (day["b:3"], day["B:3"], day["w:3"]) == (1, 1, 1)


@pytest.mark.parametrize("seconds", [1, 299])
async def test_records_in_the_previous_time_bucket_count(
    ledger: Ledger, store: Any, clock: Clock, seconds: int
) -> None:
    """The other family bids once a new time bucket has begun, in an auction from the old one."""
    assert await verdict(ledger, VICTIM, b"first") == "k"
    clock.now += 1790
    assert await verdict(ledger, VICTIM) == "k"
    clock.now += 10
    assert await verdict(ledger, VICTIM, b"another") == "k"
    assert {b"1", b"2"} < set(store.hkeys("{sb0}:r"))
    clock.now += seconds
    assert await verdict(ledger, THIEF) == "t"
    assert await settle_all(ledger, b"a", b"1") == "ccc"
    assert "w:3" not in counts(store)[DAY]


async def test_the_first_bid_of_a_time_bucket_checks_the_previous_one(
    ledger: Ledger, clock: Clock
) -> None:
    assert await verdict(ledger, VICTIM, b"first") == "k"
    clock.now += 1790
    assert await verdict(ledger, VICTIM) == "k"
    clock.now += 10
    assert await verdict(ledger, THIEF) == "t"


@pytest.mark.parametrize("caps", [(), ((1, 3600),)])
async def test_a_refused_bid_releases_its_holds(
    ledger: Ledger, store: Any, caps: tuple[tuple[int, int], ...]
) -> None:
    """Its budget has headroom for one bid, and its user's cap for one impression."""
    own = limits(9, total=100_000, caps=caps)
    assert await verdict(ledger, VICTIM) == "k"
    refused = await reserve(ledger, b"a", (b"1", 100_000_000, own), ssp=THIEF, user="u")
    assert refused == "t"
    assert (await state(ledger, 9))[:2] == (0, 0)
    assert not keys(store, "{sb0}:fe:9:*")
    kept = await reserve(ledger, b"free", (b"1", 100_000_000, own), ssp=THIEF, user="u")
    assert kept == "k", "nothing is left of the refused bid's hold"


@pytest.mark.parametrize("capped", [False, True])
async def test_a_late_answer_rolls_back_only_kept_bids(
    ledger: Ledger, store: Any, capped: bool
) -> None:
    """Nobody waits any more for an answer of which one impression was refused."""
    own = limits(3, total=10_000, caps=((5, 3600),)) if capped else None
    assert await verdict(ledger, VICTIM) == "k"
    bids = [(b"1", 3, 100, own), (b"2", 3, 100, own)]
    done = ledger.remember(b"a", THIEF, bids, "u", 10.0)
    assert done is not None
    (core,), (shard,) = ledger._cores, ledger._shards
    while not core._answers.sent:
        await asyncio.sleep(0)
    done.cancel()
    await until(lambda: not shard.trips.is_busy and not core.waiting and not core.unconfirmed)
    assert counts(store) == {DAY: expected(bids=1)}
    assert await ledger.settle(WIN, b"a", b"2") == "u"


async def test_a_batch_rolled_back_as_a_whole_uncounts_no_refused_bid(
    fresh_redis: str, tmp_path: Path, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its acknowledgement never came: nobody but Redis knows what it refused."""
    clock = Clock(NOON)
    async with (
        opened(fresh_redis, tmp_path / "a", clock=clock) as first,
        opened(fresh_redis, tmp_path / "b", clock=clock) as second,
    ):
        assert await verdict(second, VICTIM) == "k"
        (core,) = first._cores
        with monkeypatch.context() as patch:
            patch.setattr(core, "receive", lambda *_: 1 / 0)
            done = remembering(first, b"a", (b"1", 3, 100), (b"2", 3, 100), ssp=THIEF)
            assert done is not None
            assert await done == ""
        await until(lambda: first.connected and not core.unconfirmed)
        assert counts(store) == {DAY: expected(bids=1)}
        assert await settle_all(second, b"a", b"1") == "ccc"


async def test_families_over_several_shards(own_redis: Redis, tmp_path: Path) -> None:
    async with opened(own_redis.url, tmp_path, clock=Clock(NOON), shards=3) as ledger:
        ledger.use_families(FAMILIES)
        for number in range(12):
            auction = b"%d" % number
            assert await verdict(ledger, VICTIM, auction) == "k"
            assert await verdict(ledger, THIEF, auction) == "t"
            assert await verdict(ledger, VARIANT, auction) == "k"
