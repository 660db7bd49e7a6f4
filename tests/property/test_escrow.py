"""Budgets by escrow against a plain counter: messages lost, late, repeated, bankers that end.

The oracle is one sum of all spend and holds, of which the product knows nothing.
"""

import random
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from snapbid.ledger.budgets.escrow import (
    IDLE,
    Bank,
    BankEntry,
    Demand,
    Purse,
    grant,
    learn,
    opened,
    outstanding,
    plan,
)

PRICE: Final = 1000


class World:
    """One account: its stores, messages on their way, bankers between their steps."""

    def __init__(self, rng: random.Random, shards: int, limit: int, faults: float) -> None:
        self.rng, self.limit, self.faults = rng, limit, faults
        self.purses = [Purse()] * shards
        self.bank: Bank = opened(shards)
        self.total = 0  # the oracle: spend and holds
        self.holds: list[tuple[int, int]] = []
        self.late: list[tuple[int, int, int]] = []  # figures on their way to a purse
        self.before = [0] * shards
        self.refused: dict[int, int] = {}  # by shard, the lowest cost since it had room

    def bid(self, shard: int, price: int) -> bool:
        held = self.purses[shard].hold(price)
        if held is None:
            self.refused[shard] = min(price, self.refused.get(shard, price))
            return False
        self.purses[shard] = held
        self.total += price
        self.holds.append((shard, price))
        assert self.total <= self.limit
        return True

    def settle(self) -> None:
        """A hold ends: the bid was lost; or it becomes spend."""
        shard, price = self.holds.pop(self.rng.randrange(len(self.holds)))
        if self.rng.random() < 0.5:
            purse = self.purses[shard]
            self.purses[shard] = purse._replace(used=purse.used - price)
            self.total -= price

    def lossy(self) -> bool:
        return self.rng.random() < self.faults

    def tell(self, shard: int, granted: int, returned: int) -> None:
        """A message to a purse: lost, late, or twice."""
        if not self.lossy():
            self.purses[shard] = self.purses[shard].told(granted, returned)
            if self.purses[shard].spare >= self.refused.get(shard, 0):
                self.refused.pop(shard, None)
        if self.lossy():
            self.late.append((shard, granted, returned))

    def banker(self) -> Iterator[None]:
        """One round of a banker; at each step others may come between, and it may end."""
        read = [None if self.lossy() else purse for purse in self.purses]
        yield
        bank = self.bank
        yield
        learnt = learn(bank, read)
        demands = [
            IDLE
            if purse is None
            else Demand(max(purse.used - self.before[shard], 0), self.refused.get(shard, 0))
            for shard, purse in enumerate(read)
        ]
        self.before = [p.used for p in self.purses]
        moves = plan(learnt, read, demands, PRICE, self.limit, 0.1)
        granted = grant(learnt, moves.grants, self.limit)
        if self.bank != bank:  # compare and set
            return
        self.bank = granted
        yield
        for shard, amount in enumerate(moves.returns):
            purse = read[shard]
            if amount and purse is not None and not self.lossy():
                given = self.purses[shard].give_back(purse.returned, amount)
                self.purses[shard] = given or self.purses[shard]
                yield
        for shard, entry in enumerate(granted):
            self.tell(shard, entry.granted, entry.returned)
            yield

    def check(self) -> None:
        used = sum(purse.used for purse in self.purses)
        assert used == self.total
        allowed = sum(purse.allowance for purse in self.purses)
        assert allowed <= self.limit
        for purse, entry in zip(self.purses, self.bank, strict=True):
            assert purse.granted <= entry.granted
            assert purse.returned >= entry.returned
            assert purse.spare >= 0
        assert outstanding(self.bank) <= self.limit


def run(seed: int, shards: int, limit: int, faults: float, steps: int) -> World:
    rng = random.Random(seed)
    world = World(rng, shards, limit, faults)
    bankers: list[Iterator[None]] = []
    for _ in range(steps):
        act = rng.random()
        if act < 0.5:
            world.bid(min(int(rng.expovariate(1)), shards - 1), rng.randrange(1, 2 * PRICE))
        elif act < 0.6 and world.holds:
            world.settle()
        elif act < 0.65 and world.late:
            shard, granted, returned = world.late.pop(rng.randrange(len(world.late)))
            world.purses[shard] = world.purses[shard].told(granted, returned)
        elif act < 0.7:
            bankers.append(world.banker())
        elif act < 0.71 and bankers:
            bankers.pop(rng.randrange(len(bankers)))  # it ends where it is
        elif bankers:
            banker = rng.choice(bankers)
            if next(banker, 0) == 0:
                bankers.remove(banker)
        world.check()
    return world


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 2**32),
    st.integers(1, 8),
    st.integers(0, 200 * PRICE),
    st.sampled_from([0.0, 0.2, 0.6]),
)
@example(6, 6, 1565, 0.6)  # one more bid, after five rounds without any
def test_nothing_is_spent_twice_and_nothing_stays_unspent(
    seed: int, shards: int, limit: int, faults: float
) -> None:
    world = run(seed, shards, limit, faults, 600)
    world.faults = 0.0
    idle = 0
    # Rounds in which no shard could bid: each may first be granted what it refused before, which
    # is too little for this bid and has to come back.
    while idle < 5 + shards:
        for _ in world.banker():
            world.check()
        bids = [world.bid(shard, PRICE) for shard in range(shards)]
        while any(world.bid(shard, PRICE) for shard in range(shards)):
            pass
        idle = 0 if any(bids) else idle + 1
    assert world.limit - world.total < PRICE


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 8))
def test_demand_at_one_shard_alone_spends_the_whole_budget(seed: int, shards: int) -> None:
    """Money that others have for nothing comes back."""
    world = run(seed, shards, 1000 * PRICE, 0.3, 400)
    world.faults = 0.0
    bids = idle = 0
    while idle < 5:
        for _ in world.banker():
            world.check()
        before = bids
        while world.bid(0, PRICE):
            bids += 1
        idle = 0 if bids > before else idle + 1
    assert world.limit - world.total < PRICE


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 8), st.integers(1, 20), st.integers(1, 4))
def test_bids_that_come_seldom_spend_the_whole_budget(
    seed: int, shards: int, bids: int, rounds: int
) -> None:
    """What a refused bid was granted is there when the next one comes, several rounds later."""
    world = run(seed, shards, bids * PRICE, 0.3, 200)
    world.faults = 0.0
    world.refused.clear()  # no other shard wants any
    for _ in range(3 * bids + 5):
        world.bid(0, PRICE)
        for _ in range(rounds):
            for _ in world.banker():
                world.check()
    assert world.limit - world.total < PRICE


def test_a_bank_that_lost_its_data_learns_before_it_grants() -> None:
    purses = [Purse(500, 100, 300), Purse(200, 0, 0)]
    bank = learn(opened(2), [purses[0], None])
    assert grant(bank, [0, 50], 1000) == bank  # the other may have anything
    bank = learn(bank, [None, purses[1]])
    assert outstanding(bank) == 600
    assert grant(bank, [0, 900], 1000)[1] == BankEntry(600, 0, is_known=True)


def test_a_purse_below_zero_is_covered_first() -> None:
    purses = [Purse(100, 0, 160), Purse(100, 0, 100)]
    bank = learn(opened(2), purses)
    moves = plan(bank, purses, [IDLE, IDLE], 50, 300, 0.1)
    after = grant(bank, moves.grants, 300)
    assert after[0].granted - purses[0].used >= 0
    assert outstanding(after) <= 300


def test_a_lower_limit_takes_money_back() -> None:
    """A budget that was cut: purses keep no more than what they should hold of it."""
    purses = [Purse(10_000, 0, 100), Purse(10_000, 0, 0)]
    bank = learn(opened(2), purses)
    moves = plan(bank, purses, [IDLE, IDLE], 10, 1_000, 0.1)
    assert moves.grants == [0, 0]
    assert min(moves.returns) > 9_000


@pytest.mark.parametrize("amount", [0, -1, 61, 10**20])
def test_a_purse_gives_back_what_it_has_not_used(amount: int) -> None:
    purse = Purse(100, 0, 40)
    assert purse.give_back(0, 60) == Purse(100, 60, 40)
    assert purse.give_back(1, 60) is None
    assert purse.give_back(0, amount) is None
