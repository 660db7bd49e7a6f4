"""The rule that left a request without bids (contract 11).

The matcher returns the first rule, in its own order, that refuses a campaign. The campaign that
passed the most rules shows what the request lacks: had it passed one more, it might have bid. If
that rule covers several limits (on creatives or deals), the matcher runs again without some of
them, to find the limit that matters.

Finding this campaign takes long, since many are examined. So it is done for samples of requests
only, off the bid path.
"""

from collections.abc import Container, Iterator
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from snapbid.bidding.lookups import Lookups
from snapbid.bidding.native_request import NATIVE_REQUESTS
from snapbid.bidding.request import BidRequest, Imp, Native
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.catalog.catalog import Query
from snapbid.catalog.payload import MEDIA, decode_payload
from snapbid.catalog.single import DIMENSION_NAMES, FORMAT_NAME, Refusal, dimension_name

MOST_CAMPAIGNS: Final = 1_000  # examined per impression: of more, a sample across all prices
MOST_IMPRESSIONS: Final = 4
MOST_REFUSED: Final = 50
MOST_NAMED: Final = 20  # campaigns, with the highest prices, that are asked again

SIZE: Final = "size"
SIZE_MISSING: Final = "size missing"
NATIVE_REQUEST: Final = "native request"
FLOOR: Final = "floor"
LANGUAGE: Final = "language"
PRICE: Final = "price"
DEAL_FLOOR: Final = "deal floor"
BUDGET: Final = "budget"
NO_CAMPAIGNS: Final = "no campaigns"

LABELS: Final = {  # in the order of the matcher (catalog/_index), after targeting
    Refusal.REFUSED_INACTIVE: "paused",
    Refusal.REFUSED_TIME: "flight",
    Refusal.REFUSED_USER: "no recognised user",
    Refusal.REFUSED_DEAL: "deal terms",
    Refusal.REFUSED_PRIVATE_AUCTION: "private auction",
    Refusal.REFUSED_FLOOR: FLOOR,
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
"""Labels of the refusals not caused by targeting."""
CREATIVE_LIMITS: Final = {
    "secure": ("secure",),
    "attributes": ("battr",),
    "mimes": ("mimes",),
    "protocols": ("protocols", "protocol"),
    "duration": ("minduration", "maxduration", "rqddurs", "poddur"),
    "ads": ("maxseq", "podid"),
    "linear": ("linearity",),
    "skippable": ("skip",),
    "bitrate": ("minbitrate", "maxbitrate"),
    "delivery": ("delivery",),
    "player": ("boxingallowed",),
    "apis": ("api",),
    "type": ("btype",),
    LANGUAGE: (),  # the request says so
    "native": ("request", "ver"),
    PRICE: ("mincpmpersec", "durfloors"),
}
"""Limits that may refuse a creative whose format the impression accepts, with their fields."""
RULES: Final = frozenset(
    {
        *(NO_CAMPAIGNS, BUDGET, SIZE, SIZE_MISSING, NATIVE_REQUEST, DEAL_FLOOR),
        *LABELS.values(),
        *DIMENSION_NAMES,
        *(f"creative {limit}" for limit in CREATIVE_LIMITS),
    }
) - {"paused", "product", "creative", f"creative {PRICE}"}
"""All values that `last_rule` may return."""
_ANY_ASSETS: Final = [
    {"id": id_, kind: asked}
    for id_, (kind, asked) in enumerate(
        [("title", {}), ("img", {}), ("video", {})]
        + [("data", {"type": number}) for number in range(1, 13)]
    )
]

_Verdict = tuple[Refusal, int]
_ORDER: Final = {refusal: 100 + number for number, refusal in enumerate(LABELS)}
_ORDER[Refusal.REFUSED_INACTIVE] = -1
_NOTHING: Final = (Refusal.REFUSED_INACTIVE, -1)
_ELIGIBLE: Final = (Refusal.NOT_REFUSED, -1)


def last_rule(request: BidRequest, ssp: str, snapshot: CatalogSnapshot, now_ms: int) -> str:
    """Return the rule (one of RULES) that refused the campaign which came closest to bidding."""
    asking = _Asking(request, ssp, snapshot, now_ms)
    query = asking.query(request)
    furthest, rule = _furthest(_NOTHING), NO_CAMPAIGNS
    for imp in (request.imp or ())[:MOST_IMPRESSIONS]:
        if not query.impression(imp):
            continue
        if any(query.explain(rank) == _ELIGIBLE for rank in asking.refused()):
            return BUDGET
        found: dict[_Verdict, list[int]] = {}
        for rank in _some(len(snapshot.catalog.index)):
            if not asking.is_refused(rank):
                found.setdefault(query.explain(rank), []).append(rank)
        found.pop(_ELIGIBLE, None)  # reactivated since
        verdict = max(found, key=_furthest, default=_NOTHING)
        if _furthest(verdict) > furthest:
            furthest = _furthest(verdict)
            rule = _named(verdict, found[verdict][:MOST_NAMED], imp, asking)
    return rule


class _Asking(NamedTuple):
    """A request to match, with its SSP, snapshot and time (epoch ms)."""

    request: BidRequest
    ssp: str
    snapshot: CatalogSnapshot
    now_ms: int

    def query(self, request: BidRequest) -> Query:
        """Start a search for the request, or for a changed copy of it."""
        snapshot = self.snapshot
        lookups: Lookups = snapshot.lookups.bidding_in(request.cur) or snapshot.lookups
        canonical = snapshot.catalog.ssps[self.ssp]
        return snapshot.catalog.index.query(lookups, request, self.ssp, canonical, self.now_ms)

    def is_refused(self, rank: int) -> bool:
        """Return whether the campaign is out of budget for the SSP."""
        price = self.snapshot.catalog.index.price(rank)
        return self.snapshot.is_refused_by_all(rank, price, self.ssp)

    def refused(self) -> Iterator[int]:
        return filter(self.is_refused, list(self.snapshot.refused)[:MOST_REFUSED])


def _furthest(verdict: _Verdict) -> int:
    """Rank a refusal by its rule: rules that the matcher checks later rank higher."""
    refusal, dimension = verdict
    return dimension if refusal == Refusal.REFUSED_TARGETING else _ORDER[refusal]


def _named(verdict: _Verdict, ranks: list[int], imp: Imp, asking: _Asking) -> str:
    """Name the rule that refused these campaigns."""
    refusal, dimension = verdict
    if refusal == Refusal.REFUSED_TARGETING:
        name = dimension_name(dimension)
        if name == "product":  # a person's self-exclusion is nobody else's business
            return "audience"
        return format_rule(imp, _media(ranks, asking)) if name == FORMAT_NAME else name
    if refusal == Refusal.REFUSED_DEAL:
        return _rule_of_deals(ranks, imp, asking)
    if refusal == Refusal.REFUSED_CREATIVE:
        return _rule_of_creatives(ranks, imp, asking)
    return LABELS[refusal]


def _media(ranks: list[int], asking: _Asking) -> set[int]:
    index = asking.snapshot.catalog.index
    return {one.mtype for rank in ranks for one in decode_payload(index.payload(rank)).creatives}


def format_rule(imp: Imp, media: Container[int]) -> str:
    """Return the rule that kept creatives of these media (`mtype`) from an impression."""
    if MEDIA["banner"] in media and imp.banner is not None:
        return SIZE if sizes_of(imp) else SIZE_MISSING
    if MEDIA["native"] in media and imp.native is not None:
        return NATIVE_REQUEST  # a readable request would take one
    return FORMAT_NAME


def sizes_of(imp: Imp) -> list[str]:
    """Return the distinct banner sizes of an impression."""
    banner = imp.banner
    if banner is None:
        return []
    pairs = [(format.w, format.h) for format in (*(banner.format or ()), banner)]
    return list(dict.fromkeys(f"{w}x{h}" for w, h in pairs if w and h))


def _rule_of_deals(ranks: list[int], imp: Imp, asking: _Asking) -> str:
    """Return DEAL_FLOOR if the deals' floors alone refuse the campaigns, else "deal terms"."""
    query = asking.query(asking.request)
    query.impression(with_open_deals(imp))
    verdicts = {query.explain(rank)[0] for rank in ranks}
    return DEAL_FLOOR if verdicts == {Refusal.REFUSED_DEAL} else LABELS[Refusal.REFUSED_DEAL]


def with_open_deals(imp: Imp) -> Imp:
    """Return a copy of an impression whose deals are open to all seats and advertisers."""
    if imp.pmp is None:
        return imp
    deals = [replace(deal, wseat=None, wadomain=None) for deal in imp.pmp.deals or ()]
    return replace(imp, pmp=replace(imp.pmp, deals=deals))


def _rule_of_creatives(ranks: list[int], imp: Imp, asking: _Asking) -> str:
    """Add the limits on creatives one by one; return the first that leaves no campaign."""
    query = asking.query(replace(asking.request, wlang=None, wlangb=None))
    if imp.native and NATIVE_REQUESTS.of(imp.native) is None:
        imp = replace(imp, native=None)  # an unreadable request takes no creative at all
    applied: list[str] = []
    for limit in CREATIVE_LIMITS:
        if limit != LANGUAGE:
            applied.append(limit)
            query.impression(with_limits(imp, applied))
            ranks = [rank for rank in ranks if query.explain(rank)[0] != Refusal.REFUSED_CREATIVE]
            if not ranks:
                return FLOOR if limit == PRICE else f"creative {limit}"
    return f"creative {LANGUAGE}"


def any_assets(native: Native | None) -> dict[str, Any]:
    """Return a native request that accepts any assets; its placement type is that of `native`."""
    asked = None if native is None else NATIVE_REQUESTS.of(native)
    return {"assets": _ANY_ASSETS, "plcmttype": None if asked is None else asked.plcmttype}


def with_limits(imp: Imp, kept: Container[str]) -> Imp:
    """Return a copy of an impression without its CREATIVE_LIMITS, except those in `kept`."""
    # In these fields, absence would be a limit, too.
    unlimited = {"api": list(range(32)), "request": any_assets(imp.native)}
    dropped = {
        field: unlimited.get(field)
        for limit, fields in CREATIVE_LIMITS.items()
        if limit not in kept
        for field in fields
    }
    limited: Imp = _without(imp, dropped)
    for medium in MEDIA:
        if (given := getattr(limited, medium)) is not None:
            setattr(limited, medium, _without(given, dropped))
    return limited


def _without(limited: Any, dropped: dict[str, Any]) -> Any:
    own = {name: value for name, value in dropped.items() if hasattr(limited, name)}
    if "poddur" in own and (limited.poddur or 0) > 0:
        own["podid"] = None  # without `poddur`, it would be a fixed slot
    return replace(limited, **own)


def _some(campaigns: int) -> range:
    """Return all ranks or, if there are more than MOST_CAMPAIGNS, an evenly spaced sample."""
    return range(0, campaigns, -(-campaigns // MOST_CAMPAIGNS) or 1)
