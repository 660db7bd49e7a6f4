"""Deals, for the oracle (contract 3, `imp.pmp`): which of them a campaign qualifies for.

Nothing is imported from the product.
"""

from collections.abc import Iterator

from support.oracle_durations import Timed
from support.oracle_reading import Deal, Slot
from support.oracle_values import Document, covers, domain, micros


def wanted_deals(campaign: Document) -> list[str]:
    """Give the deals that a campaign includes."""
    return list(campaign.get("targeting", {}).get("deal", {}).get("include", []))


def deal_steps(slot: Slot, campaign: Document) -> Iterator[tuple[str, list[Deal]]]:
    """Narrow the offered deals down to those a campaign qualifies for, step by step."""
    price = micros(campaign["cpm"])
    left = [deal for deal in slot.deals if deal.id in wanted_deals(campaign)]
    yield "targeting.deal.include", left
    left = [deal for deal in left if deal.floor is not None]
    yield "deal.rate", left
    left = [deal for deal in left if not deal.wseat or campaign.get("seat") in deal.wseat]
    yield "deal.wseat", left
    advertiser = domain(campaign["advertiser"])
    left = [deal for deal in left if not deal.wadomain or covers(deal.wadomain, advertiser)]
    yield "deal.wadomain", left
    left = [deal for deal in left if deal.floor is not None and deal.floor <= price]
    yield "deal.floor", left


def best_deal(slot: Slot, campaign: Document, fits: list[Document]) -> Deal | None:
    """Give the best deal that a campaign qualifies for with a creative that fits the impression: a
    guaranteed one comes first, then the highest floor, then the first offered.
    """
    if not wanted_deals(campaign):
        return None
    *_, (_, qualified) = deal_steps(slot, campaign)
    qualified = [
        deal for deal in qualified if not all(unpaid(deal.timed, campaign, each) for each in fits)
    ]
    return max(qualified, key=lambda deal: (deal.guaranteed, deal.floor or 0), default=None)


def unpaid(timed: Timed, campaign: Document, creative: Document) -> list[str]:
    """Name the floors by duration that a campaign does not reach with a creative."""
    return timed.unpaid(micros(campaign["cpm"]), creative)


def refused_by_durations(slot: Slot, campaign: Document, fits: list[Document]) -> Iterator[str]:
    """Apply the floors by duration of the deals that admit a campaign."""
    if not wanted_deals(campaign):
        return
    *_, (_, left) = deal_steps(slot, campaign)
    if left and fits and best_deal(slot, campaign, fits) is None:
        pairs = (unpaid(deal.timed, campaign, each) for deal in left for each in fits)
        yield from (f"deal.{name}" for name in min(pairs, key=len))
