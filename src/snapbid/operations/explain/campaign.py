"""Checks one campaign against one impression, rule by rule.

The matcher names the first rule that refuses the campaign. That rule is then removed from the
campaign or the request and the matcher runs again, until no rule refuses, so every verdict comes
from the live code. Budgets and caps are not checked here.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from snapbid.bidding.lookups import dsa_of
from snapbid.bidding.refusals import any_assets, with_open_deals
from snapbid.bidding.request import BidRequest, Imp, Native, Pmp
from snapbid.campaigns.campaign import Campaign, Creative, Values
from snapbid.campaigns.native import NativeAd, NativeLink
from snapbid.catalog.single import Refusal, index_of
from snapbid.operations.explain import words
from snapbid.operations.explain.carried import Carried, known_by, unrecognised
from snapbid.operations.explain.codes import BELOW_DEAL_FLOOR, Code, RuleCheck, code_of
from snapbid.operations.explain.creatives import (
    ANY_PRICE,
    causes,
    creative_rows,
    duration_rows,
    offered_deals,
    wanted_deals,
)
from snapbid.operations.explain.search import NO_RATE, Search, Situation, ask, floor_of

PRODUCT: Final = "product"
_replace = msgspec.structs.replace
_FITTING: Final = (Creative("fits", "native", native=NativeAd(NativeLink("x"), title="x")),)


def examine(
    campaign: Campaign, request: BidRequest, imp: Imp, situation: Situation
) -> list[RuleCheck]:
    """Check every rule that the campaign or the request sets, in the order of the contract."""
    refused = dict(_refusals(campaign, request, imp, situation))
    search = Search(index_of(campaign), request, situation)
    search.impression(imp)
    has = search.carried()
    rows = [
        *_own_rows(campaign, has, situation.now_ms),
        *_user_rows(campaign, request, search.user, situation),
        *_money_rows(campaign, imp, situation),
        *_limit_rows(campaign, request),
        *_pod_rows(campaign, imp, situation),
    ]
    judged = [
        _replace(row, holds=row.rule not in refused, code=refused.get(row.rule)) for row in rows
    ]
    price = campaign.cpm_micros
    found = [(each, causes(each, request, imp, situation, price)) for each in campaign.creatives]
    suspensions = situation.suspensions.get(campaign.id, {})
    judged += creative_rows(found, price, request, imp, suspensions)
    if "deal terms" not in refused:
        fitting = tuple(
            each for each, reasons in found if not reasons and each.id not in suspensions
        )
        judged += duration_rows(campaign, fitting, request, imp, situation)
    return judged


# -- the matcher's verdicts ------------------------------------------------------------------------


def _refusals(
    campaign: Campaign, request: BidRequest, imp: Imp, situation: Situation
) -> Iterator[tuple[str, Code | None]]:
    """Yield (name, code) for each rule that refuses, except creative rules.

    Each rule found is lifted by changing the campaign or the request, to find the next one. A
    campaign that has lost its deals in this way may be refused by a rule for campaigns without
    deals. That rule is yielded too, but `examine` has no row for it.
    """
    native, request_ = imp.native or Native(), any_assets(imp.native)
    native = _replace(native, request=request_, ver=None, battr=None, api=None)
    imp = _replace(imp, native=native)
    request = _replace(request, wlang=None, wlangb=None)  # limits of creatives
    campaign = _replace(campaign, creatives=_FITTING)
    while True:
        answer = ask(campaign, request, imp, situation)
        if answer is None:
            yield "floor", None
            imp = _replace(imp, bidfloor=None)
            continue
        refusal, dimension = answer
        if refusal == Refusal.NOT_REFUSED:
            return
        code = code_of(refusal, dimension)
        if refusal == Refusal.REFUSED_DEAL:
            is_priced = ask(campaign, request, with_open_deals(imp), situation) == answer
            code = BELOW_DEAL_FLOOR if is_priced else code
        if dimension == PRODUCT:
            yield PRODUCT, code
            campaign = _replace(campaign, product=None)
        elif dimension is not None:
            sides = _refusing_sides(campaign, request, imp, situation, dimension)
            assert sides, f"{dimension} refuses as a whole, but neither side of it does"
            for side in sides:
                yield f"{dimension} {side}", code
                campaign = _without_side(campaign, dimension, side)
        else:
            yield _RULES[refusal], code
            if refusal == Refusal.REFUSED_POD:
                situation = situation._replace(rivals={})
            else:
                campaign, request, imp = _without(refusal, campaign, request, imp)


_RULES: Final = {
    Refusal.REFUSED_INACTIVE: "status",
    Refusal.REFUSED_TIME: "flight",
    Refusal.REFUSED_USER: "user",
    Refusal.REFUSED_DEAL: "deal terms",
    Refusal.REFUSED_PRIVATE_AUCTION: "private auction",
    Refusal.REFUSED_FLOOR: "floor",
    Refusal.REFUSED_SEAT: "seats",
    Refusal.REFUSED_BLOCKED_APP: "blocked apps",
    Refusal.REFUSED_BLOCKED_ADVERTISER: "blocked advertisers",
    Refusal.REFUSED_BLOCKED_CATEGORY: "blocked categories",
    Refusal.REFUSED_DSA: "dsa",
    Refusal.REFUSED_POD: "pod",
    Refusal.REFUSED_DISTANCE: "geo_radius",
}


def _without(
    refusal: Refusal, campaign: Campaign, request: BidRequest, imp: Imp
) -> tuple[Campaign, BidRequest, Imp]:
    """Return the campaign, request and impression, changed so that `refusal` no longer applies."""
    match refusal:
        case Refusal.REFUSED_INACTIVE:
            campaign = _replace(campaign, status="active")
        case Refusal.REFUSED_TIME:
            campaign = _replace(campaign, starts_at_ms=None, ends_at_ms=None)
        case Refusal.REFUSED_USER:
            campaign = _replace(campaign, frequency_caps=())
        case Refusal.REFUSED_DEAL:
            campaign = _without_side(campaign, "deal", "include")
        case Refusal.REFUSED_PRIVATE_AUCTION:
            imp = _replace(imp, pmp=_replace(imp.pmp or Pmp(), private_auction=0))
        case Refusal.REFUSED_FLOOR:
            imp = _replace(imp, bidfloor=None)
            campaign = _replace(campaign, cpm_micros=ANY_PRICE)
        case Refusal.REFUSED_SEAT:
            request = _replace(request, wseat=None, bseat=None)
        case Refusal.REFUSED_BLOCKED_APP:
            request = _replace(request, bapp=None)
        case Refusal.REFUSED_BLOCKED_ADVERTISER:
            request = _replace(request, badv=None, imp=_without_own(request, "badv"))
        case Refusal.REFUSED_BLOCKED_CATEGORY:
            own = _without_own(request, "bcat")
            request = _replace(request, bcat=None, acat=None, imp=own)
        case Refusal.REFUSED_DSA:
            regs = request.regs
            assert regs is not None
            ext = regs.ext and _replace(regs.ext, dsa=None)
            request = _replace(request, regs=_replace(regs, dsa=None, ext=ext))
        case Refusal.REFUSED_DISTANCE:
            campaign = _replace(campaign, geo_radius=())
        case _:
            raise AssertionError(refusal)
    return campaign, request, imp


def _without_own(request: BidRequest, name: str) -> list[Imp]:
    """Return copies of the impressions without the list `name`, such as `badv`."""
    return [_replace(imp, **{name: None}) for imp in request.imp or ()]


def _refusing_sides(
    campaign: Campaign, request: BidRequest, imp: Imp, situation: Situation, dimension: str
) -> list[str]:
    """Return which of the dimension's lists refuse: include, exclude or both."""
    return [
        side
        for side in ("include", "exclude")
        if getattr(campaign.targeting[dimension], side)
        and ask(
            _replace(
                campaign,
                status="active",
                targeting={
                    dimension: Values(**{side: getattr(campaign.targeting[dimension], side)})
                },
            ),
            request,
            imp,
            situation,
        )
        == (Refusal.REFUSED_TARGETING, dimension)
    ]


def _without_side(campaign: Campaign, dimension: str, side: str) -> Campaign:
    values: Values = _replace(campaign.targeting[dimension], **{side: ()})
    targeting = {**campaign.targeting, dimension: values}
    if values == Values():
        del targeting[dimension]
    return _replace(campaign, targeting=targeting)


# -- both sides of each rule in words --------------------------------------------------------------


def _own_rows(campaign: Campaign, has: Carried, now_ms: int) -> Iterator[RuleCheck]:
    """Yield rows for the campaign's status, flight, targeting, product and radius."""
    yield RuleCheck("status", campaign.status, "needs an active campaign", True)
    if campaign.starts_at_ms is not None or campaign.ends_at_ms is not None:
        span = words.span(campaign.starts_at_ms, campaign.ends_at_ms)
        yield RuleCheck("flight", span, words.time(now_ms), True)
    for name, values in campaign.targeting.items():
        carries = words.some(has[name]) if name in has else words.NOTHING
        if values.include:
            yield RuleCheck(f"{name} include", words.entries(name, values.include), carries, True)
        if values.exclude:
            yield RuleCheck(f"{name} exclude", words.entries(name, values.exclude), carries, True)
    if campaign.product is not None:
        asks = f"advertises {campaign.product}, so no person who excluded themselves from it"
        restricts = campaign.product in has.get(PRODUCT, ())
        carries = "a person who did, or who opted out of marketing" if restricts else words.NOTHING
        yield RuleCheck(PRODUCT, asks, carries, True)
    if campaign.geo_radius:
        circles = [
            f"{circle.km:g} km around {circle.lat}, {circle.lon}" for circle in campaign.geo_radius
        ]
        carries = words.some(has.get("geo_radius", [])) or words.NOTHING
        yield RuleCheck("geo_radius", words.some(circles), carries, True)


def _user_rows(
    campaign: Campaign, request: BidRequest, user: str | None, situation: Situation
) -> Iterator[RuleCheck]:
    if campaign.frequency_caps:
        why = unrecognised(request, situation.withheld)
        carries = f"recognised by {known_by(user)}" if user is not None else why
        yield RuleCheck("user", "a recognised user, since it has frequency caps", carries, True)


def _money_rows(campaign: Campaign, imp: Imp, situation: Situation) -> Iterator[RuleCheck]:
    lookups, pmp = situation.lookups, imp.pmp
    price = f"bids {words.usd(campaign.cpm_micros)}"
    own = wanted_deals(campaign)
    offered = offered_deals(campaign, imp, situation)
    if offered:
        terms = [words.deal(deal, floor) for deal, floor in offered]
        seat = f", seat {campaign.seat}" if campaign.seat else ", no seat"
        yield RuleCheck(
            "deal terms", f"{price}, {campaign.advertiser}{seat}", words.some(terms), True
        )
    if not own and pmp is not None and pmp.private_auction == 1:
        yield RuleCheck("private auction", "targets no deal", "only deals may bid", True)
    floor = floor_of(imp, lookups)
    if not own or floor == NO_RATE:
        yield RuleCheck("floor", price, words.floor(floor, imp.bidfloor, imp.bidfloorcur), True)


def _limit_rows(campaign: Campaign, request: BidRequest) -> Iterator[RuleCheck]:
    """Yield a row for each of the request's limits on seats, advertisers, apps and the like."""
    if request.wseat or request.bseat:
        lists = words.lists(wseat=request.wseat, bseat=request.bseat)
        yield RuleCheck("seats", campaign.seat or "has no seat", lists, True)
    if request.bapp:
        asks = campaign.bundle or "has no bundle"
        yield RuleCheck("blocked apps", asks, words.lists(bapp=request.bapp), True)
    if blocked := words.blocked(request, "badv"):
        yield RuleCheck("blocked advertisers", campaign.advertiser, blocked, True)
    if dsa := dsa_of(request):
        asks = words.declared(campaign.dsa)
        yield RuleCheck("dsa", asks, words.declaring(dsa), True)
    if words.blocked(request, "bcat") or request.acat:
        asks = words.some(campaign.categories) or "has no categories"
        yield RuleCheck("blocked categories", asks, words.categories(request), True)


def _pod_rows(campaign: Campaign, imp: Imp, situation: Situation) -> Iterator[RuleCheck]:
    """Yield a check against the advertisers chosen for other impressions of the pod, if any."""
    if rivals := situation.rivals.get(imp.id):
        yield RuleCheck("pod", campaign.advertiser, words.rivals(rivals), True)
