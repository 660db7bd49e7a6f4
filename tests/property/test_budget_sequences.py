"""Sequences of bids, notices and waits: the ledger decides as the plain rules do."""

import asyncio
import tempfile
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
import redis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.capping import opened_capped
from support.oracle_spending import Bid, Spending, Terms
from support.remembered import Clock, at
from support.spending import reserve, sent, state

from snapbid.ledger.bids.records import BILLING, LOSS, WIN
from snapbid.ledger.budgets.limits import Limits

T = TypeVar("T")
HOLD_S, TTL_S = 60, 2_592_000
START = at("2030-06-15T23:58:30")
WAITS = (0.001, 0.4, 1, 29.999, 59, 60, 61, 300, 3600, 43_200, 86_400)
PRICES = (1, 999_999, 1_000_000, 2_500_001, 2**53 - 1, 2**53 + 3)
BORN = int(START * 1000) - 7_200_000
SUMS = 4 * 10**16  # a day over three shards holds as much; beyond it: integration/test_sums.py


def some_terms(campaign: int) -> st.SearchStrategy[Terms]:
    amounts = st.none() | st.sampled_from([1000, 2000, 5_500, 100_000, 2**52])
    caps = st.tuples(st.integers(1, 3), st.sampled_from([1, 30, 90, 4000, 100_000]))
    return st.builds(
        Terms,
        campaign=st.just(campaign),
        daily=amounts,
        total=amounts,
        even_from_ms=st.none() | st.just(BORN),
        caps=st.lists(caps, max_size=2).map(tuple),
    )


def limits(terms: Terms) -> Limits | None:
    if terms.daily is None and terms.total is None and not terms.caps:
        return None
    paced = terms.even_from_ms if terms.daily is not None else None
    return Limits(terms.campaign, terms.daily, terms.total, paced, terms.caps)


class Machine(RuleBasedStateMachine):
    """One ledger over an emptied Redis, and the plain rules beside it.

    With several shards all auctions are in one of them, which has all money, and users anywhere.
    """

    redis_url: ClassVar[str]
    shards: ClassVar[int]

    def __init__(self) -> None:
        super().__init__()
        with redis.Redis.from_url(self.redis_url) as client:
            client.flushall()
        self.clock = Clock(START)
        self.contradicted = 0
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory(prefix="snapbid-test-")
        self.stack = AsyncExitStack()
        spool, of = Path(self.folder.name), self.shards
        ledger = opened_capped(self.redis_url, spool, shards=of, clock=self.clock, ttl_s=TTL_S)
        self.capped = self.run(self.stack.enter_async_context(ledger))
        self.ledger = self.capped.ledger
        self.plain = Spending(HOLD_S)
        self.placed: list[tuple[bytes, bytes, Bid]] = []
        self.numbers = self.capped.in_one_shard()
        self.asked = 0

    def teardown(self) -> None:
        with self.runner, self.folder:
            self.run(self.stack.aclose())

    def run(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            return await work

        return self.runner.run(wait())

    @property
    def now_ms(self) -> int:
        return int(self.clock.now * 1000)

    @initialize(one=some_terms(1), two=some_terms(2))
    def campaigns(self, one: Terms, two: Terms) -> None:
        self.terms = [one, two]

    @rule(which=st.integers(0, 1), data=st.data())
    def change(self, which: int, data: Any) -> None:
        """The operator changes a budget; what users saw is known from the first cap on."""
        drawn = data.draw(some_terms(which + 1))
        self.terms[which] = replace(drawn, caps=self.terms[which].caps)

    @rule(
        which=st.lists(st.integers(0, 1), min_size=1, max_size=3),
        price=st.sampled_from(PRICES),
        user=st.sampled_from(["u", "v"]),
        answered=st.sampled_from([True, True, True, False]),
    )
    def bid(self, which: list[int], price: int, user: str, answered: bool) -> None:
        """An answer with some bids, which the request may have given up meanwhile."""
        auction, kept, letters, wanted = b"auction-%d" % next(self.numbers), [], "", []
        if self.shards > 1:  # holds of bids beside it may stand in the way of one
            del which[1:]
        price = price if self.asked + price * len(which) <= SUMS else 1
        self.asked += price * len(which)
        for number, place in enumerate(which):
            terms, of = self.terms[place], limits(self.terms[place])
            letter = self.plain.verdict(terms, price, user, self.now_ms)
            letters += letter
            imp = b"%d" % number
            wanted.append((imp, terms.campaign, price, of))
            if letter == "k":
                kept.append((auction, imp, self.plain.keep(terms, price, user, self.now_ms)))
        done = self.run(self._reserve(auction, wanted, user, answered))
        if answered:
            assert done == letters
            self.placed += kept
        else:
            gone = {id(bid) for _, _, bid in kept}  # another one may be equal
            self.plain.bids = [bid for bid in self.plain.bids if id(bid) not in gone]

    async def _reserve(self, auction: bytes, wanted: Any, user: str, answered: bool) -> str:
        done = self.ledger.remember(auction, 1, wanted, user, 10.0)
        assert done is not None
        if answered:
            return await done
        if len(wanted) % 2:
            await sent(self.ledger, done.done)
        done.cancel()
        behind = b"auction-%d" % next(self.numbers)
        letters = await reserve(self.ledger, behind, (b"1", 1, None))
        await self.deliver()
        return letters

    async def deliver(self) -> None:
        if self.shards > 1:
            await self.capped.sweeper.sweep()

    @precondition(lambda self: self.placed)
    @rule(data=st.data(), kind=st.sampled_from([WIN, BILLING, LOSS]))
    def notice(self, data: Any, kind: int) -> None:
        """A notice of a bid; at most two wins of lost ones.

        After a third the ledger no longer believes the SSP's losses, which the plain rules do not
        know (integration/test_contested_budgets.py).
        """
        auction, imp, bid = data.draw(st.sampled_from(self.placed))
        if kind == WIN and bid.lost and bid.won_ms is None:
            if self.contradicted == 2:
                return
            self.contradicted += 1
        again = {WIN: bid.won_ms, BILLING: bid.billed_ms, LOSS: bid.lost or None}[kind]
        letter = self.run(self.ledger.settle(kind, auction, imp))
        self.run(self.deliver())
        assert letter == "d" if again is not None else letter in "cl"
        if again is None and kind == WIN:
            bid.won_ms = self.now_ms
        elif again is None and kind == BILLING:
            bid.billed_ms = self.now_ms
        elif kind == LOSS:
            bid.lost = True

    @rule(seconds=st.sampled_from(WAITS))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @invariant()
    def money_agrees(self) -> None:
        for campaign in (1, 2):
            counted = self.run(state(self.ledger, campaign))
            assert counted.used == self.plain.used(campaign, self.now_ms)
            assert counted.used_today == self.plain.used_today(campaign, self.now_ms)
            assert counted.held == self.plain.held(campaign, self.now_ms)


@pytest.mark.parametrize(
    ("shards", "steps", "examples"),
    [(1, 10, 50), pytest.param(1, 40, 50, marks=pytest.mark.long), (3, 40, 20)],
)
def test_the_ledger_decides_as_the_plain_rules_do(
    redis_url: str, shards: int, steps: int, examples: int
) -> None:
    machine = type("Machine", (Machine,), {"redis_url": redis_url, "shards": shards})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None)
    )
