"""Budgets over several shards by escrow: who may spend what, without I/O (contract 3 and 10).

An account is a budget of a campaign, in all or of one day, in nano-USD. Its bank holds what each
shard was granted and has returned; each shard's purse holds the same of itself, and what it has
used, by spend and holds. A purse admits a bid while that is within its allowance:

    used + price <= granted - returned

Both figures only grow, so that messages may be lost, late and repeated: whoever is told one takes
the larger. A move raises the figure where the money leaves (a grant the bank's, a return the
purse's), and is told to the other side afterwards. In between the money is stranded, in neither
hand; telling again, which every round does, heals that. So nothing is ever in two hands:

    sum of used <= sum of purses' allowances <= sum of the bank's <= limit

What raises a figure must be on the replicas before the other side is told: a bank that forgot a
grant, or a purse that forgot a return, would have the money twice. A bank whose data was lost
learns from the purses, and grants nothing until it knows all of them.

Any number of bankers may work at once; a bank's changes are by compare-and-set of the whole, a
purse's return by compare-and-set of what was returned.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

SPARE_S: Final = 1.0  # how long a purse should last
LEAST_BIDS: Final = 4  # that a purse should be good for
TOTAL: Final = "t"  # the name of the account in all
FULL: Final = 3  # times what it should hold: the rest goes back


class Purse(NamedTuple):
    """A shard's part of an account."""

    granted: int = 0
    returned: int = 0
    used: int = 0

    @property
    def allowance(self) -> int:
        """What it may have used."""
        return self.granted - self.returned

    @property
    def spare(self) -> int:
        """What it may use yet; negative after wins that came when their hold had ended."""
        return self.allowance - self.used

    def hold(self, price: int) -> "Purse | None":
        """Admit a bid; None where it is beyond the allowance."""
        return None if price > self.spare else self._replace(used=self.used + price)

    def told(self, granted: int, returned: int) -> "Purse":
        """Take the larger figures; those of the bank may be old, or its own may be a copy's."""
        return self._replace(
            granted=max(self.granted, granted), returned=max(self.returned, returned)
        )

    def give_back(self, returned: int, amount: int) -> "Purse | None":
        """Return an amount that is not used; None where it is, or where something else was."""
        if returned != self.returned or not 0 < amount <= self.spare:
            return None
        return self._replace(returned=returned + amount)


class BankEntry(NamedTuple):
    """What a bank knows of a shard; `is_known` once it has heard of its purse."""

    granted: int = 0
    returned: int = 0
    is_known: bool = False


Bank: TypeAlias = tuple[BankEntry, ...]  # by shard


def opened(shards: int) -> Bank:
    """A bank that knows nothing."""
    return (BankEntry(),) * shards


def outstanding(bank: Bank) -> int:
    """What shards may have used, as far as the bank knows."""
    return sum(entry.granted - entry.returned for entry in bank)


def learn(bank: Bank, purses: Sequence[Purse | None]) -> Bank:
    """Take over what purses have; None: not heard of."""
    return tuple(
        entry
        if purse is None
        else BankEntry(
            max(entry.granted, purse.granted), max(entry.returned, purse.returned), is_known=True
        )
        for entry, purse in zip(bank, purses, strict=True)
    )


def grant(bank: Bank, wanted: Sequence[int], limit: int) -> Bank:
    """Grant the shards what they want, as far as the limit goes: each its share of what is left.

    Nothing while a shard is unknown.
    """
    free = limit - outstanding(bank)
    total = sum(wanted)
    if total <= 0 or free <= 0 or not all(entry.is_known for entry in bank):
        return bank
    given = [want if total <= free else want * free // total for want in wanted]
    return tuple(
        entry._replace(granted=entry.granted + amount)
        for entry, amount in zip(bank, given, strict=True)
    )


class Plan(NamedTuple):
    """For each shard, what it should be granted, what it should give back, and with less than what
    it should call for more."""

    grants: list[int]
    returns: list[int]
    least: list[int]


class Demand(NamedTuple):
    """What bids did to a purse since it was last looked at: its use grew; `refused` is the lowest
    cost that it has refused since it had room, or 0."""

    spent: int = 0
    refused: int = 0


IDLE: Final = Demand()


def plan(bank: Bank, purses: Sequence[Purse | None], demands: Sequence[Demand], price: int,
         limit: int, passed_s: float) -> Plan:  # fmt: skip
    """How money should move: towards a second's spend in every purse, and out of those that idle.

    `demands` are those of `passed_s`; `price` is of one bid. Targets shrink with what is left for
    all. Where that is less than what is wanted, whole bids go to purses that had to refuse one; and
    only for them what lies idle, or is too little for a bid, comes back.
    """
    shards = len(purses)
    left = limit - used_of(bank, purses)
    demands = [each if each.refused <= left else Demand(each.spent) for each in demands]
    share = max(left // (2 * shards), price)
    free = limit - outstanding(bank)
    grants, returns, least = [0] * shards, [0] * shards, [0] * shards
    for shard, purse in enumerate(purses):
        if purse is None:
            continue
        spent, refused = demands[shard]
        wanted = max(int(spent * SPARE_S / passed_s), LEAST_BIDS * price)
        target = max(min(wanted, share), refused)
        least[shard] = max(price, refused, target // 2)
        lacking = target - purse.spare
        if purse.spare < least[shard] and lacking > 0:
            grants[shard] = lacking
        elif purse.spare > FULL * target:
            returns[shard] = purse.spare - target
    if sum(grants) > free:
        _ration(grants, purses, demands, free)
        if free < 0 or any(map(_is_short, grants, purses, demands)):
            _collect(grants, returns, purses, demands, price)
    return Plan(grants, returns, least)


def used_of(bank: Bank, purses: Sequence[Purse | None]) -> int:
    """What shards have used; those that were not heard of perhaps all that they may."""
    return sum(
        entry.granted - entry.returned if purse is None else purse.used
        for entry, purse in zip(bank, purses, strict=True)
    )


def _ration(grants: list[int], purses: Sequence[Purse | None], demands: Sequence[Demand],
            free: int) -> None:  # fmt: skip
    """Cut the grants down to what is free: what is below zero first, then a bid where one was
    refused."""
    known = ((purse.spare, shard) for shard, purse in enumerate(purses) if purse is not None)
    for spare, shard in sorted(known):
        refused = demands[shard].refused
        needed = refused - spare if refused else 0
        grants[shard] = needed if 0 < needed <= free else max(min(-spare, free), 0)
        free -= grants[shard]


def _is_short(grant: int, purse: Purse | None, demand: Demand) -> bool:
    """Of money for the bid that it has refused. One that is merely low takes from nobody: what the
    others have may be for bids that come seldom."""
    return purse is not None and purse.spare + grant < demand.refused


def _collect(grants: list[int], returns: list[int], purses: Sequence[Purse | None],
             demands: Sequence[Demand], price: int) -> None:  # fmt: skip
    """Take back what is too little for a bid, and what nobody bids with."""
    for shard, purse in enumerate(purses):
        if purse is not None and not grants[shard]:
            demand = demands[shard]
            if demand == IDLE or purse.spare < max(price, demand.refused):
                returns[shard] = max(purse.spare, 0)
