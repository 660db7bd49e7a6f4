"""What the warehouse knows to be spent and the ledger does not (contract 5, point 3).

A budget is spent in the ledger. Where its data was lost, or went back to an older copy, the spend
since then is known to the warehouse alone. Budgeted campaigns do not bid in a new segment until the
drain has confirmed it: by then what was missing has been added to their budgets.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import asyncpg

from snapbid.drain.counters import ShardCounters
from snapbid.ledger.budgets import Budgets
from snapbid.ledger.segment import ShardState
from snapbid.warehouse import fence

ATTEMPTS: Final = 5
CAMPAIGNS: Final = 1000  # in one script call
DAY_S: Final = 86_400


class NanoSpend(NamedTuple):
    """Nano-USD, in all and by the bids of today."""

    total: int
    today: int


NOTHING: Final = NanoSpend(0, 0)


async def carry(
    connection: asyncpg.Connection,
    shards: Sequence[ShardCounters],
    states: Sequence[ShardState],
    budgets: Budgets,
    absorb: Callable[[], Awaitable[object]],
    now: float,
) -> None:
    """Add to the budgets what is missing, in the shards that may have lost it; `absorb` brings to
    the warehouse what was counted.

    Safe to repeat after a failure: what was added is no longer missing. Raises
    SupersededError where a segment other than those of `states` has begun.
    """
    day = int(now // DAY_S)
    missing = await fence.spend_of_day(connection, day)
    for attempt in range(ATTEMPTS):
        if not missing:
            return
        numbers = list(missing)
        before = await _spent(budgets, numbers)
        await absorb()
        known = await fence.spend_of_day(connection, day)
        after = await _spent(budgets, numbers)
        # A win in between may be in the one and not in the other.
        still = [n for n in numbers if before[n] == after[n] or attempt == ATTEMPTS - 1]
        lacking = {n: _lacking(known.get(n, (0, 0)), after[n]) for n in still}
        added = {n: spend for n, spend in lacking.items() if spend != NOTHING}
        lost = [pair for pair in zip(shards, states, strict=True) if not pair[1].is_carried]
        for index, (shard, state) in enumerate(lost):
            shares = {n: _share(spend, index, len(lost)) for n, spend in added.items()}
            rows = iter((n, *spend) for n, spend in shares.items())
            while some := list(islice(rows, CAMPAIGNS)):
                await shard.add_spend(state.segment, day, some)
        missing = {n: missing[n] for n in numbers if n not in lacking}


async def _spent(budgets: Budgets, numbers: Sequence[int]) -> Mapping[int, NanoSpend]:
    states = await budgets.states(numbers)
    return {
        number: NanoSpend(state.used - state.held, state.used_today - state.held_today)
        for number, state in states.items()
    }


def _lacking(known: tuple[int, int], spent: NanoSpend) -> NanoSpend:
    return NanoSpend(max(known[0] - spent.total, 0), max(known[1] - spent.today, 0))


def _share(spend: NanoSpend, index: int, shards: int) -> NanoSpend:
    """The part of one shard of so many."""
    return NanoSpend(*((amount + index) // shards for amount in spend))
