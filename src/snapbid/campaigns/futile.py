"""Detection of valid campaigns that can never bid, for a warning at import."""

from typing import Final

from snapbid.campaigns.campaign import Campaign

MICROS: Final = 1_000_000
MILLE: Final = 1_000


def why_futile(campaign: Campaign, now_ms: int) -> str | None:
    """Return why a campaign can never bid from `now_ms` (epoch) on; None if it can."""
    if campaign.ends_at_ms is not None and campaign.ends_at_ms <= now_ms:
        return "ends_at is in the past"
    for dimension, values in campaign.targeting.items():
        if values.exclude and values.include and set(values.include) <= set(values.exclude):
            return f"targeting.{dimension} excludes all that it includes"
    # A win costs a thousandth of the CPM: as many nano-USD as the CPM has micro-USD.
    for name, limit in (
        ("daily", campaign.budget.daily_micros),
        ("total", campaign.budget.total_micros),
    ):
        if limit is not None and limit * MILLE < campaign.cpm_micros:
            cost = f"{campaign.cpm_micros / MICROS / MILLE:f}".rstrip("0")
            return f"budget.{name} is below the cost of one win, {cost} USD"
    return None


def warning_of(campaign: Campaign, now_ms: int) -> str | None:
    """Return the warning for a campaign that can never bid; None if it can."""
    why = why_futile(campaign, now_ms)
    return None if why is None else f"campaign {campaign.id} can never bid: {why}"
