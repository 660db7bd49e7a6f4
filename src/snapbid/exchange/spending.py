"""What campaigns have spent and hold, as the running system sees it, for the operator.

A budgeted campaign is one whose document has a budget; what plain SQL wrote in another form has
none here.
"""

from collections.abc import Sequence
from fractions import Fraction
from time import time

import msgspec
from redis.asyncio import Redis

from snapbid.exchange.market import limits_of
from snapbid.ledger import connection
from snapbid.ledger.budgets import BATCH, Budgets, State
from snapbid.ledger.limits import Limits
from snapbid.match import document
from snapbid.match.campaign import Campaign
from snapbid.match.compile import describe
from snapbid.settings import Settings
from snapbid.warehouse.campaigns import Stored


class Spending(msgspec.Struct, frozen=True):
    """One campaign's money in USD; days are UTC, None is unlimited.

    `allowed_today` is what pacing lets it use until now; what remains counts spend and holds.
    """

    id: str
    pacing: str
    spent: float
    spent_today: float
    held: float
    daily: float | None
    allowed_today: float | None
    remaining_today: float | None
    total: float | None
    remaining: float | None


async def fetch(settings: Settings, stored: Sequence[Stored]) -> dict[str, Spending]:
    """The budgeted ones among the campaigns, by id. Raises RedisError where Redis is away."""
    assert settings.redis_url is not None
    redis = connection.connect(settings.redis_url)
    try:
        return await look(redis, settings, stored, BATCH)
    finally:
        await redis.aclose()


async def look(
    redis: Redis, settings: Settings, stored: Sequence[Stored], at_once: int
) -> dict[str, Spending]:
    """As `fetch`; no script call asks for more than `at_once`, so that none is long."""
    known = {each.number: found for each in stored if (found := _budgeted(each)) is not None}
    budgets = Budgets(redis, settings.ledger_shards, settings.hold_s, time)
    numbers = list(known)
    states: dict[int, State] = {}
    for start in range(0, len(numbers), at_once):
        states |= await budgets.states(numbers[start : start + at_once])
    now = int(time())
    return {
        campaign.id: _spending(campaign, limits, states[number], now)
        for number, (campaign, limits) in known.items()
    }


def _budgeted(stored: Stored) -> tuple[Campaign, Limits] | None:
    try:
        campaign = document.parse(document.decode(stored.document))
    except ValueError:
        return None
    budget = campaign.budget
    if budget.daily_micros is None and budget.total_micros is None:
        return None
    limits = limits_of(describe(campaign, stored.number, stored.created_at_ms))
    assert limits is not None
    return campaign, limits


def _spending(campaign: Campaign, limits: Limits, state: State, now: int) -> Spending:
    budget = campaign.budget
    allowed = limits.day_nano(now)
    total = None if budget.total_micros is None else budget.total_micros * 1000
    return Spending(
        id=campaign.id,
        pacing=budget.pacing,
        spent=_usd(state.used - state.held),
        spent_today=_usd(state.used_today - state.held_today),
        held=_usd(state.held),
        daily=None if budget.daily_micros is None else _usd(budget.daily_micros * 1000),
        allowed_today=None if allowed is None else _usd(allowed),
        remaining_today=None if allowed is None else _usd(max(allowed - state.used_today, 0)),
        total=None if total is None else _usd(total),
        remaining=None if total is None else _usd(max(total - state.used, 0)),
    )


def _usd(nano: int) -> float:
    return float(Fraction(nano, 10**9))
