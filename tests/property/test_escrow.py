"""Budgets by escrow against a plain counter: messages lost, late, repeated, allocators that end.

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
    Account,
    AccountEntry,
    Allowance,
    Demand,
    grant,
    learn,
    opened,
    outstanding,
    plan,
)

PRICE: Final = 1000


def hold(allowance: Allowance, price: int) -> Allowance | None:
    """Hold a bid as a shard's script does; None if it exceeds the allowance."""
    return None if price > allowance.spare else allowance._replace(used=allowance.used + price)


def updated(allowance: Allowance, granted: int, returned: int) -> Allowance:
    """The larger of each figure: the account's, or the shard's own, may be outdated."""
    return allowance._replace(
        granted=max(allowance.granted, granted), returned=max(allowance.returned, returned)
    )


def give_back(allowance: Allowance, returned: int, amount: int) -> Allowance | None:
    """Return an unused amount; None if it is used, or if `returned` has changed."""
    if returned != allowance.returned or not 0 < amount <= allowance.spare:
        return None
    return allowance._replace(returned=returned + amount)


class World:
    """One period: its stores, messages on their way, allocators between their steps."""

    def __init__(self, rng: random.Random, shards: int, limit: int, faults: float) -> None:
        self.rng, self.limit, self.faults = rng, limit, faults
        self.allowances = [Allowance()] * shards
        self.account: Account = opened(shards)
        self.total = 0  # the oracle: spend and holds
        self.holds: list[tuple[int, int]] = []
        self.late: list[tuple[int, int, int]] = []  # figures on their way to an allowance
        self.before = [0] * shards
        self.refused: dict[int, int] = {}  # by shard, the lowest cost since it had room

    def bid(self, shard: int, price: int) -> bool:
        held = hold(self.allowances[shard], price)
        if held is None:
            self.refused[shard] = min(price, self.refused.get(shard, price))
            return False
        self.allowances[shard] = held
        self.total += price
        self.holds.append((shard, price))
        assert self.total <= self.limit
        return True

    def settle(self) -> None:
        """End a hold: as lost, or as spend."""
        shard, price = self.holds.pop(self.rng.randrange(len(self.holds)))
        if self.rng.random() < 0.5:
            allowance = self.allowances[shard]
            self.allowances[shard] = allowance._replace(used=allowance.used - price)
            self.total -= price

    def lossy(self) -> bool:
        return self.rng.random() < self.faults

    def tell(self, shard: int, granted: int, returned: int) -> None:
        """Deliver a message to an allowance: lost, late, or twice."""
        if not self.lossy():
            self.allowances[shard] = updated(self.allowances[shard], granted, returned)
            if self.allowances[shard].spare >= self.refused.get(shard, 0):
                self.refused.pop(shard, None)
        if self.lossy():
            self.late.append((shard, granted, returned))

    def allocator(self) -> Iterator[None]:
        """One round of an allocator; at each step others may interleave, and it may end."""
        read = [None if self.lossy() else allowance for allowance in self.allowances]
        yield
        account = self.account
        yield
        learnt = learn(account, read)
        demands = [
            IDLE
            if allowance is None
            else Demand(max(allowance.used - self.before[shard], 0), self.refused.get(shard, 0))
            for shard, allowance in enumerate(read)
        ]
        self.before = [p.used for p in self.allowances]
        moves = plan(learnt, read, demands, PRICE, self.limit, 0.1)
        granted = grant(learnt, moves.grants, self.limit)
        if self.account != account:  # compare and set
            return
        self.account = granted
        yield
        for shard, amount in enumerate(moves.returns):
            allowance = read[shard]
            if amount and allowance is not None and not self.lossy():
                given = give_back(self.allowances[shard], allowance.returned, amount)
                self.allowances[shard] = given or self.allowances[shard]
                yield
        for shard, entry in enumerate(granted):
            self.tell(shard, entry.granted, entry.returned)
            yield

    def check(self) -> None:
        used = sum(allowance.used for allowance in self.allowances)
        assert used == self.total
        allowed = sum(allowance.net for allowance in self.allowances)
        assert allowed <= self.limit
        for allowance, entry in zip(self.allowances, self.account, strict=True):
            assert allowance.granted <= entry.granted
            assert allowance.returned >= entry.returned
            assert allowance.spare >= 0
        assert outstanding(self.account) <= self.limit


def run(seed: int, shards: int, limit: int, faults: float, steps: int) -> World:
    rng = random.Random(seed)
    world = World(rng, shards, limit, faults)
    allocators: list[Iterator[None]] = []
    for _ in range(steps):
        act = rng.random()
        if act < 0.5:
            world.bid(min(int(rng.expovariate(1)), shards - 1), rng.randrange(1, 2 * PRICE))
        elif act < 0.6 and world.holds:
            world.settle()
        elif act < 0.65 and world.late:
            shard, granted, returned = world.late.pop(rng.randrange(len(world.late)))
            world.allowances[shard] = updated(world.allowances[shard], granted, returned)
        elif act < 0.7:
            allocators.append(world.allocator())
        elif act < 0.71 and allocators:
            allocators.pop(rng.randrange(len(allocators)))  # it ends where it is
        elif allocators:
            allocator = rng.choice(allocators)
            if next(allocator, 0) == 0:
                allocators.remove(allocator)
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
        for _ in world.allocator():
            world.check()
        bids = [world.bid(shard, PRICE) for shard in range(shards)]
        while any(world.bid(shard, PRICE) for shard in range(shards)):
            pass
        idle = 0 if any(bids) else idle + 1
    assert world.limit - world.total < PRICE


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 8))
def test_demand_at_one_shard_spends_the_whole_budget(seed: int, shards: int) -> None:
    """Money that others have for nothing comes back."""
    world = run(seed, shards, 1000 * PRICE, 0.3, 400)
    world.faults = 0.0
    bids = idle = 0
    while idle < 5:
        for _ in world.allocator():
            world.check()
        before = bids
        while world.bid(0, PRICE):
            bids += 1
        idle = 0 if bids > before else idle + 1
    assert world.limit - world.total < PRICE


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 8), st.integers(1, 20), st.integers(1, 4))
def test_infrequent_bids_spend_the_whole_budget(
    seed: int, shards: int, bids: int, rounds: int
) -> None:
    """What a refused bid was granted is there when the next one comes, several rounds later."""
    world = run(seed, shards, bids * PRICE, 0.3, 200)
    world.faults = 0.0
    world.refused.clear()  # no other shard wants any
    for _ in range(3 * bids + 5):
        world.bid(0, PRICE)
        for _ in range(rounds):
            for _ in world.allocator():
                world.check()
    assert world.limit - world.total < PRICE


def test_an_account_without_data_grants_only_after_reconciling() -> None:
    allowances = [Allowance(500, 100, 300), Allowance(200, 0, 0)]
    account = learn(opened(2), [allowances[0], None])
    assert grant(account, [0, 50], 1000) == account  # the other may have anything
    account = learn(account, [None, allowances[1]])
    assert outstanding(account) == 600
    assert grant(account, [0, 900], 1000)[1] == AccountEntry(600, 0, is_known=True)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=5), st.integers(0, 300))
@example([5, 5, 5], 10)
def test_grants_never_exceed_free_money(wanted: list[int], limit: int) -> None:
    """Another allocator may have granted since the plan was made."""
    account = learn(opened(len(wanted)), [Allowance()] * len(wanted))
    after = outstanding(grant(account, wanted, limit))
    assert after <= limit
    assert after > min(limit, sum(wanted)) - len(wanted)


def test_negative_allowances_are_covered_first() -> None:
    allowances = [Allowance(100, 0, 160), Allowance(100, 0, 100)]
    account = learn(opened(2), allowances)
    moves = plan(account, allowances, [IDLE, IDLE], 50, 300, 0.1)
    after = grant(account, moves.grants, 300)
    assert after[0].granted - allowances[0].used >= 0
    assert outstanding(after) <= 300


def test_lowering_a_limit_reclaims_money() -> None:
    """A budget that was cut: allowances keep no more than what they should hold of it."""
    allowances = [Allowance(10_000, 0, 100), Allowance(10_000, 0, 0)]
    account = learn(opened(2), allowances)
    moves = plan(account, allowances, [IDLE, IDLE], 10, 1_000, 0.1)
    assert moves.grants == [0, 0]
    assert min(moves.returns) > 9_000


@pytest.mark.parametrize("amount", [0, -1, 61, 10**20])
def test_unused_allowance_is_returned(amount: int) -> None:
    allowance = Allowance(100, 0, 40)
    assert give_back(allowance, 0, 60) == Allowance(100, 60, 40)
    assert give_back(allowance, 1, 60) is None
    assert give_back(allowance, 0, amount) is None
