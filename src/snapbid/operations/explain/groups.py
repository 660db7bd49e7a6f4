"""Groups campaigns by the rule that refused them, and says how request and campaigns conflict."""

from collections.abc import Mapping, Sequence

import msgspec

from snapbid.bidding.refusals import DEAL_FLOOR, LABELS, format_rule
from snapbid.bidding.request import BidRequest, Deal, Imp
from snapbid.campaigns.campaign import Campaign
from snapbid.catalog.catalog import Index
from snapbid.catalog.payload import CampaignPayload, decode_payload
from snapbid.catalog.single import FORMAT_NAME, Refusal
from snapbid.ledger.bids.records import BidVerdict
from snapbid.operations.explain import words
from snapbid.operations.explain.carried import Carried, asked
from snapbid.operations.explain.codes import BELOW_DEAL_FLOOR, CAP_MET, CREATIVE, Code, code_of
from snapbid.operations.explain.search import Search

SAMPLE = 20  # campaigns named per group: those with the highest prices

CAPPED = "frequency cap reached"
PACED = "budget spent for now (even pacing)"
SPENT = "budget spent"
UNCONFIRMED = "budget not restored yet"
CAPS_UNAVAILABLE = "frequency caps unavailable"
TOO_DEAR = "cost over 1,000,000 USD"
_LIMITS = {CAPPED, CAPS_UNAVAILABLE, PACED, SPENT, UNCONFIRMED}


class Group(msgspec.Struct, frozen=True):
    """Campaigns refused by the same rule."""

    rule: str
    count: int
    why: str
    code: Code | None
    campaigns: list[str]  # ids of the first few
    limited: bool = False  # refused by budget or caps, not because of the request


class _GroupTally(msgspec.Struct):
    code: Code | None
    dimension: str | None = None
    count: int = 0
    highest: int = 0
    lowest: int = 0
    ranks: list[int] = []


class Groups:
    """Collects the campaigns that may not bid on an impression, grouped by rule.

    Add campaigns in descending order of price, since each group keeps its first few as samples.
    Floors are in micro-USD. `opened` searches the same impression as if its deals were open to
    every seat and advertiser; `rivals` are the advertisers of the other impressions in its pod.
    """

    def __init__(
        self,
        index: Index,
        imp: Imp,
        floor: int,
        deals: Sequence[tuple[Deal, int]],
        opened: Search,
        rivals: Sequence[str],
    ) -> None:
        self._index = index
        self._imp = imp
        self._floor = floor
        self._deals = deals
        self._rivals = rivals
        self._opened = opened
        self._found: dict[str, _GroupTally] = {}
        self._ids: dict[int, str] = {}

    def refuse(self, rank: int, refusal: Refusal, name: str | None) -> None:
        """Record the matcher's verdict on a campaign; `name` is the refusing dimension, if any."""
        if refusal == Refusal.NOT_REFUSED:
            return
        label, code = name or LABELS[refusal], code_of(refusal, name)
        if name == FORMAT_NAME:
            label = format_rule(self._imp, self._media(rank))
            code = CREATIVE[label]
        elif refusal == Refusal.REFUSED_DEAL and self._opened.explain(rank)[0] == refusal:
            label, code = DEAL_FLOOR, BELOW_DEAL_FLOOR
        self._add(rank, label, code, name)

    def limit(self, rank: int, verdict: str, document: CampaignPayload) -> None:
        """Record the ledger's verdict (a BidVerdict) on a campaign that may not bid."""
        if verdict == BidVerdict.OVER_CAP:
            self._add(rank, CAPPED, CAP_MET)
        elif verdict == BidVerdict.CAPS_UNAVAILABLE:
            self._add(rank, CAPS_UNAVAILABLE, None)
        elif verdict == BidVerdict.UNCONFIRMED:
            self._add(rank, UNCONFIRMED, None)
        elif verdict == BidVerdict.OVER_SUM:
            self._add(rank, TOO_DEAR, None)
        elif document.budget.pacing == "even":
            self._add(rank, PACED, None)
        else:
            self._add(rank, SPENT, None)

    def _add(self, rank: int, label: str, code: Code | None, dimension: str | None = None) -> None:
        group = self._found.setdefault(label, _GroupTally(code, dimension))
        price = self._index.price(rank)
        group.highest = max(group.highest, price)
        group.lowest = min(group.lowest, price) if group.count else price
        group.count += 1
        if len(group.ranks) < SAMPLE:
            group.ranks.append(rank)

    def _media(self, rank: int) -> set[int]:
        document = decode_payload(self._index.payload(rank))
        return {creative.mtype for creative in document.creatives}

    def samples(self) -> list[str]:
        """Return the ids of the campaigns that serve as examples."""
        for group in self._found.values():
            for rank in group.ranks:
                if rank not in self._ids:
                    self._ids[rank] = decode_payload(self._index.payload(rank)).cid
        return list(self._ids.values())

    def described(
        self, request: BidRequest, has: Carried, campaigns: Mapping[str, Campaign]
    ) -> list[Group]:
        """Describe the groups of refused campaigns, largest first.

        `campaigns`: the documents of the campaigns that `samples` lists, by id.
        """
        groups = []
        for label, group in self._found.items():
            ids = [self._ids[rank] for rank in group.ranks]
            known = [campaigns[id] for id in ids if id in campaigns]
            rule = label
            if label == "floor":
                prices = words.amount(group.highest)
                if group.lowest != group.highest:
                    prices = f"{words.amount(group.lowest)} to {prices}"
                rule = f"floor {words.amount(self._floor)} > {prices}"
            why = self._why(label, group.dimension, request, has, known)
            limited = label in _LIMITS
            groups.append(Group(rule, group.count, why, group.code, ids, limited))
        return sorted(groups, key=lambda group: -group.count)

    def _why(
        self,
        label: str,
        dimension: str | None,
        request: BidRequest,
        has: Carried,
        campaigns: Sequence[Campaign],
    ) -> str:
        if dimension == FORMAT_NAME:
            own = (
                words.creative(creative)
                for campaign in campaigns
                for creative in campaign.creatives
            )
            return f"request {asked(self._imp)}; creatives {words.some(dict.fromkeys(own))}"
        if dimension is not None or label == "geo_radius":
            return _targeted(dimension or label, has, campaigns)
        if label == "seat":
            seats = dict.fromkeys(campaign.seat or "none" for campaign in campaigns)
            limits = words.lists(wseat=request.wseat, bseat=request.bseat)
            return f"request {limits}; campaigns' seats {words.some(seats)}"
        if label == "blocked category":
            return f"request {words.categories(request)}"
        if label in _BLOCKED:
            return f"request {words.blocked(request, _BLOCKED[label])}"
        if label == "pod":
            return words.rivals(self._rivals)
        if label.startswith("deal "):
            return f"request {words.some(words.deal(*offered) for offered in self._deals)}"
        return _WHY.get(label, "")


_BLOCKED = {"blocked app": "bapp", "blocked advertiser": "badv"}
_WHY = {
    "private auction": "only campaigns that target one of its deals may bid",
    "creative": "mimes, battr, api, price by duration and the like: --campaign ID says which",
    "creative suspended": "the SSP has rejected it: snapbid creative list says why",
    "flight": "not started yet, or over",
    TOO_DEAR: "no win may cost more: cpm / 1000, times qty.multiplier",
    SPENT: "too little is left for one more bid",
    PACED: "pacing allows no more spend at this time of day",
    CAPS_UNAVAILABLE: "the shard with this user's impressions is unavailable",
    UNCONFIRMED: "Redis has restarted, and the drain has not restored the spend yet",
    "no recognised user": "campaigns with frequency caps need one",
}


def _targeted(dimension: str, has: Carried, campaigns: Sequence[Campaign]) -> str:
    """Describe both sides of a targeting rule: `request country DEU; campaigns want USA, CAN`."""
    if dimension in has:
        parts = [f"request {dimension} {words.some(has[dimension])}"]
    else:
        parts = [f"request has no {'lat and lon' if dimension == 'geo_radius' else dimension}"]
    if dimension == "geo_radius":
        return f"{parts[0]}; campaigns target other places"
    targeting = [
        campaign.targeting[dimension] for campaign in campaigns if dimension in campaign.targeting
    ]
    wanted = dict.fromkeys(value for values in targeting for value in values.include)
    unwanted = dict.fromkeys(value for values in targeting for value in values.exclude)
    if wanted:
        parts.append(f"campaigns want {words.entries(dimension, list(wanted))}")
    if unwanted and dimension in has:
        parts.append(f"campaigns exclude {words.entries(dimension, list(unwanted))}")
    return "; ".join(parts)
