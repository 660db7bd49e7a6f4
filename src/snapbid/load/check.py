"""Is an answer what the request allows? (document 2; contract 3 and 4; OpenRTB 2.6, 4.2)

Judged by the request as it was sent, not by the bidder's own matcher: the limits that a request
sets are read here once more, in the plainest way. A finding is a rule, that failures are counted
by, and what was found.
"""

import re
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import Struct

from snapbid.exchange.request import BidRequest, Deal, Imp
from snapbid.reference.rates import MICROS, Rates

LOSS_MACRO: Final = "&nbr=${AUCTION_LOSS}"
BANNER, VIDEO, AUDIO, NATIVE = 1, 2, 3, 4
MEDIA: Final = {BANNER: "banner", VIDEO: "video", AUDIO: "audio", NATIVE: "native"}
_BASE: Final = re.compile(r"https?://[^/?#\s]+(/[^?#\s]*)?", re.ASCII)


class Bid(Struct, gc=False):
    """A bid as it is answered; what is required is checked by decoding."""

    id: str
    impid: str
    price: float
    adm: str
    adomain: list[str]
    cid: str
    crid: str
    mtype: int
    nurl: str
    burl: str
    lurl: str
    cat: list[str] = []
    attr: list[int] = []
    w: int | None = None
    h: int | None = None
    dealid: str | None = None


class SeatBid(Struct, gc=False):
    bid: list[Bid]
    seat: str | None = None


class Response(Struct, gc=False):
    id: str
    bidid: str
    cur: str
    seatbid: list[SeatBid]


class Finding(NamedTuple):
    """A rule that an answer breaks, and what was found."""

    rule: str
    found: str


class OfferedDeal(NamedTuple):
    """A deal of a request; the floor in micro-USD, None where it has no rate."""

    floor_micros: int | None
    seats: frozenset[str]
    domains: frozenset[str]


class Slot(NamedTuple):
    """What an impression asks for; the floor in micro-USD, None where it has no rate."""

    query: str  # how its notification URLs name it
    floor_micros: int | None
    sizes: frozenset[tuple[int | None, int | None]]
    banned: dict[int, frozenset[int]]  # attributes by media type: the media that are asked for
    deals: dict[str, OfferedDeal]
    private: bool


class Expected(NamedTuple):
    """What a request allows."""

    slots: dict[str, Slot]
    blocked_categories: frozenset[str]
    blocked_domains: frozenset[str]
    seats: frozenset[str]
    blocked_seats: frozenset[str]
    usd: bool


_decoder: Final = msgspec.json.Decoder(Response)


def expected(request: BidRequest, rates: Rates) -> Expected:
    """Reads what a request allows."""
    currencies = _texts(request.cur)
    return Expected(
        {str(imp.id): _slot(imp, rates) for imp in request.imp or ()},
        frozenset(one.upper() for one in _texts(request.bcat)),
        frozenset(one.lower() for one in _texts(request.badv)),
        frozenset(_texts(request.wseat)),
        frozenset(_texts(request.bseat)),
        not currencies or "USD" in {one.upper() for one in currencies},
    )


def _slot(imp: Imp, rates: Rates) -> Slot:
    banned: dict[int, frozenset[int]] = {}
    sizes: list[tuple[int | None, int | None]] = []
    if imp.banner is not None:
        banned[BANNER] = _numbers(imp.banner.battr)
        sizes = [(imp.banner.w, imp.banner.h)]
        sizes += [(one.w, one.h) for one in imp.banner.format or ()]
    if imp.video is not None:
        banned[VIDEO] = _numbers(imp.video.battr)
    if imp.audio is not None:
        banned[AUDIO] = _numbers(imp.audio.battr)
    if imp.native is not None:
        banned[NATIVE] = frozenset()
    deals = (imp.pmp.deals or []) if imp.pmp is not None else []
    return Slot(
        quote(str(imp.id), safe=""),
        _floor(imp.bidfloor, imp.bidfloorcur, rates),
        frozenset(sizes),
        banned,
        {str(deal.id): _deal(deal, rates) for deal in deals},
        imp.pmp is not None and imp.pmp.private_auction == 1,
    )


def _deal(deal: Deal, rates: Rates) -> OfferedDeal:
    return OfferedDeal(
        _floor(deal.bidfloor, deal.bidfloorcur, rates),
        frozenset(_texts(deal.wseat)),
        frozenset(one.lower() for one in _texts(deal.wadomain)),
    )


def _floor(amount: float | None, currency: str | None, rates: Rates) -> int | None:
    return rates.floor_micros(amount, currency or "USD") if amount and amount > 0 else 0


def _texts(values: Any) -> list[str]:
    return [str(one) for one in values or () if one is not None and one != ""]


def _numbers(values: Any) -> frozenset[int]:
    return frozenset(one for one in values or () if one is not None)


def read(body: bytes) -> Response | Finding:
    """The bid response, or why it is none."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        rule = "response" if isinstance(error, msgspec.ValidationError) else "json"
        return Finding(rule, f"{error}")


def check(response: Response, auction: str, asked: Expected) -> Finding | None:
    """The first rule that the answer to `auction` breaks; its id is of unreserved characters."""
    if response.id != auction:
        return Finding("id", f"{response.id!r} answers {auction!r}")
    if response.cur != "USD" or not asked.usd:
        return Finding("currency", f"a bid in {response.cur}")
    seen: set[str] = set()
    for seatbid in response.seatbid:
        seat = seatbid.seat or ""
        if seat in asked.blocked_seats or (asked.seats and seat not in asked.seats):
            return Finding("seat", f"{seat!r} is not admitted")
        for bid in seatbid.bid:
            slot = asked.slots.get(bid.impid)
            if slot is None or bid.impid in seen:
                return Finding("impid", f"{bid.impid!r} is not asked for, or has another bid")
            seen.add(bid.impid)
            finding = (
                _check_price(bid, seat, slot)
                or _check_creative(bid, slot)
                or _check_blocks(bid, asked)
                or _check_urls(bid, auction, slot)
            )
            if finding:
                return finding
    return None if seen else Finding("response", "a 200 without a bid")


def price_micros(bid: Bid) -> int:
    """The CPM in micro-USD; prices have at most 6 decimals (contract 2)."""
    return round(bid.price * MICROS)


def _check_price(bid: Bid, seat: str, slot: Slot) -> Finding | None:
    floor = slot.floor_micros
    if bid.dealid is not None:
        deal = slot.deals.get(bid.dealid)
        if deal is None:
            return Finding("deal", f"{bid.dealid!r} is not offered")
        if deal.seats and seat not in deal.seats:
            return Finding("deal", f"seat {seat!r} is not admitted to {bid.dealid!r}")
        if deal.domains and not any(_within(one, deal.domains) for one in bid.adomain):
            return Finding("deal", f"{bid.adomain} are not admitted to {bid.dealid!r}")
        floor = deal.floor_micros
    elif slot.private:
        return Finding("deal", "a private auction, and a bid without a deal")
    price = price_micros(bid)
    if price <= 0 or floor is None or price < floor:
        return Finding("price", f"{bid.price} USD, the floor is {_usd(floor)}")
    return None


def _check_creative(bid: Bid, slot: Slot) -> Finding | None:
    banned = slot.banned.get(bid.mtype)
    if banned is None:
        return Finding("media", f"{MEDIA.get(bid.mtype, bid.mtype)} is not asked for")
    if bid.mtype == BANNER and (bid.w, bid.h) not in slot.sizes:
        return Finding("size", f"{bid.w}x{bid.h} is not asked for")
    if banned and not banned.isdisjoint(bid.attr):
        return Finding("battr", f"{bid.attr} with {sorted(banned)} blocked")
    return None if bid.adm else Finding("adm", "is empty")


def _check_blocks(bid: Bid, asked: Expected) -> Finding | None:
    if asked.blocked_categories:
        for one in bid.cat:
            name = one.upper()
            if {name, name.partition("-")[0]} & asked.blocked_categories:
                return Finding("bcat", f"{one} is blocked")
    if not bid.adomain:
        return Finding("adomain", "is empty")
    if asked.blocked_domains:
        for one in bid.adomain:
            if _within(one, asked.blocked_domains):
                return Finding("badv", f"{one} is blocked")
    return None


def _within(domain: str, listed: frozenset[str]) -> bool:
    """Whether the domain or a parent of it is listed."""
    name = domain.lower()
    while name:
        if name in listed:
            return True
        name = name.partition(".")[2]
    return False


def _check_urls(bid: Bid, auction: str, slot: Slot) -> Finding | None:
    query = f"?id={auction}&impId={slot.query}"
    tail = f"/rtb/win{query}"
    base = bid.nurl[: -len(tail)]
    if bid.nurl != base + tail or not _BASE.fullmatch(base):
        return Finding("nurl", bid.nurl)
    if bid.burl != f"{base}/rtb/bill{query}":
        return Finding("burl", bid.burl)
    if bid.lurl != f"{base}/rtb/loss{query}{LOSS_MACRO}":
        return Finding("lurl", bid.lurl)
    return None


def _usd(micros: int | None) -> str:
    return "without a rate" if micros is None else f"{micros / MICROS:g} USD"
