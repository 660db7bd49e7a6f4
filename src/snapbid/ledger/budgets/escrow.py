"""Escrow: the rules by which shards share a budget, without I/O (contract 3 and 10).

A campaign's budget, in nano-USD, covers a period: all time, or one day. The budget's account
records each shard's grants and returns. The shard's allowance also records them, and the amount
used by spend and holds. An allowance admits a bid if enough is left of its grants:

    used + price <= granted - returned

`granted` and `returned` only grow, so messages may be lost, late or repeated: a receiver takes the
larger figure. A transfer first raises the figure on the side that gives up the money (the account's
for a grant, the allowance's for a return), then the figure on the other side. In between, neither
side has the money; if the second update fails, a later round repeats it. So the two sides never
both have the money:

    sum of used <= net of the allowances <= net of the account <= limit

A raised figure must be on the replicas before the other side is updated: if an account lost a
grant, or an allowance a return, the money would exist twice. An account that lost its data learns
from the allowances, and grants nothing until it knows all of them.

Any number of allocators may work at the same time. An allocator changes an account, or raises an
allowance's returns, only if these have not changed since it read them.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

SPARE_S: Final = 1.0  # an allowance should last this long
LEAST_BIDS: Final = 4  # and for at least this many bids
TOTAL: Final = "t"  # the period of a total budget
FULL: Final = 3  # above this multiple of its target, an allowance returns the excess


class Allowance(NamedTuple):
    """A shard's part of the budget for a period."""

    granted: int = 0
    returned: int = 0
    used: int = 0

    @property
    def net(self) -> int:
        """The amount that the shard may use: grants less returns."""
        return self.granted - self.returned

    @property
    def spare(self) -> int:
        """The unused amount; negative if wins arrived after their holds had ended."""
        return self.net - self.used


class AccountEntry(NamedTuple):
    """An account's record of a shard; `is_known`: whether the shard's allowance has been read."""

    granted: int = 0
    returned: int = 0
    is_known: bool = False


Account: TypeAlias = tuple[AccountEntry, ...]  # by shard


def opened(shards: int) -> Account:
    """Return a new account, with no shard's allowance known yet."""
    return (AccountEntry(),) * shards


def outstanding(account: Account) -> int:
    """Sum up the amounts that shards may use, according to the account."""
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


def unexplained(account: Account, allowances: Sequence[Allowance | None]) -> tuple[int, int]:
    """Sum up the grants of shards whose allowance records more than the account does.

    Returns the sum in the allowances, and the sum in the account; unknown allowances are left out.
    Unless the account has changed since it was read, a difference proves a defect: the account has
    lost grants, so it may grant the same money again.
    """
    pairs = [
        (allowance.granted, entry.granted)
        for entry, allowance in zip(account, allowances, strict=True)
        if entry.is_known and allowance is not None and allowance.granted > entry.granted
    ]
    return sum(granted for granted, _ in pairs), sum(known for _, known in pairs)


def grant(account: Account, wanted: Sequence[int], limit: int) -> Account:
    """Grant the amounts that shards want, scaled down to the limit.

    Grants nothing while an allowance is unknown.
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
    """Planned transfers; each list has a value per shard."""

    grants: list[int]
    returns: list[int]
    least: list[int]  # the levels below which to request refills


class Demand(NamedTuple):
    """The demand on an allowance since the last round.

    `spent`: the amount used since then; `refused`: the lowest cost refused since the allowance last
    had headroom, or 0.
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
    """Plan transfers that top up each allowance to a second's spend, and return the excess.

    `demands` cover the last `passed_s`; `price` is the cost of one bid. As the budget runs out,
    allowances get less. If the free money cannot top up all allowances, it only covers refused bids
    and the deficits of overspent allowances. If it does not even cover these, other allowances that
    are idle, or too small for a bid, return their money.
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
    """Sum up the amounts that shards have used; for an unavailable shard, all that it may use."""
    return sum(
        entry.granted - entry.returned if allowance is None else allowance.used
        for entry, allowance in zip(account, allowances, strict=True)
    )


def _ration(grants: list[int], allowances: Sequence[Allowance | None], demands: Sequence[Demand],
            free: int) -> None:  # fmt: skip
    """Cut `grants` to the free money, in place, serving the lowest allowances first.

    A grant raises the allowance to the cost of the refused bid. If no bid was refused, or too
    little money is free, the grant covers only the allowance's deficit, as far as possible.
    """
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
    """Whether an allowance, even with its grant, cannot cover the bid it refused.

    An allowance that is merely low is not short: it is no reason to take money back from other
    allowances, which may need it for rare bids.
    """
    return allowance is not None and allowance.spare + grant < demand.refused


def _collect(grants: list[int], returns: list[int], allowances: Sequence[Allowance | None],
             demands: Sequence[Demand], price: int) -> None:  # fmt: skip
    """Set `returns` to take back allowances that are idle, or too small for a bid."""
    for shard, allowance in enumerate(allowances):
        if allowance is not None and not grants[shard]:
            demand = demands[shard]
            if demand == IDLE or allowance.spare < max(price, demand.refused):
                returns[shard] = max(allowance.spare, 0)
