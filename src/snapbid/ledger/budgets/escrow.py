"""Budgets over several shards by escrow: who may spend what, without I/O (contract 3 and 10).

A campaign's budget, in nano-USD, is for a period: in all, or one day. Its account holds what each
shard was granted and has returned; each shard's allowance holds the same of itself, and what it has
used, by spend and holds. An allowance admits a bid while that is within what it was granted:

    used + price <= granted - returned

Both figures only grow, so that messages may be lost, late and repeated: whoever is told one takes
the larger. A move raises the figure where the money leaves (a grant the account's, a return the
allowance's), and is told to the other side afterwards. In between the money is stranded, in neither
hand; telling again, which every round does, heals that. So nothing is ever in two hands:

    sum of used <= net of the allowances <= net of the account <= limit

What raises a figure must be on the replicas before the other side is told: an account that forgot a
grant, or an allowance that forgot a return, would have the money twice. An account whose data was
lost learns from the allowances, and grants nothing until it knows all of them.

Any number of allocators may work at once; an account's changes are by compare-and-set of the whole,
an allowance's return by compare-and-set of what was returned.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

SPARE_S: Final = 1.0  # how long an allowance should last
LEAST_BIDS: Final = 4  # that an allowance should be good for
TOTAL: Final = "t"  # the period that is all of a budget
FULL: Final = 3  # times what it should hold: the rest goes back


class Allowance(NamedTuple):
    """A shard's part of the budget of a period."""

    granted: int = 0
    returned: int = 0
    used: int = 0

    @property
    def net(self) -> int:
        """What it may have used."""
        return self.granted - self.returned

    @property
    def spare(self) -> int:
        """What it may use yet; negative after wins that came when their hold had ended."""
        return self.net - self.used

    def hold(self, price: int) -> "Allowance | None":
        """Admit a bid; None where it is beyond the allowance."""
        return None if price > self.spare else self._replace(used=self.used + price)

    def told(self, granted: int, returned: int) -> "Allowance":
        """Take the larger figures; those of the account may be old, or its own may be a copy's."""
        return self._replace(
            granted=max(self.granted, granted), returned=max(self.returned, returned)
        )

    def give_back(self, returned: int, amount: int) -> "Allowance | None":
        """Return an amount that is not used; None where it is, or where something else was."""
        if returned != self.returned or not 0 < amount <= self.spare:
            return None
        return self._replace(returned=returned + amount)


class AccountEntry(NamedTuple):
    """What an account knows of a shard; `is_known` once it has heard of its allowance."""

    granted: int = 0
    returned: int = 0
    is_known: bool = False


Account: TypeAlias = tuple[AccountEntry, ...]  # by shard


def opened(shards: int) -> Account:
    """An account that knows nothing."""
    return (AccountEntry(),) * shards


def outstanding(account: Account) -> int:
    """What shards may have used, as far as the account knows."""
    return sum(entry.granted - entry.returned for entry in account)


def learn(account: Account, allowances: Sequence[Allowance | None]) -> Account:
    """Take over what allowances have; None: not heard of."""
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
    """Grant the shards what they want, as far as the limit goes: each its share of what is left.

    Nothing while a shard is unknown.
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
    """For each shard, what it should be granted, what it should give back, and with less than what
    it should call for more."""

    grants: list[int]
    returns: list[int]
    least: list[int]


class Demand(NamedTuple):
    """What bids did to an allowance since it was last looked at: its use grew; `refused` is the
    lowest cost that it has refused since it had room, or 0."""

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
    """Plan how money moves: towards a second's spend in every allowance, and out of idle ones.

    `demands` are those of `passed_s`; `price` is of one bid. Targets shrink with what is left for
    all. Where that is less than what is wanted, whole bids go to allowances that had to refuse one;
    and only for them what lies idle, or is too little for a bid, comes back.
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
    """What shards have used; those that were not heard of perhaps all that they may."""
    return sum(
        entry.granted - entry.returned if allowance is None else allowance.used
        for entry, allowance in zip(account, allowances, strict=True)
    )


def _ration(grants: list[int], allowances: Sequence[Allowance | None], demands: Sequence[Demand],
            free: int) -> None:  # fmt: skip
    """Cut the grants down to what is free: what is below zero first, then a bid where one was
    refused."""
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
    """Of money for the bid that it has refused. One that is merely low takes from nobody: what the
    others have may be for bids that come seldom."""
    return allowance is not None and allowance.spare + grant < demand.refused


def _collect(grants: list[int], returns: list[int], allowances: Sequence[Allowance | None],
             demands: Sequence[Demand], price: int) -> None:  # fmt: skip
    """Take back what is too little for a bid, and what nobody bids with."""
    for shard, allowance in enumerate(allowances):
        if allowance is not None and not grants[shard]:
            demand = demands[shard]
            if demand == IDLE or allowance.spare < max(price, demand.refused):
                returns[shard] = max(allowance.spare, 0)
