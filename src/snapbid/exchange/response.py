"""The bid response (OpenRTB 2.6, 4.2), written from templates.

Of a bid only a few values change from auction to auction, so each creative is encoded once, as a
format (of %) for them. Every value that is filled in is either JSON itself or percent-encoded, and
so needs no escaping inside the markup.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from snapbid.ledger.limits import Limits
from snapbid.match.compile import Advertisement, Document

# The values that a template's format may take: the bid's id, the impression's as JSON, and those
# that macros name, percent-encoded.
VALUES: Final = ("bid_id", "imp_json", "auction_id", "imp_id", "cachebuster")

_MACRO: Final = re.compile(rb"\{\{(\w+)\}\}")
_UNRESERVED: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.~-"

_json: Final = msgspec.json.encode


class Template(NamedTuple):
    """A creative's bid; `number` is the campaign's, for the ledger, as are `limits`.

    `text` takes those of the VALUES that `pick` picks; the notification URLs follow. `seat` ends
    the list of its seat's bids.
    """

    number: int
    price_micros: int
    seat: bytes
    text: bytes
    pick: Callable[[tuple[bytes, ...]], Any]
    limits: Limits | None = None


class Bid(NamedTuple):
    """A bid before it is written; `imp_id` and `deal` as they came in the request."""

    imp_id: str
    template: Template
    deal: str | None


def template(
    document: Document, creative: Advertisement, price_micros: int, limits: Limits | None = None
) -> Template:
    """Encodes what does not change from auction to auction; the price is a CPM."""
    constants = {b"campaign_id": document.cid, b"creative_id": creative.crid}
    places = [0, 1]
    text = b'{"id":"%%b","impid":%%b,"price":%b,"adm":' % repr(price_micros / 1_000_000).encode()
    # Odd parts are names of macros; the markup is escaped before it is cut, the names need none.
    for place, part in enumerate(_MACRO.split(_json(creative.adm))):
        if place % 2 == 0:
            text += _literal(part)
        elif part in constants:
            text += _literal(percent_encoded(constants[part]).encode())
        elif part.decode() in VALUES[2:]:
            text += b"%b"
            places.append(VALUES.index(part.decode()))
        else:
            text += b"{{" + part + b"}}"
    fields: dict[str, object] = {
        "adomain": [document.adomain],
        "cid": document.cid,
        "crid": creative.crid,
        "cat": document.cat,
        "attr": creative.attr,
        "w": creative.w,
        "h": creative.h,
        "iurl": creative.iurl,
        "mtype": creative.mtype,
    }
    rest = _json({name: value for name, value in fields.items() if value not in (None, (), [])})
    text += b"," + _literal(rest[1:-1])
    seat = b"]}" if document.seat is None else b'],"seat":%b}' % _json(document.seat)
    return Template(document.number, price_micros, seat, text, itemgetter(*places), limits)


def _literal(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")


class Writer:
    """Writes responses whose notification URLs start with `base_url`."""

    def __init__(self, base_url: str) -> None:
        base = _literal(_json(base_url)[1:-1])
        urls = b"".join(
            b',"%b":"%b/rtb/%b?id=%%b' % (name, base, path)
            + (b'&nbr=${AUCTION_LOSS}"' if name == b"lurl" else b'"')
            for name, path in ((b"nurl", b"win"), (b"burl", b"bill"), (b"lurl", b"loss"))
        )
        self._urls = urls + b"}"

    def write(self, auction_id: str, bid_id: bytes, bids: Sequence[Bid]) -> bytes:
        """The body. `bid_id` is ASCII letters, digits and dashes, new for each response."""
        auction_json, auction = _identifier(auction_id)
        if len(bids) == 1:
            seats = self._bid(bids[0], auction, b"%b-0" % bid_id) + bids[0].template.seat
        else:
            seats = self._seats(bids, auction, bid_id)
        values = (auction_json, seats, bid_id)
        return b'{"id":%b,"seatbid":[{"bid":[%b],"bidid":"%b","cur":"USD"}' % values

    def _seats(self, bids: Sequence[Bid], auction: bytes, bid_id: bytes) -> bytes:
        """The bids of each seat, in the order of the seats' first bids."""
        seats: dict[bytes, list[bytes]] = {}
        for number, bid in enumerate(bids):
            written = self._bid(bid, auction, b"%b-%d" % (bid_id, number))
            seats.setdefault(bid.template.seat, []).append(written)
        return b',{"bid":['.join([b",".join(own) + seat for seat, own in seats.items()])

    def _bid(self, bid: Bid, auction: bytes, bid_id: bytes) -> bytes:
        imp_id, of, deal = bid
        imp_json, imp = _cached_identifier(imp_id) if len(imp_id) <= 32 else _identifier(imp_id)
        text: bytes = of.text % of.pick((bid_id, imp_json, auction, imp, bid_id))
        if deal is not None:
            text += b',"dealid":%b' % _json(deal)
        query = b"%b&impId=%b" % (auction, imp)
        return text + self._urls % (query, query, query)


def percent_encoded(text: str) -> str:
    """As a query value: everything but unreserved characters (RFC 3986, 2.3) encoded."""
    return quote(text, safe="")


def _identifier(text: str) -> tuple[bytes, bytes]:
    """An id as JSON, and as a query value."""
    plain = text.encode()
    if plain.translate(None, _UNRESERVED):
        return _json(text), quote(text, safe="").encode()
    return b'"%b"' % plain, plain


_cached_identifier = lru_cache(4096)(_identifier)  # impressions are called 1, 2, 3 everywhere
