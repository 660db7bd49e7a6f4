"""The contract: what a bidder must do, and the checks of each answer.

The oracle is as plain as possible: of the campaigns in descending order of price, the first that
breaks no rule must bid. Answers are checked by the same rules, so the two cannot disagree on what a
bidder must and must not do.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from bench.market.corpus import TMAX_MS, Campaign
from workload.requests import Request
from workload.serving import LOOPBACK

ANSWER, TARGETING, FLOOR, SIZE, BLOCKS = "answer", "targeting", "floor", "size", "blocks"
PRICE, MARKUP, MISSED, LATE = "price", "markup", "missed", "late"
RULES: Final = {
    ANSWER: "200 with a bid for each impression at most, of this auction, or 204",
    TARGETING: "the campaign takes the user's segments, country and device type",
    FLOOR: "the price is at least the impression's floor",
    SIZE: "the campaign has a creative of a size that is asked for",
    BLOCKS: "neither the advertiser nor the category is blocked (`badv`, `bcat`)",
    PRICE: "the bid is of the campaign that pays most, at what it pays",
    MARKUP: "the bid has markup (`adm`)",
    MISSED: "an impression that a campaign may have gets a bid",
    LATE: f"the answer comes within {TMAX_MS} ms (`tmax`)",
}
MICROS_A_CENT: Final = 10_000


class ReceivedBid(msgspec.Struct, gc=False):
    """The fields of a bid that are checked."""

    impid: str
    price: float
    cid: str = ""
    adm: str = ""
    w: int | None = None
    h: int | None = None
    nurl: str = ""


class ReceivedSeatBid(msgspec.Struct, gc=False):
    bid: list[ReceivedBid]


class ReceivedResponse(msgspec.Struct, gc=False):
    id: str
    seatbid: list[ReceivedSeatBid] = []

    @property
    def bids(self) -> list[ReceivedBid]:
        return [bid for seat in self.seatbid for bid in seat.bid]


class Impression(NamedTuple):
    """An impression's requirements; `best_cents`: the most that a campaign pays for it, or 0."""

    floor: float
    sizes: frozenset[tuple[int, int]]
    best_cents: int = 0


class Auction(NamedTuple):
    """A request's requirements, by which campaigns are chosen."""

    segments: frozenset[int]
    country: str
    device_type: int
    domains: frozenset[str]
    categories: frozenset[str]
    impressions: Mapping[str, Impression]

    @property
    def is_bid(self) -> bool:
        return any(each.best_cents for each in self.impressions.values())


class Breach(NamedTuple):
    """A rule that an answer breaks, and the details."""

    rule: str
    detail: str


_decoder: Final = msgspec.json.Decoder(ReceivedResponse)


def bids_of(status: int, body: bytes) -> list[ReceivedBid]:
    """Return the bids of an answer; none if it is not a valid bid response."""
    try:
        return _decoder.decode(body).bids if status == 200 else []
    except msgspec.DecodeError:
        return []


def auctions(requests: Iterable[Request], campaigns: Iterable[Campaign]) -> list[Auction]:
    """Return the requests' requirements, with the most that a campaign pays for an impression."""
    dearest = sorted(campaigns, key=lambda each: -each.cpm_cents)
    return [_auction(request, dearest) for request in requests]


def _auction(request: Request, dearest: Sequence[Campaign]) -> Auction:
    asked = Auction(
        frozenset(int(each["id"]) for each in request["user"]["data"][0]["segment"]),
        request["device"]["geo"]["country"],
        request["device"]["devicetype"],
        frozenset(request.get("badv", ())),
        frozenset(request.get("bcat", ())),
        {},
    )
    taking = [each for each in dearest if next(_unfit(each, asked), None) is None]
    own = {imp["id"]: _impression(imp, asked, taking) for imp in request["imp"]}
    return asked._replace(impressions=own)


def _impression(imp: Mapping[str, Any], asked: Auction, taking: Sequence[Campaign]) -> Impression:
    sizes = frozenset(
        (each["w"], each["h"]) for each in (imp["banner"], *imp["banner"].get("format", ()))
    )
    own = Impression(imp.get("bidfloor", 0.0), sizes)
    fits = (each for each in taking if next(_unwanted(each, asked, own), None) is None)
    best = next(fits, None)
    return own._replace(best_cents=best.cpm_cents if best else 0)


def _unfit(campaign: Campaign, asked: Auction) -> Iterator[Breach]:
    """Yield the targeting rules that a campaign breaks."""
    if asked.country not in campaign.countries:
        yield Breach(TARGETING, f"country {asked.country}")
    if campaign.devices and asked.device_type not in campaign.device_types:
        yield Breach(TARGETING, f"device type {asked.device_type}")
    if asked.segments.isdisjoint(campaign.segments):
        yield Breach(TARGETING, "no segment of the user")


def _unwanted(campaign: Campaign, asked: Auction, own: Impression) -> Iterator[Breach]:
    """Yield the impression's rules that a campaign breaks."""
    if campaign.cpm_cents < round(own.floor * 100, 4):
        yield Breach(FLOOR, f"{campaign.cpm_cents / 100} USD, the floor is {own.floor}")
    if own.sizes.isdisjoint(campaign.sizes):
        yield Breach(SIZE, f"has no size of {sorted(own.sizes)}")
    if campaign.advertiser in asked.domains:
        yield Breach(BLOCKS, f"badv has {campaign.advertiser}")
    if not asked.categories.isdisjoint((campaign.category, campaign.category.partition("-")[0])):
        yield Breach(BLOCKS, f"bcat has {campaign.category}")


class Judge:
    """Checks answers against their requests; `campaign_of` turns a `cid` into a campaign's id."""

    def __init__(self, campaigns: Iterable[Campaign], campaign_of: Callable[[str], int]) -> None:
        self._campaigns = {each.id: each for each in campaigns}
        self._campaign_of = campaign_of

    def breaches(self, asked: Auction, id: str, status: int, body: bytes) -> list[Breach]:
        """Return the rules that an answer breaks, each only once."""
        return list({each.rule: each for each in self._breaches(asked, id, status, body)}.values())

    def _breaches(self, asked: Auction, id: str, status: int, body: bytes) -> Iterator[Breach]:
        bids: list[ReceivedBid] = []
        if status == 200:
            try:
                response = _decoder.decode(body)
            except msgspec.DecodeError as error:
                yield Breach(ANSWER, f"{error}")
                return
            bids = response.bids
            if response.id != id or not bids:
                yield Breach(ANSWER, f"auction {response.id!r} instead of {id!r}, {len(bids)} bids")
        elif status != 204:
            yield Breach(ANSWER, f"status {status}: {body[:100].decode(errors='replace')}")
            return
        open_for = dict(asked.impressions)
        for bid in bids:
            own = open_for.pop(bid.impid, None)
            if own is None:
                yield Breach(ANSWER, f"impression {bid.impid!r} was not asked for, or has a bid")
            else:
                yield from self._bid(asked, own, bid)
        for name, own in open_for.items():
            if own.best_cents:
                yield Breach(MISSED, f"impression {name}: {own.best_cents / 100} USD")

    def _bid(self, asked: Auction, own: Impression, bid: ReceivedBid) -> Iterator[Breach]:
        try:
            campaign = self._campaigns[self._campaign_of(bid.cid)]
        except (LookupError, ValueError):
            yield Breach(ANSWER, f"no such campaign: {bid.cid!r}")
            return
        broken = [*_unfit(campaign, asked), *_unwanted(campaign, asked, own)]
        yield from (Breach(rule, f"campaign {campaign.id}: {why}") for rule, why in broken)
        if None not in (bid.w, bid.h) and (bid.w, bid.h) not in own.sizes:
            yield Breach(SIZE, f"{bid.w}x{bid.h} instead of {sorted(own.sizes)}")
        cents = round(bid.price * 1e6) / MICROS_A_CENT
        if cents != campaign.cpm_cents or (not broken and cents != own.best_cents):
            yield Breach(PRICE, f"{bid.price} USD, the best pays {own.best_cents / 100}")
        if not bid.adm:
            yield Breach(MARKUP, "none")


def notice_wire(bid: ReceivedBid) -> bytes | None:
    """Return the bytes of a bid's win notice; None if it has no URL on this machine."""
    url = bid.nurl.replace("${AUCTION_PRICE}", f"{bid.price}")
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    if scheme != "http" or host.partition(":")[0] != LOOPBACK or not slash:
        return None
    return f"GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


def wins_of(status: int, body: bytes) -> list[bytes]:
    """Return the win notices for the bids of an answer."""
    wires = map(notice_wire, bids_of(status, body))
    return [wire for wire in wires if wire is not None]
