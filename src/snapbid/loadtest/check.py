"""Checks an answer against its request (document 2; contract 3 and 4; OpenRTB 2.6, 4.2).

The request's limits are parsed here in the simplest way, independently of the bidder's matcher. A
failed check returns the broken rule and the details; failures are counted by rule.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import Struct

from snapbid.bidding.lookups import dsa_of
from snapbid.bidding.request import BidRequest, Deal, Imp
from snapbid.loadtest.media import MediaLimits, media_limits, misfit
from snapbid.loadtest.prices import DurationFloor, floor_of, floors_by_duration, is_paid
from snapbid.reference.rates import MICROS, Rates

LOSS_MACRO: Final = "&nbr=${AUCTION_LOSS}"
BANNER, VIDEO, AUDIO, NATIVE = 1, 2, 3, 4
MAX_PRICE: Final = 1e12  # USD 1,000,000, the highest CPM, in the cheapest currency
MEDIA: Final = {BANNER: "banner", VIDEO: "video", AUDIO: "audio", NATIVE: "native"}
_BASE: Final = re.compile(r"https?://[^/?#\s]+(/[^?#\s]*)?", re.ASCII)


class ReceivedBid(Struct, gc=False, kw_only=True):
    """A bid in any bidder's answer, with the fields that OpenRTB requires."""

    id: str
    impid: str
    price: float
    adm: str = ""
    adomain: list[str] = []
    mtype: int = 0
    nurl: str = ""
    burl: str = ""
    lurl: str = ""
    cat: list[str] = []
    attr: list[int] = []
    w: int | None = None
    h: int | None = None
    dur: int | None = None
    dealid: str | None = None
    ext: dict[str, Any] = {}


class FullBid(ReceivedBid, gc=False, kw_only=True):
    """A bid with the additional fields that document 2 requires."""

    adm: str
    adomain: list[str]
    cid: str
    crid: str
    mtype: int
    nurl: str
    burl: str
    lurl: str


class ReceivedSeatBid(Struct, gc=False, kw_only=True):
    bid: Sequence[ReceivedBid]
    seat: str | None = None


class FullSeatBid(ReceivedSeatBid, gc=False, kw_only=True):
    bid: list[FullBid]


class ReceivedResponse(Struct, gc=False, kw_only=True):
    id: str
    cur: str = "USD"
    seatbid: Sequence[ReceivedSeatBid] = []


class FullResponse(ReceivedResponse, gc=False, kw_only=True):
    bidid: str
    cur: str
    seatbid: list[FullSeatBid]


class BrokenRule(NamedTuple):
    """A rule broken by an answer, and the details."""

    rule: str
    detail: str


class DealLimits(NamedTuple):
    """The requirements of a deal; its floor is in the same unit as in `ImpLimits`."""

    floor_micros: int | None
    by_duration: list[DurationFloor]
    seats: frozenset[str]
    domains: frozenset[str]


class ImpLimits(NamedTuple):
    """The requirements of an impression.

    The floor is in millionths of the bids' currency, None if the floor's currency has no rate.
    """

    query: str  # its id, escaped as in notification URLs
    floor_micros: int | None
    sizes: frozenset[tuple[int | None, int | None]]
    blocked_attributes: dict[int, frozenset[int]]  # by media type; its keys are the media offered
    by_duration: dict[int, list[DurationFloor]]  # by media type
    deals: dict[str, DealLimits]
    private: bool
    media: dict[int, MediaLimits]  # by media type, if there are any
    pods: tuple[tuple[str, str], ...]  # medium and `podid`
    quantity: Fraction | int  # the number of impressions it stands for


class RequestLimits(NamedTuple):
    """The requirements that a bid request sets for its answer."""

    imps: dict[str, ImpLimits]
    blocked_categories: frozenset[str]
    blocked_domains: frozenset[str]
    seats: frozenset[str]
    blocked_seats: frozenset[str]
    currency: str | None  # of the bids; None if no accepted currency has a rate
    usd_per_unit: Fraction | int  # its rate
    needs_dsa: bool
    tmax_s: float
    others: Mapping[str, "RequestLimits"] = MappingProxyType({})  # by currency; see `_others`


_decoder: Final = msgspec.json.Decoder(FullResponse)
_openrtb_decoder: Final = msgspec.json.Decoder(ReceivedResponse)


def request_limits(request: BidRequest, rates: Rates) -> RequestLimits:
    """Collect the requirements that a bid request sets for its answer."""
    currency = _currency(request.cur, rates)
    limits = _request_limits(request, rates, currency)
    return limits._replace(others=_others(request, rates, currency))


def _others(request: BidRequest, rates: Rates, currency: str | None) -> Mapping[str, RequestLimits]:
    """Map the accepted currencies other than `currency` to the limits on bids in them.

    Only other bidders may use these currencies. If one has no exchange rate, bids in it can meet
    only floors in the same currency.
    """
    others = {}
    for code in dict.fromkeys(code.upper() for code in _texts(request.cur)):
        if code != currency:
            known = rates if code in rates.usd else Rates({code: Fraction(1)}, rates.date)
            others[code] = _request_limits(request, known, code)
    return others


def _request_limits(request: BidRequest, rates: Rates, currency: str | None) -> RequestLimits:
    unit = 1 if currency in (None, "USD") else rates.usd[currency]
    return RequestLimits(
        {str(imp.id): _imp_limits(request, imp, rates, unit) for imp in request.imp or ()},
        frozenset(category.upper() for category in _texts(request.bcat)),
        frozenset(domain.lower() for domain in _texts(request.badv)),
        frozenset(_texts(request.wseat)),
        frozenset(_texts(request.bseat)),
        currency,
        unit,
        _needs_dsa(request),
        request.tmax / 1000 if request.tmax and request.tmax > 0 else math.inf,
    )


def _needs_dsa(request: BidRequest) -> bool:
    asked = dsa_of(request)
    return asked is not None and asked.dsarequired in (2, 3)


def _currency(cur: Any, rates: Rates) -> str | None:
    """Return the currency that bids must have: USD if accepted, else the first one with a rate."""
    codes = [code.upper() for code in _texts(cur)]
    if not codes or "USD" in codes:
        return "USD"
    return next((code for code in codes if code in rates.usd), None)


def _imp_limits(request: BidRequest, imp: Imp, rates: Rates, unit: Fraction | int) -> ImpLimits:
    blocked: dict[int, frozenset[int]] = {}
    sizes: list[tuple[int | None, int | None]] = []
    limited: dict[int, MediaLimits | None] = {}
    if imp.banner is not None:
        blocked[BANNER] = _numbers(imp.banner.battr)
        sizes = [(imp.banner.w, imp.banner.h)]
        sizes += [(size.w, size.h) for size in imp.banner.format or ()]
    if imp.video is not None:
        blocked[VIDEO] = _numbers(imp.video.battr)
        limited[VIDEO] = media_limits(imp.video)
    if imp.audio is not None:
        blocked[AUDIO] = _numbers(imp.audio.battr)
        limited[AUDIO] = media_limits(imp.audio)
    if imp.native is not None:
        blocked[NATIVE] = _numbers(imp.native.battr)
    timed = {VIDEO: imp.video, AUDIO: imp.audio}
    deals = (imp.pmp.deals or []) if imp.pmp is not None else []
    return ImpLimits(
        quote(str(imp.id), safe=""),
        floor_of(imp.bidfloor, imp.bidfloorcur, rates, unit),
        frozenset(sizes),
        blocked,
        {
            kind: floors_by_duration(media, imp.bidfloorcur, rates, unit)
            for kind, media in timed.items()
            if media is not None
        },
        {str(deal.id): _deal_limits(deal, rates, unit) for deal in deals},
        imp.pmp is not None and imp.pmp.private_auction == 1,
        {kind: limits for kind, limits in limited.items() if limits is not None},
        tuple(_pods(imp)),
        _quantity(request, imp),
    )


def _quantity(request: BidRequest, imp: Imp) -> Fraction | int:
    is_dooh = request.dooh is not None and request.site is None and request.app is None
    stated = imp.qty.multiplier if is_dooh and imp.qty is not None else None
    return 1 if stated is None or not 0 < stated < math.inf else Fraction(repr(stated))


def _pods(imp: Imp) -> Iterator[tuple[str, str]]:
    """Yield an impression's pods as (medium, pod id); pods of two media may have the same id."""
    if imp.video is not None:
        yield from (("video", id) for id in _texts([imp.video.podid]))
    if imp.audio is not None:
        yield from (("audio", id) for id in _texts([imp.audio.podid]))


def _deal_limits(deal: Deal, rates: Rates, unit: Fraction | int) -> DealLimits:
    return DealLimits(
        floor_of(deal.bidfloor, deal.bidfloorcur, rates, unit),
        floors_by_duration(deal, deal.bidfloorcur, rates, unit),
        frozenset(_texts(deal.wseat)),
        frozenset(domain.lower() for domain in _texts(deal.wadomain)),
    )


def _texts(values: Any) -> list[str]:
    return [str(value) for value in values or () if value is not None and value != ""]


def _numbers(values: Any) -> frozenset[int]:
    return frozenset(value for value in values or () if value is not None)


def parse(body: bytes, *, ours: bool = True) -> ReceivedResponse | BrokenRule:
    """Decode a body as a bid response, or return the rule that it breaks.

    If `ours`, document 2's requirements apply, otherwise OpenRTB's.
    """
    try:
        return _decoder.decode(body) if ours else _openrtb_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        rule = "response" if isinstance(error, msgspec.ValidationError) else "json"
        return BrokenRule(rule, f"{error}")


def check(
    response: ReceivedResponse, auction: str, limits: RequestLimits, *, ours: bool = True
) -> BrokenRule | None:
    """Return the first rule that an answer breaks, or None.

    `auction` is the auction's id, which must not need escaping in a URL. If `ours`, the
    notification URLs must be those of document 2. If not, an answer needs no bid, any accepted
    currency will do, fields missing from a bid are filled in first, and the creative of a bid
    without a media type is not checked.
    """
    if response.id != auction:
        return BrokenRule("id", f"{response.id!r} answers {auction!r}")
    if not ours:
        if not has_bid(response):
            return None
        limits = limits.others.get(response.cur, limits)
    if response.cur != limits.currency:
        return BrokenRule("currency", f"a bid in {response.cur}")
    seen: set[str] = set()
    in_pods: set[tuple[str, str, str]] = set()
    for seatbid in response.seatbid:
        seat = seatbid.seat or ""
        if seat in limits.blocked_seats or (limits.seats and seat not in limits.seats):
            return BrokenRule("seat", f"{seat!r} is not admitted")
        for bid in seatbid.bid:
            imp_limits = limits.imps.get(bid.impid)
            if imp_limits is None or bid.impid in seen:
                return BrokenRule("impid", f"{bid.impid!r} was not asked for, or already has a bid")
            seen.add(bid.impid)
            if not ours:
                _complete(bid, imp_limits)
            broken = (
                _check_price(bid, seat, imp_limits, response.cur)
                or (_check_creative(bid, imp_limits) if ours or bid.mtype else None)
                or _check_blocks(bid, limits)
                or _check_pods(bid, imp_limits, in_pods)
                or (_check_urls(bid, auction, imp_limits) if ours else None)
            )
            if broken:
                return broken
    return None if seen else BrokenRule("response", "a 200 without a bid")


def has_bid(response: ReceivedResponse) -> bool:
    """Return whether a response has a bid; without one, it may have `nbr` (OpenRTB 2.6, 4.2.1)."""
    return any(seatbid.bid for seatbid in response.seatbid)


def _complete(bid: ReceivedBid, imp_limits: ImpLimits) -> None:
    """Fill in a missing media type or size if the impression allows only one.

    `nurl` stands in for missing markup, since the win notice of such a bid returns the markup.
    """
    if not bid.mtype and len(imp_limits.blocked_attributes) == 1:
        (bid.mtype,) = imp_limits.blocked_attributes
    if bid.w is bid.h is None and len(imp_limits.sizes) == 1:
        ((bid.w, bid.h),) = imp_limits.sizes
    bid.adm = bid.adm or bid.nurl


def price_micros(bid: ReceivedBid) -> int:
    """Return the CPM in millionths of its currency; prices have up to 6 decimals (contract 2)."""
    return round(bid.price * MICROS)


def cost_micros(bid: ReceivedBid, limits: RequestLimits) -> tuple[int, int]:
    """Return lower and upper bounds on the cost of a thousand wins at this price, in micro-USD.

    The bounds differ because converted prices are rounded. The impression's `quantity` multiplies
    the cost.
    """
    price, unit = price_micros(bid), limits.usd_per_unit
    quantity = limits.imps[bid.impid].quantity
    least, most = math.ceil(price * unit), math.ceil((price + 1) * unit) - 1
    return max(round(least * quantity), 1), max(round(most * quantity), 1)


def _check_price(
    bid: ReceivedBid, seat: str, imp_limits: ImpLimits, currency: str
) -> BrokenRule | None:
    floor = imp_limits.floor_micros
    by_duration = imp_limits.by_duration.get(bid.mtype, [])
    if bid.dealid is not None:
        deal = imp_limits.deals.get(bid.dealid)
        if deal is None:
            return BrokenRule("deal", f"{bid.dealid!r} is not offered")
        if deal.seats and seat not in deal.seats:
            return BrokenRule("deal", f"seat {seat!r} is not allowed on {bid.dealid!r}")
        if deal.domains and not any(_within(domain, deal.domains) for domain in bid.adomain):
            return BrokenRule("deal", f"{bid.adomain} are not allowed on {bid.dealid!r}")
        floor = deal.floor_micros
        if bid.mtype in imp_limits.by_duration:
            by_duration = by_duration + deal.by_duration
    elif imp_limits.private:
        return BrokenRule("deal", "a bid without a deal in a private auction")
    if bid.price > MAX_PRICE:
        return BrokenRule("price", f"{bid.price} {currency}")
    price = price_micros(bid)
    if price <= 0 or floor is None or price < floor:
        return BrokenRule("price", f"{bid.price} {currency}, the floor is {_amount(floor)}")
    if not all(is_paid(price, bid.dur, entry) for entry in by_duration):
        detail = f"{bid.price} {currency} for {bid.dur} s is below a floor for durations"
        return BrokenRule("price", detail)
    return None


def _check_creative(bid: ReceivedBid, imp_limits: ImpLimits) -> BrokenRule | None:
    blocked = imp_limits.blocked_attributes.get(bid.mtype)
    if blocked is None:
        return BrokenRule("media", f"{MEDIA.get(bid.mtype, bid.mtype)} was not asked for")
    if bid.mtype == BANNER and (bid.w, bid.h) not in imp_limits.sizes:
        return BrokenRule("size", f"{bid.w}x{bid.h} was not asked for")
    if blocked and not blocked.isdisjoint(bid.attr):
        return BrokenRule("battr", f"{bid.attr} with {sorted(blocked)} blocked")
    if not bid.adm:
        return BrokenRule("adm", "is empty")
    limits = imp_limits.media.get(bid.mtype)
    broken = misfit(limits, bid.adm, bid.attr, bid.w, bid.h) if limits is not None else None
    return broken and BrokenRule(*broken)


def _check_blocks(bid: ReceivedBid, limits: RequestLimits) -> BrokenRule | None:
    if limits.blocked_categories:
        for category in bid.cat:
            name = category.upper()
            if {name, name.partition("-")[0]} & limits.blocked_categories:
                return BrokenRule("bcat", f"{category} is blocked")
    if limits.needs_dsa and not bid.ext.get("dsa"):
        return BrokenRule("dsa", "ext.dsa is missing")
    if not bid.adomain:
        return BrokenRule("adomain", "is empty")
    if limits.blocked_domains:
        for domain in bid.adomain:
            if _within(domain, limits.blocked_domains):
                return BrokenRule("badv", f"{domain} is blocked")
    return None


def _check_pods(
    bid: ReceivedBid, imp_limits: ImpLimits, seen: set[tuple[str, str, str]]
) -> BrokenRule | None:
    """Check that no advertiser has two bids in a pod; add this bid's advertisers to `seen`."""
    own = {(*pod, domain.lower()) for pod in imp_limits.pods for domain in bid.adomain}
    if not seen.isdisjoint(own):
        return BrokenRule("pod", f"{bid.adomain} has two impressions of a pod")
    seen |= own
    return None


def _within(domain: str, listed: frozenset[str]) -> bool:
    """Return whether the domain or one of its parents is listed."""
    name = domain.lower()
    while name:
        if name in listed:
            return True
        name = name.partition(".")[2]
    return False


def _check_urls(bid: ReceivedBid, auction: str, imp_limits: ImpLimits) -> BrokenRule | None:
    query = f"?id={auction}&impId={imp_limits.query}"
    tail = f"/rtb/win{query}"
    base = bid.nurl[: -len(tail)]
    if bid.nurl != base + tail or not _BASE.fullmatch(base):
        return BrokenRule("nurl", bid.nurl)
    if bid.burl != f"{base}/rtb/bill{query}":
        return BrokenRule("burl", bid.burl)
    if bid.lurl != f"{base}/rtb/loss{query}{LOSS_MACRO}":
        return BrokenRule("lurl", bid.lurl)
    return None


def _amount(micros: int | None) -> str:
    return "in a currency without a rate" if micros is None else f"{micros / MICROS:g}"
