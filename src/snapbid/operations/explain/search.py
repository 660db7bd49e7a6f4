"""Runs the search that live bids use; explanations use it only through this module."""

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

from snapbid.bidding import _bid_path
from snapbid.bidding.bounds import SEARCHING
from snapbid.bidding.lookups import NO_RATE as NO_RATE
from snapbid.bidding.lookups import Lookups
from snapbid.bidding.request import BidRequest, Deal, Imp, Text
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.campaigns.campaign import Campaign
from snapbid.campaigns.suspensions import CreativeSuspension
from snapbid.catalog.catalog import Index
from snapbid.catalog.single import Refusal, dimension_name, index_of
from snapbid.operations.explain.carried import Carried, in_words


class Situation(NamedTuple):
    """The context in which a request is matched."""

    ssp: str
    canonical: str
    now_ms: int
    lookups: Lookups
    withheld: list[str]  # why user data is not used
    shards: int
    rivals: dict[Text, list[str]]  # impression -> advertisers that already hold others of its pod
    suspensions: Mapping[str, Mapping[str, CreativeSuspension]] = {}  # by campaign and creative


class Search:
    """A search of an index for one request."""

    def __init__(self, index: Index, request: BidRequest, situation: Situation) -> None:
        ssp, canonical, now_ms, lookups, *_ = situation
        self._rivals = situation.rivals
        self.query = index.query(lookups, request, ssp, canonical, now_ms)
        # The query recognises the user only for campaigns with frequency caps.
        self.user = None if situation.withheld else lookups.person(request, canonical)

    def impression(self, imp: Imp) -> bool:
        """Start to match campaigns with `imp`; return False if its floor cannot be converted."""
        return self.query.impression(imp, self._rivals.get(imp.id))

    def explain(self, rank: int) -> tuple[Refusal, str | None]:
        """Return the first rule that refuses a campaign; for targeting, also the dimension."""
        refusal, dimension = self.query.explain(rank)
        return refusal, dimension_name(dimension) if dimension >= 0 else None

    def carried(self) -> Carried:
        """Return the values of the request and current impression that targeting can match."""
        values = {dimension_name(key): own for key, own in self.query.carried().items()}
        return in_words(values, self.query.point)


def ask(
    campaign: Campaign, request: BidRequest, imp: Imp, situation: Situation
) -> tuple[Refusal, str | None] | None:
    """Return the first rule that refuses a campaign; for targeting, also the dimension.

    The campaign must be known to be refused. Returns None if the floor's currency has no exchange
    rate.
    """
    search = Search(index_of(campaign), request, situation)
    return search.explain(0) if search.impression(imp) else None


def undecided(
    request: BidRequest, situation: Situation, snapshot: CatalogSnapshot, processor_s: float
) -> int:
    """Count the impressions that the live search would leave undecided after `processor_s`."""
    ssp, _, now_ms, *_ = situation
    decision = _bid_path.search(request, ssp, snapshot, now_ms, inf, SEARCHING * processor_s)
    return (decision if isinstance(decision, _bid_path.NoBid) else decision.query).undecided


def floor_of(asking: Imp | Deal, lookups: Lookups) -> int:
    """Return the floor of an impression or a deal in micro-USD, or NO_RATE."""
    return lookups.floor_micros(asking.bidfloor, asking.bidfloorcur)


def deals_of(imp: Imp, lookups: Lookups) -> list[tuple[Deal, int]]:
    """Return the deals that an impression offers, each with its floor (micro-USD or NO_RATE)."""
    offered = (imp.pmp.deals if imp.pmp is not None else None) or ()
    return [(deal, floor_of(deal, lookups)) for deal in offered]
