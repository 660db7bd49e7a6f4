"""Sums of money hold what is counted: what would not fit is refused at the bid (contract 3)."""

from pathlib import Path
from typing import Any

import pytest
from support.remembered import NOON, Clock, counts, day_of, opened, remembering
from support.spending import limits, reserve

from snapbid.bidding.cost import MAX_COST
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import WIN

DAY_SUM = 2 * 10**18  # nano-USD that dear bids of a day may cost, of an SSP and of a campaign
PLAIN = 10**9 - 1  # nano-USD: just under 1 USD an impression


async def bid(ledger: Ledger, auction: str, campaign: int, cost: int, ssp: int = 1) -> str:
    done = remembering(ledger, auction.encode(), (b"1", campaign, cost), ssp=ssp)
    assert done is not None
    return str(await done)


async def test_wins_at_the_highest_cost_are_counted_with_their_money(
    fresh_redis: str, tmp_path: Path, store: Any
) -> None:
    """Of 10,000 bids at 1,000,000 USD, 2,000 fit; all may be won, and their sum is exact."""
    async with opened(fresh_redis, tmp_path, clock=Clock(NOON)) as ledger:
        waiting = [remembering(ledger, b"%d" % n, (b"1", 1, MAX_COST)) for n in range(10_000)]
        verdicts = [await done for done in waiting if done is not None]
        assert len(verdicts) == 10_000
        fit = DAY_SUM // MAX_COST
        assert verdicts == ["k"] * fit + ["s"] * (10_000 - fit)
        for number in range(fit + 3):
            verdict = await ledger.settle(WIN, b"%d" % number, b"1")
            assert verdict == ("c" if number < fit else "u")
        assert await bid(ledger, "plain", 1, PLAIN) == "k"
        assert await bid(ledger, "another", 2, MAX_COST, ssp=2) == "k"
    day = counts(store)[day_of(NOON)]
    assert (day["b:1"], day["w:1"], day["p:1"]) == (fit + 1, fit, fit * MAX_COST)
    assert (day["B:1"], day["P:1"]) == (fit + 1, fit * MAX_COST)


@pytest.mark.parametrize("cost", [PLAIN + 1, MAX_COST // 3])
async def test_each_sum_is_kept_by_itself(fresh_redis: str, tmp_path: Path, cost: int) -> None:
    async with opened(fresh_redis, tmp_path, clock=Clock(NOON)) as ledger:
        store = ledger._looking
        key = f"{{sb0}}:dear:{int(NOON) // 86_400}"
        await store.hset(key, mapping={"s1": DAY_SUM - 5 * cost, "c7": DAY_SUM})
        assert [await bid(ledger, f"{n}", 1, cost) for n in range(6)] == [*"kkkkk", "s"]
        assert await bid(ledger, "of the campaign", 7, cost, ssp=2) == "s"
        assert await bid(ledger, "next to it", 6, cost, ssp=2) == "k"
        assert await store.hmget(key, "s1", "s2") == [b"%d" % DAY_SUM, b"%d" % cost]


async def test_bids_refused_by_the_budget_add_to_no_sum(fresh_redis: str, tmp_path: Path) -> None:
    async with opened(fresh_redis, tmp_path, clock=Clock(NOON)) as ledger:
        own = limits(1, total=PLAIN // 1000 + 1)
        cost = PLAIN + 1
        assert [await reserve(ledger, b"%d" % n, (b"1", cost, own)) for n in range(3)] == [*"kbb"]
        sums = await ledger._looking.hgetall(f"{{sb0}}:dear:{int(NOON) // 86_400}")
        assert set(sums.values()) == {b"%d" % cost}


async def test_plain_bids_leave_nothing_behind(fresh_redis: str, tmp_path: Path) -> None:
    async with opened(fresh_redis, tmp_path, clock=Clock(NOON)) as ledger:
        assert await bid(ledger, "a", 1, PLAIN) == "k"
        assert not [key async for key in ledger._looking.scan_iter("*dear*")]
