"""Campaigns that are valid and can never bid again, for a warning at import."""

from typing import Final

from snapbid.campaigns.campaign import Campaign

MICROS: Final = 1_000_000
MILLE: Final = 1_000


def why_futile(campaign: Campaign, now_ms: int) -> str | None:
    """Say why a campaign can bid on nothing from `now_ms` (epoch) on; None where it can."""
    if campaign.ends_at_ms is not None and campaign.ends_at_ms <= now_ms:
        return "ends_at is in the past"
    for dimension, values in campaign.targeting.items():
        if values.exclude and values.include and set(values.include) <= set(values.exclude):
            return f"targeting.{dimension} excludes all that it includes"
    # A win costs a thousandth of the CPM, in micro-USD what the CPM has in nano-USD.
    for name, limit in (
        ("daily", campaign.budget.daily_micros),
        ("total", campaign.budget.total_micros),
    ):
        if limit is not None and limit * MILLE < campaign.cpm_micros:
            cost = f"{campaign.cpm_micros / MICROS / MILLE:f}".rstrip("0")
            return f"budget.{name} is below the cost of one win, {cost} USD"
    return None


def warning_of(campaign: Campaign, now_ms: int) -> str | None:
    """The same in a line that names the campaign."""
    why = why_futile(campaign, now_ms)
    return None if why is None else f"campaign {campaign.id} can never bid: {why}"
