"""The current spend and holds of campaigns, for operators.

Only campaigns with a budget are listed. A document that cannot be parsed, such as one
written with plain SQL, counts as having no budget.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from time import time
from typing import NamedTuple

import msgspec
from redis.asyncio import Redis

from snapbid.base.settings import Settings
from snapbid.bidding.snapshot import limits_of
from snapbid.campaigns import document
from snapbid.campaigns.campaign import Campaign, outside_flight
from snapbid.catalog.payload import build_payload
from snapbid.ledger.admin import parts
from snapbid.ledger.budgets.budgets import BATCH, Budgets, CampaignSpend, summed
from snapbid.ledger.budgets.limits import Limits
from snapbid.redisclient import connection
from snapbid.warehouse.campaigns import StoredCampaign


class Spending(msgspec.Struct, frozen=True):
    """One campaign's money in USD; days are UTC, None means unlimited.

    `state` is whether the budget allows a bid now (`open`), later today (`paced`) or not today
    (`spent`), or that the flight has not begun (`scheduled`) or is over (`ended`).
    `allowed_today` is the part of the daily budget that pacing has released so far. `remaining` is
    the total budget less spend and holds, and `remaining_today` is `allowed_today` less today's
    spend and holds; neither is below 0.
    """

    id: str
    pacing: str
    state: str
    spent: float
    spent_today: float
    held: float
    daily: float | None
    allowed_today: float | None
    remaining_today: float | None
    total: float | None
    remaining: float | None


class SpendingReport(NamedTuple):
    """Spending by campaign. Figures of `unavailable` shards are missing or outdated."""

    campaigns: dict[str, Spending]
    unavailable: list[int]


async def fetch(settings: Settings, stored: Sequence[StoredCampaign]) -> SpendingReport:
    """Fetch the spending of campaigns with a budget, by id. Raises RedisError or OSError."""
    assert settings.redis_url is not None
    redis = connection.connect(settings.redis_url)
    try:
        return await SpendingReader(redis, settings.shards).fetch(stored)
    finally:
        await redis.aclose()


class SpendingReader:
    """Reads spending repeatedly, for at most `batch_size` campaigns per script call.

    An unavailable shard keeps its last known figures.
    """

    def __init__(self, redis: Redis, shards: int, batch_size: int = BATCH) -> None:
        self._budgets = Budgets(redis, shards, time)
        self._batch_size = batch_size
        self._known: list[Mapping[int, CampaignSpend]] = [{}] * shards

    async def fetch(self, stored: Sequence[StoredCampaign]) -> SpendingReport:
        """Fetch the spending of campaigns with a budget. Raises RedisError or OSError."""
        budgeted = {row.number: pair for row in stored if (pair := _budgeted(row)) is not None}
        states = await self._budgets.states_of_each(list(budgeted), self._batch_size)
        self._known = [
            before if now is None else now for before, now in zip(self._known, states, strict=True)
        ]
        sums, now_s = summed(budgeted, self._known), int(time())
        campaigns = {
            campaign.id: _spending(campaign, limits, sums[number], now_s)
            for number, (campaign, limits) in budgeted.items()
        }
        return SpendingReport(campaigns, parts.unavailable(states))


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
    daily = None if budget.daily_micros is None else budget.daily_micros * 1000
    total = None if budget.total_micros is None else budget.total_micros * 1000
    return Spending(
        id=campaign.id,
        pacing=budget.pacing,
        state=outside_flight(campaign.starts_at_ms, campaign.ends_at_ms, now * 1000)
        or _state(campaign.cpm_micros, state, allowed, daily, total),
        spent=_usd(state.used - state.held),
        spent_today=_usd(state.used_today - state.held_today),
        held=_usd(state.held),
        daily=None if daily is None else _usd(daily),
        allowed_today=None if allowed is None else _usd(allowed),
        remaining_today=None if allowed is None else _usd(max(allowed - state.used_today, 0)),
        total=None if total is None else _usd(total),
        remaining=None if total is None else _usd(max(total - state.used, 0)),
    )


def _state(
    cost: int, state: CampaignSpend, allowed: int | None, daily: int | None, total: int | None
) -> str:
    """Return a campaign's `Spending.state` during its flight.

    `cost`: the cost of one bid. All amounts are in nano-USD.
    """

    def lacks(limit: int | None, used: int) -> bool:
        return limit is not None and limit - used < cost

    if lacks(total, state.used) or lacks(daily, state.used_today):
        return "spent"
    return "paced" if lacks(allowed, state.used_today) else "open"


def _usd(nano: int) -> float:
    return float(Fraction(nano, 10**9))
