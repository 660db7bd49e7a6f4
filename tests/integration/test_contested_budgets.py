"""What an SSP's bids and notices may do to a budget that others share (contract 3, Budgets)."""

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.remembered import HOLD_S, NOON, Clock, opened
from support.spending import limits, reserve, state

from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import LOSS, WIN

GREEDY, OTHER, THIRD, VARIANT = 1, 2, 3, 4
PRICE = 10_000  # nano-USD a bid
BIDS = 100  # that the budget has room for
OWN = limits(1, total=BIDS * PRICE // 1000)


class Asking:
    """Bids of SSPs for one campaign's budget, each of an auction of its own."""

    def __init__(self, ledger: Ledger, of: Any = OWN) -> None:
        self.ledger = ledger
        self.of = of
        self.kept: list[tuple[int, bytes]] = []
        self._auctions = 0

    async def ask(self, ssp: int, times: int = 1) -> Counter[str]:
        """The verdicts on so many bids."""
        verdicts: Counter[str] = Counter()
        for _ in range(times):
            self._auctions += 1
            auction = b"%d" % self._auctions
            verdict = await reserve(self.ledger, auction, (b"1", PRICE, self.of), ssp=ssp, user="u")
            verdicts[verdict] += 1
            if verdict == "k":
                self.kept.append((ssp, auction))
        return verdicts


async def test_a_silent_ssp_leaves_half_to_others_that_ask(ledger: Ledger, clock: Clock) -> None:
    asking = Asking(ledger)
    assert await asking.ask(GREEDY, BIDS + 10) == {"k": BIDS, "b": 10}
    assert await asking.ask(OTHER) == {"b": 1}, "nothing is left, for one hold"
    for _ in range(3):
        clock.now += HOLD_S + 1
        greedy = await asking.ask(GREEDY, 2 * BIDS)
        assert greedy == {"k": BIDS // 2, "h": 2 * BIDS - BIDS // 2}
        other = await asking.ask(OTHER, BIDS)
        assert other == {"k": BIDS // 2, "b": BIDS // 2}


async def test_an_ssp_has_one_share_under_all_its_ids(ledger: Ledger, clock: Clock) -> None:
    """Two registered ids, each with half, kept a campaign for as long as they asked."""
    ledger.use_families({VARIANT: GREEDY})
    asking = Asking(ledger)
    assert await asking.ask(GREEDY, BIDS) == {"k": BIDS}
    assert await asking.ask(VARIANT) == await asking.ask(GREEDY) == {"b": 1}
    clock.now += HOLD_S + 1
    assert await asking.ask(VARIANT, BIDS) == {"k": BIDS}, "no other SSP asks"
    assert await asking.ask(OTHER) == {"b": 1}
    for _ in range(3):
        clock.now += HOLD_S + 1
        assert (await asking.ask(GREEDY, BIDS // 4))["k"] == BIDS // 4
        assert (await asking.ask(VARIANT, BIDS))["k"] == BIDS // 4
        assert await asking.ask(GREEDY) == {"h": 1}
        assert (await asking.ask(OTHER, BIDS))["k"] == BIDS // 2
    for _, auction in asking.kept:
        await ledger.settle(WIN, auction, b"1")
    assert await asking.ask(OTHER) == {"b": 1}


async def test_an_ssp_alone_may_hold_all(ledger: Ledger, clock: Clock) -> None:
    asking = Asking(ledger)
    for _ in range(3):
        assert await asking.ask(GREEDY, BIDS + 5) == {"k": BIDS, "b": 5}
        clock.now += HOLD_S + 1


async def test_old_contention_is_forgotten(ledger: Ledger, clock: Clock) -> None:
    asking = Asking(ledger)
    await asking.ask(GREEDY, BIDS)
    await asking.ask(OTHER)
    clock.now += 601
    assert await asking.ask(GREEDY, BIDS) == {"k": BIDS}


async def test_what_is_shared_is_spent_to_the_last_bid(ledger: Ledger) -> None:
    """An SSP whose bids are won at once spends on; halves of what is left never stop it."""
    asking = Asking(ledger)
    await asking.ask(GREEDY, BIDS - 10)
    for _, auction in asking.kept:
        assert await ledger.settle(WIN, auction, b"1") == "c"
    await asking.ask(GREEDY, 10)
    await asking.ask(OTHER)
    for _, auction in asking.kept[-10:]:
        assert await ledger.settle(LOSS, auction, b"1", 1) == "c"
    for _ in range(10):
        assert (await asking.ask(OTHER))["k"] == 1
        assert await ledger.settle(WIN, asking.kept[-1][1], b"1") == "c"
    assert (await state(ledger))[:2] == (BIDS * PRICE, BIDS * PRICE)
    assert await asking.ask(OTHER) == {"b": 1}


@pytest.mark.parametrize("seed", range(8))
async def test_nothing_is_lost_or_doubled_while_it_is_contested(
    fresh_redis: str, tmp_path: Path, store: Any, seed: int
) -> None:
    """Whatever comes in whatever order: holds and spend are the open and the won bids."""
    rng, clock = random.Random(seed), Clock(NOON)
    async with opened(fresh_redis, tmp_path, clock=clock) as ledger:
        asking = Asking(ledger, limits(1, total=BIDS * PRICE // 1000, daily=900))
        won: set[bytes] = set()
        held: dict[bytes, float] = {}
        for _ in range(400):
            if rng.random() < 0.6:
                before = len(asking.kept)
                await asking.ask(rng.choice((GREEDY, GREEDY, GREEDY, OTHER, THIRD)))
                held |= {auction: clock.now for _, auction in asking.kept[before:]}
            elif asking.kept:
                _, auction = rng.choice(asking.kept)
                if rng.random() < 0.3:
                    won.add(auction)
                    await ledger.settle(WIN, auction, b"1")
                    held.pop(auction, None)
                elif auction not in won:
                    await ledger.settle(LOSS, auction, b"1", 1)
                    held.pop(auction, None)
            clock.now += rng.choice((0, 0, 0.2, 1, 20))
            held = {it: at for it, at in held.items() if clock.now - at < HOLD_S - 1}
            used = (await state(ledger))[0]
            assert used >= PRICE * (len(won) + len(held))
        clock.now += HOLD_S + 2
        assert won
        assert (await state(ledger))[0] == PRICE * len(won)
        left = {field for field in store.hkeys("{sb0}:m:1") if field[:1] in (b"e", b"h")}
        assert not left


async def test_many_at_once(fresh_redis: str, tmp_path: Path) -> None:
    async with opened(fresh_redis, tmp_path, clock=(clock := Clock(NOON))) as ledger:
        asking = Asking(ledger)
        await asking.ask(GREEDY, BIDS)
        await asking.ask(OTHER)
        clock.now += HOLD_S + 1
        waiting = [
            reserve(ledger, b"m%d" % n, (b"1", PRICE, OWN), ssp=1 + n % 3) for n in range(300)
        ]
        verdicts = await asyncio.gather(*waiting)
        kept = Counter(1 + n % 3 for n, verdict in enumerate(verdicts) if verdict == "k")
        assert sum(kept.values()) <= BIDS
        assert sum(kept.values()) == BIDS
        assert max(kept.values()) - min(kept.values()) <= 2, "those who ask alike get alike"


async def test_losses_that_wins_follow_end_no_holds(ledger: Ledger, clock: Clock) -> None:
    """By whoever sends both: three bids beyond the budget, where it was as many as he liked."""
    asking = Asking(ledger)
    spent = 0
    while (await asking.ask(GREEDY))["k"]:
        _, auction = asking.kept[-1]
        assert await ledger.settle(LOSS, auction, b"1", 102) == "c"
        assert await ledger.settle(WIN, auction, b"1") == "c"
        spent += 1
        assert spent <= BIDS + 3
    assert (await state(ledger))[0] <= (BIDS + 3) * PRICE


async def test_lost_first_and_won_later(ledger: Ledger, clock: Clock) -> None:
    """Once three were won after all, a loss leaves its hold as it is; others' losses end theirs."""
    asking = Asking(ledger)
    await asking.ask(GREEDY, 30)
    for _, auction in asking.kept:
        assert await ledger.settle(LOSS, auction, b"1", 102) == "c"
    assert (await state(ledger))[0] == 0
    for number, (_, auction) in enumerate(asking.kept[:3], 1):
        assert await ledger.settle(WIN, auction, b"1") == "c"
        await asking.ask(GREEDY)
        assert await ledger.settle(LOSS, asking.kept[-1][1], b"1", 102) == "c"
        held = (await state(ledger))[0] - number * PRICE
        assert held == (PRICE if number == 3 else 0)
    await asking.ask(OTHER)
    assert await ledger.settle(LOSS, asking.kept[-1][1], b"1", 102) == "c"
    assert (await state(ledger))[0] == 4 * PRICE
    clock.now += HOLD_S + 1
    await asking.ask(OTHER)
    assert (await state(ledger))[0] == 4 * PRICE, "the hold has ended, another has begun"


async def test_each_ssp_has_its_own_hour(ledger: Ledger, clock: Clock) -> None:
    """What another contradicts meanwhile keeps no SSP's losses from ending holds again."""
    asking = Asking(ledger)

    async def contradict(ssp: int) -> None:
        for _ in range(3):
            await asking.ask(ssp)
            _, auction = asking.kept[-1]
            for kind in (LOSS, WIN):
                assert await ledger.settle(kind, auction, b"1", 102) == "c"

    async def ends_hold(ssp: int) -> bool:
        before = (await state(ledger))[0]
        await asking.ask(ssp)
        assert await ledger.settle(LOSS, asking.kept[-1][1], b"1", 102) == "c"
        return (await state(ledger))[0] == before

    await contradict(GREEDY)
    assert not await ends_hold(GREEDY)
    clock.now += 3_000
    await contradict(OTHER)
    clock.now += 601
    assert await ends_hold(GREEDY)
    assert not await ends_hold(OTHER)


async def test_few_wins_after_many_losses_are_no_contradiction(ledger: Ledger) -> None:
    """One in two hundred: such is a race of two notices, now and then."""
    asking = Asking(ledger, limits(1, total=10 * BIDS * PRICE // 1000))
    for number in range(800):
        await asking.ask(GREEDY)
        _, auction = asking.kept[-1]
        assert await ledger.settle(LOSS, auction, b"1", 102) == "c"
        if number in (200, 400, 600):
            assert await ledger.settle(WIN, auction, b"1") == "c"
    assert (await state(ledger))[0] == 3 * PRICE
