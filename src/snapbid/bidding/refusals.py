"""The rule that left a request without bids (contract 11).

The matcher returns the first rule that refuses a campaign, in its own order. The campaign that
passed the most rules shows what the request lacks: had it passed that rule too, it might have bid.
This examines every campaign, so it runs on samples, off the bid path.
"""

from collections.abc import Iterator
from typing import Final

from snapbid.bidding.lookups import NO_RATE
from snapbid.bidding.request import BidRequest, Imp
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.catalog.catalog import Index
from snapbid.catalog.payload import decode_payload
from snapbid.catalog.single import DIMENSION_NAMES, FORMAT_NAME, Refusal, dimension_name

MOST_CAMPAIGNS: Final = 1_000  # examined per impression: of more, a sample across all prices
MOST_IMPRESSIONS: Final = 4
MOST_REFUSED: Final = 50
BANNER: Final = 1  # as in OpenRTB 2.6, 4.2.3, mtype

SIZE: Final = "size"
DEAL_FLOOR: Final = "deal floor"
BUDGET: Final = "budget"
NO_CAMPAIGNS: Final = "no campaigns"

LABELS: Final = {  # in the order of the matcher (catalog/_index), after targeting
    Refusal.REFUSED_INACTIVE: "paused",
    Refusal.REFUSED_TIME: "flight",
    Refusal.REFUSED_USER: "no recognised user",
    Refusal.REFUSED_DEAL: "deal terms",
    Refusal.REFUSED_PRIVATE_AUCTION: "private auction",
    Refusal.REFUSED_FLOOR: "floor",
    Refusal.REFUSED_SEAT: "seat",
    Refusal.REFUSED_BLOCKED_APP: "blocked app",
    Refusal.REFUSED_BLOCKED_ADVERTISER: "blocked advertiser",
    Refusal.REFUSED_POD: "pod",
    Refusal.REFUSED_BLOCKED_CATEGORY: "blocked category",
    Refusal.REFUSED_DSA: "dsa",
    Refusal.REFUSED_DISTANCE: "geo_radius",
    Refusal.REFUSED_CREATIVE: "creative",
    Refusal.REFUSED_SUSPENDED: "creative suspended",
}
"""Labels of the refusals other than targeting."""
RULES: Final = frozenset(
    {NO_CAMPAIGNS, BUDGET, *LABELS.values(), SIZE, DEAL_FLOOR, *DIMENSION_NAMES}
) - {"paused", "product"}
"""All values that `last_rule` may return."""

_Verdict = tuple[Refusal, int]
_ORDER: Final = {refusal: 100 + number for number, refusal in enumerate(LABELS)}
_ORDER[Refusal.REFUSED_INACTIVE] = -1
_NOTHING: Final = (Refusal.REFUSED_INACTIVE, -1)
_ELIGIBLE: Final = (Refusal.NOT_REFUSED, -1)


def last_rule(request: BidRequest, ssp: str, snapshot: CatalogSnapshot, now_ms: int) -> str:
    """Return the rule that kept the closest campaign from bidding on a request: one of RULES."""
    catalog = snapshot.catalog
    lookups = snapshot.lookups.bidding_in(request.cur) or snapshot.lookups
    query = catalog.index.query(lookups, request, ssp, catalog.ssps[ssp], now_ms)
    furthest, rule = _furthest(_NOTHING), NO_CAMPAIGNS
    for imp in (request.imp or ())[:MOST_IMPRESSIONS]:
        if not query.impression(imp):
            continue
        if any(query.explain(rank) == _ELIGIBLE for rank in _refused(snapshot)):
            return BUDGET
        found: dict[_Verdict, list[int]] = {}
        for rank in _some(len(catalog.index)):
            if not _is_refused(snapshot, rank):
                found.setdefault(query.explain(rank), []).append(rank)
        found.pop(_ELIGIBLE, None)  # reactivated since
        verdict = max(found, key=_furthest, default=_NOTHING)
        if _furthest(verdict) > furthest:
            furthest, rule = _furthest(verdict), _named(verdict, found[verdict], imp, snapshot)
    return rule


def _furthest(verdict: _Verdict) -> int:
    """Return how far a campaign got before a refusal."""
    refusal, dimension = verdict
    return dimension if refusal == Refusal.REFUSED_TARGETING else _ORDER[refusal]


def _named(verdict: _Verdict, ranks: list[int], imp: Imp, snapshot: CatalogSnapshot) -> str:
    refusal, dimension = verdict
    index = snapshot.catalog.index
    if refusal == Refusal.REFUSED_TARGETING:
        name = dimension_name(dimension)
        if name == "product":  # that somebody excluded himself is nobody else's business
            return "audience"
        has_size = imp.banner is not None and (imp.banner.w or imp.banner.format)
        if (
            name == FORMAT_NAME
            and has_size
            and any(_has_banner(index, rank) for rank in ranks[:20])
        ):
            return SIZE
        return name
    deals = (imp.pmp.deals if imp.pmp is not None else None) or ()
    floors = [snapshot.lookups.floor_micros(deal.bidfloor, deal.bidfloorcur) for deal in deals]
    lowest = min((floor for floor in floors if floor != NO_RATE), default=0)
    if refusal == Refusal.REFUSED_DEAL and index.price(ranks[0]) < lowest:
        return DEAL_FLOOR
    return LABELS[refusal]


def _has_banner(index: Index, rank: int) -> bool:
    return any(each.mtype == BANNER for each in decode_payload(index.payload(rank)).creatives)


def _some(campaigns: int) -> range:
    """Return all ranks, or MOST_CAMPAIGNS at equal distances; ranks are in order of price."""
    return range(0, campaigns, -(-campaigns // MOST_CAMPAIGNS) or 1)


def _refused(snapshot: CatalogSnapshot) -> Iterator[int]:
    for rank in list(snapshot.refused)[:MOST_REFUSED]:
        if _is_refused(snapshot, rank):
            yield rank


def _is_refused(snapshot: CatalogSnapshot, rank: int) -> bool:
    return snapshot.is_refused_by_all(rank, snapshot.catalog.index.price(rank))
