"""What campaigns have spent and hold at the moment, for the operator.

Only campaigns with a budget are listed. A document that cannot be parsed, such as one written by
hand in SQL, counts as one without a budget.
"""

from collections.abc import Sequence
from fractions import Fraction
from time import time

import msgspec
from redis.asyncio import Redis

from snapbid.exchange.market import limits_of
from snapbid.ledger import connection
from snapbid.ledger.budgets import BATCH, Budgets, CampaignSpend
from snapbid.ledger.limits import Limits
from snapbid.match import document
from snapbid.match.campaign import Campaign
from snapbid.match.payload import build_payload
from snapbid.settings import Settings
from snapbid.warehouse.campaigns import StoredCampaign


class Spending(msgspec.Struct, frozen=True):
    """One campaign's money in USD; days are UTC, None means unlimited.

    `allowed_today` is what pacing allows until now. The remaining amounts subtract spend and holds.
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


async def fetch(settings: Settings, stored: Sequence[StoredCampaign]) -> dict[str, Spending]:
    """Fetch the spending of the campaigns with a budget, by id. Raises RedisError."""
    assert settings.redis_url is not None
    redis = connection.connect(settings.redis_url)
    try:
        return await fetch_batched(redis, settings, stored, BATCH)
    finally:
        await redis.aclose()


async def fetch_batched(
    redis: Redis, settings: Settings, stored: Sequence[StoredCampaign], batch_size: int
) -> dict[str, Spending]:
    """As `fetch`, with at most `batch_size` campaigns a script call, so that none blocks Redis."""
    budgeted = {row.number: pair for row in stored if (pair := _budgeted(row)) is not None}
    budgets = Budgets(redis, settings.ledger_shards, time)
    numbers = list(budgeted)
    states: dict[int, CampaignSpend] = {}
    for start in range(0, len(numbers), batch_size):
        states |= await budgets.states(numbers[start : start + batch_size])
    now = int(time())
    return {
        campaign.id: _spending(campaign, limits, states[number], now)
        for number, (campaign, limits) in budgeted.items()
    }


def _budgeted(stored: StoredCampaign) -> tuple[Campaign, Limits] | None:
    try:
        campaign = document.parse(document.decode(stored.document))
    except ValueError:
        return None
    budget = campaign.budget
    if budget.daily_micros is None and budget.total_micros is None:
        return None
    limits = limits_of(build_payload(campaign, stored.number, stored.created_at_ms))
    assert limits is not None
    return campaign, limits


def _spending(campaign: Campaign, limits: Limits, state: CampaignSpend, now: int) -> Spending:
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
