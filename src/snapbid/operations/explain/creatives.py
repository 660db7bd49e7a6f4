"""Finds which creatives of a campaign fit an impression, and why the others do not.

Every verdict comes from the matcher, which is given one creative and one kind of limit at a time.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final

import msgspec

from snapbid.bidding.refusals import CREATIVE_LIMITS, LANGUAGE, PRICE, format_rule, with_limits
from snapbid.bidding.request import BidRequest, Deal, Imp
from snapbid.campaigns.campaign import Campaign, Creative, Values
from snapbid.campaigns.suspensions import CreativeSuspension
from snapbid.campaigns.vocabulary import trimmed
from snapbid.catalog.payload import MEDIA
from snapbid.catalog.single import FORMAT_NAME, Refusal
from snapbid.operations.explain import words
from snapbid.operations.explain.carried import asked
from snapbid.operations.explain.codes import BELOW_DEAL_FLOOR, CREATIVE, RuleCheck, filtered
from snapbid.operations.explain.search import Situation, ask, deals_of

MIMES: Final = "mimes"
ANY_PRICE: Final = 10**9  # micro-USD; even without a floor a price may round down to nothing
_replace = msgspec.structs.replace
SUSPENDED: Final = "suspended"
_FITS: Final = (Refusal.NOT_REFUSED, None)
_ROUNDED_OFF: Final = (Refusal.REFUSED_FLOOR, None)  # the price is zero in the bids' currency


def causes(
    creative: Creative, request: BidRequest, imp: Imp, situation: Situation, price_micros: int
) -> list[str]:
    """List the rules that keep a creative from an impression at a price (CPM).

    The list is empty if the creative fits. The campaign's other rules are ignored.
    """
    plain = BidRequest(id=request.id)
    speaking = _replace(plain, wlang=request.wlang, wlangb=request.wlangb)
    bare = Campaign(id="c", advertiser="c", cpm_micros=ANY_PRICE, creatives=(creative,))
    priced = _replace(bare, cpm_micros=price_micros)
    answer = ask(priced, speaking, _replace(imp, pmp=None, bidfloor=None), situation)
    if answer == _FITS:
        return []
    if answer == (Refusal.REFUSED_TARGETING, FORMAT_NAME):
        return [format_rule(imp, {MEDIA[creative.media]})]

    def refuses(limit: str, beside: Sequence[str] = ()) -> bool:
        answer = ask(
            priced if limit == PRICE else bare,
            speaking if limit == LANGUAGE else plain,
            _with_only(imp, creative.media, {limit, *beside}),
            situation,
        )
        return answer not in (_FITS, _ROUNDED_OFF)

    # The other limits apply to the media files of the types that `mimes` admits, if it admits any.
    beside = [] if refuses(MIMES) else [MIMES]
    return [limit for limit in CREATIVE_LIMITS if refuses(limit, beside)]


def _with_only(imp: Imp, media: str, limits: Set[str]) -> Imp:
    """Return an impression with only one format and the given limits."""
    limited = with_limits(imp, limits)
    return Imp(
        id=imp.id,
        secure=limited.secure,
        bidfloorcur=imp.bidfloorcur,
        **{media: getattr(limited, media)},
    )


def creative_rows(
    found: Sequence[tuple[Creative, list[str]]],
    price_micros: int,
    request: BidRequest,
    imp: Imp,
    suspensions: Mapping[str, CreativeSuspension],
) -> Iterator[RuleCheck]:
    """Yield a single passed check if any creative fits, otherwise a failed one for each reason.

    `suspensions`: creatives suspended at the SSP, by id.
    """
    found = [
        (creative, reasons or ([SUSPENDED] if creative.id in suspensions else []))
        for creative, reasons in found
    ]
    fitting = [creative.id for creative, reasons in found if not reasons]
    if fitting:
        fits = f"{words.some(fitting)} (of {len(found)})"
        yield RuleCheck("creatives", fits, asked(imp), True)
        return
    misfits: dict[str, list[Creative]] = {}
    for creative, reasons in found:
        for cause in reasons:
            misfits.setdefault(cause, []).append(creative)
    if suspended := [suspensions[creative.id] for creative in misfits.pop(SUSPENDED, ())]:
        names = words.some(each.creative for each in suspended)
        why, code = words.some(map(words.suspension, suspended)), filtered(suspended[0].reason)
        yield RuleCheck("creative suspended", names, why, False, code)
    for cause, creatives in misfits.items():
        own = words.some(dict.fromkeys(words.misfit(creative, cause) for creative in creatives))
        if cause == "price":
            own = f"bids {words.usd(price_micros)} for {own}"
        wants = dict.fromkeys(words.wanted(creative, request, imp, cause) for creative in creatives)
        yield RuleCheck(f"creative {cause}", own, words.some(wants), False, CREATIVE.get(cause))


def duration_rows(
    campaign: Campaign,
    fitting: tuple[Creative, ...],
    request: BidRequest,
    imp: Imp,
    situation: Situation,
) -> Iterator[RuleCheck]:
    """Check the campaign's price against the deals' minimum prices for its creatives' durations.

    Yields one row at most: none if no creative fits, or no deal sets such prices.
    """
    offered = [deal for deal, _ in offered_deals(campaign, imp, situation)]
    timed = [f"{deal.id}: {asks}" for deal in offered if (asks := words.by_duration(deal))]
    if not timed or not fitting:
        return
    only = Campaign(
        id="c",
        advertiser=campaign.advertiser,
        seat=campaign.seat,
        cpm_micros=campaign.cpm_micros,
        creatives=fitting,
        targeting={"deal": Values(include=wanted_deals(campaign))},
    )
    speaking = BidRequest(id=request.id, wlang=request.wlang, wlangb=request.wlangb)
    # A rule checked before the deals' prices would hide their verdict.
    alone = situation._replace(rivals={})
    answer = ask(only, speaking, _replace(imp, bidfloor=None), alone)
    holds = answer != (Refusal.REFUSED_DEAL, None)
    own = dict.fromkeys(words.misfit(creative, "price") for creative in fitting)
    yield RuleCheck(
        "deal price by duration",
        f"bids {words.usd(campaign.cpm_micros)} for {words.some(own)}",
        words.some(timed),
        holds,
        None if holds else BELOW_DEAL_FLOOR,
    )


def wanted_deals(campaign: Campaign) -> tuple[str | int, ...]:
    """Return the ids of the deals that a campaign targets."""
    return campaign.targeting["deal"].include if "deal" in campaign.targeting else ()


def offered_deals(campaign: Campaign, imp: Imp, situation: Situation) -> list[tuple[Deal, int]]:
    """Return the campaign's deals that the impression offers, with their floors."""
    own = {str(id) for id in wanted_deals(campaign)}
    offered = deals_of(imp, situation.lookups)
    return [(deal, floor) for deal, floor in offered if trimmed(str(deal.id)) in own]
