"""Escrow: the rules by which shards share a budget, without I/O (contract 3 and 10).

A campaign's budget, in nano-USD, is for a period: in total, or for one day. Its account records
what each shard was granted and has returned. Each shard's allowance records the same for itself,
and what it has used, by spend and holds. An allowance admits a bid within what it was granted:

    used + price <= granted - returned

Both figures only grow, so messages may be lost, late or repeated: a receiver takes the larger
figure. A transfer first raises the figure on the side that the money leaves (the account's for a
grant, the allowance's for a return); the other side is updated afterwards. In between, the money is
with neither; every round repeats the update, which repairs that. So money is never with both:

    sum of used <= net of the allowances <= net of the account <= limit

A raised figure must be on the replicas before the other side is updated: if an account lost a
grant, or an allowance a return, the money would exist twice. An account that lost its data learns
from the allowances, and grants nothing until it knows all of them.

Any number of allocators may work at once: accounts are changed by compare-and-set of the whole,
returns of allowances by compare-and-set of the amount returned so far.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

SPARE_S: Final = 1.0  # an allowance should last this long
LEAST_BIDS: Final = 4  # and for this many bids at least
TOTAL: Final = "t"  # the period of a total budget
FULL: Final = 3  # multiple of the target above which an allowance returns the excess


class Allowance(NamedTuple):
    """A shard's part of the budget for a period."""

    granted: int = 0
    returned: int = 0
    used: int = 0

    @property
    def net(self) -> int:
        """The amount available to the shard: grants less returns."""
        return self.granted - self.returned

    @property
    def spare(self) -> int:
        """What is left to use; negative if wins arrived after their holds had ended."""
        return self.net - self.used


class AccountEntry(NamedTuple):
    """An account's record of a shard; `is_known`: the account has read the allowance."""

    granted: int = 0
    returned: int = 0
    is_known: bool = False


Account: TypeAlias = tuple[AccountEntry, ...]  # by shard


def opened(shards: int) -> Account:
    """Open an account whose allowances are not known yet."""
    return (AccountEntry(),) * shards


def outstanding(account: Account) -> int:
    """Sum up what shards may use, as far as the account knows."""
    return sum(entry.granted - entry.returned for entry in account)


def learn(account: Account, allowances: Sequence[Allowance | None]) -> Account:
    """Merge the figures of allowances (None: unavailable) into an account."""
    return tuple(
        entry
        if allowance is None
        else AccountEntry(
            max(entry.granted, allowance.granted),
            max(entry.returned, allowance.returned),
            is_known=True,
        )
        for entry, allowance in zip(account, allowances, strict=True)
    )


def grant(account: Account, wanted: Sequence[int], limit: int) -> Account:
    """Grant shards the amounts they want, scaled down to what the limit leaves.

    Grants nothing while a shard is unknown.
    """
    free = limit - outstanding(account)
    total = sum(wanted)
    if total <= 0 or free <= 0 or not all(entry.is_known for entry in account):
        return account
    given = [want if total <= free else want * free // total for want in wanted]
    return tuple(
        entry._replace(granted=entry.granted + amount)
        for entry, amount in zip(account, given, strict=True)
    )


class Plan(NamedTuple):
    """For each shard, the amounts to grant and to return, and the level for refill requests."""

    grants: list[int]
    returns: list[int]
    least: list[int]


class Demand(NamedTuple):
    """How bids used an allowance since the last look.

    `spent`: the growth of its use; `refused`: the lowest cost refused since it last had headroom,
    or 0.
    """

    spent: int = 0
    refused: int = 0


IDLE: Final = Demand()


def plan(
    account: Account,
    allowances: Sequence[Allowance | None],
    demands: Sequence[Demand],
    price: int,
    limit: int,
    passed_s: float,
) -> Plan:
    """Plan transfers so that every allowance holds a second's spend, and idle ones give money back.

    `demands` cover the last `passed_s`; `price` is the cost of one bid. Targets shrink with the
    total that is left. If less is free than is wanted, money for whole bids goes to allowances that
    refused one; idle money, or money too little for a bid, is collected for these only.
    """
    shards = len(allowances)
    left = limit - used_of(account, allowances)
    demands = [each if each.refused <= left else Demand(each.spent) for each in demands]
    share = max(left // (2 * shards), price)
    free = limit - outstanding(account)
    grants, returns, least = [0] * shards, [0] * shards, [0] * shards
    for shard, allowance in enumerate(allowances):
        if allowance is None:
            continue
        spent, refused = demands[shard]
        wanted = max(int(spent * SPARE_S / passed_s), LEAST_BIDS * price)
        target = max(min(wanted, share), refused)
        least[shard] = max(price, refused, target // 2)
        lacking = target - allowance.spare
        if allowance.spare < least[shard] and lacking > 0:
            grants[shard] = lacking
        elif allowance.spare > FULL * target:
            returns[shard] = allowance.spare - target
    if sum(grants) > free:
        _ration(grants, allowances, demands, free)
        if free < 0 or any(map(_is_short, grants, allowances, demands)):
            _collect(grants, returns, allowances, demands, price)
    return Plan(grants, returns, least)


def used_of(account: Account, allowances: Sequence[Allowance | None]) -> int:
    """Sum up what shards have used; an unavailable shard counts as having used all it may."""
    return sum(
        entry.granted - entry.returned if allowance is None else allowance.used
        for entry, allowance in zip(account, allowances, strict=True)
    )


def _ration(grants: list[int], allowances: Sequence[Allowance | None], demands: Sequence[Demand],
            free: int) -> None:  # fmt: skip
    """Cut grants to what is free: cover negative allowances first, then one refused bid each."""
    known = (
        (allowance.spare, shard)
        for shard, allowance in enumerate(allowances)
        if allowance is not None
    )
    for spare, shard in sorted(known):
        refused = demands[shard].refused
        needed = refused - spare if refused else 0
        grants[shard] = needed if 0 < needed <= free else max(min(-spare, free), 0)
        free -= grants[shard]


def _is_short(grant: int, allowance: Allowance | None, demand: Demand) -> bool:
    """Return whether an allowance lacks money for the bid it refused.

    An allowance that is merely low takes from no other, which may need its money for rare bids.
    """
    return allowance is not None and allowance.spare + grant < demand.refused


def _collect(grants: list[int], returns: list[int], allowances: Sequence[Allowance | None],
             demands: Sequence[Demand], price: int) -> None:  # fmt: skip
    """Collect amounts too small for a bid, and all of idle allowances."""
    for shard, allowance in enumerate(allowances):
        if allowance is not None and not grants[shard]:
            demand = demands[shard]
            if demand == IDLE or allowance.spare < max(price, demand.refused):
                returns[shard] = max(allowance.spare, 0)
