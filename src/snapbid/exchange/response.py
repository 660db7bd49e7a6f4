"""The bid response (OpenRTB 2.6, 4.2), written from templates.

Of a bid only a few values change from auction to auction, so each creative is encoded once, as the
pieces between them. Every value that is filled in is either JSON itself or percent-encoded, and so
needs no escaping inside the markup.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec import Struct

from snapbid.exchange.routes import BILLING_PATH, LOSS_PATH, WIN_PATH
from snapbid.ledger.limits import Limits
from snapbid.match.compile import Advertisement, Document

# The values that may stand between a template's pieces: the bid's id, the impression's as JSON, and
# those that macros name, percent-encoded.
VALUES: Final = ("bid_id", "imp_json", "auction_id", "imp_id", "cachebuster")

_MACRO: Final = re.compile(rb"\{\{(\w+)\}\}")
_UNRESERVED: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.~-"

_END: Final = b'&nbr=${AUCTION_LOSS}"}'

_json: Final = msgspec.json.encode


class Template(Struct, frozen=True):
    """A creative's bid; `number` is the campaign's, for the ledger, as are `limits`.

    Between the `pieces` stand those of the VALUES that `pick` picks, where the pieces have empty
    places for them; the notification URLs follow. `seat` ends the list of its seat's bids.
    """

    number: int
    price_micros: int
    seat: bytes
    pieces: list[bytes]
    pick: Callable[[tuple[bytes, ...]], tuple[bytes, ...]]
    limits: Limits | None = None


class Bid(Struct, frozen=True):
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
    price = repr(price_micros / 1_000_000).encode()
    pieces = [b'{"id":"', b"", b'","impid":', b"", b',"price":%b,"adm":' % price]
    # Odd parts are names of macros; the markup is escaped before it is cut, the names need none.
    for place, part in enumerate(_MACRO.split(_json(creative.adm))):
        if place % 2 == 0:
            pieces[-1] += part
        elif part in constants:
            pieces[-1] += percent_encoded(constants[part]).encode()
        elif part.decode() in VALUES[2:]:
            pieces += (b"", b"")
            places.append(VALUES.index(part.decode()))
        else:
            pieces[-1] += b"{{" + part + b"}}"
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
    pieces[-1] += b"," + rest[1:-1]
    seat = b"]}" if document.seat is None else b'],"seat":%b}' % _json(document.seat)
    return Template(document.number, price_micros, seat, pieces, itemgetter(*places), limits)


class Writer:
    """Writes responses whose notification URLs start with `base_url`."""

    def __init__(self, base_url: str) -> None:
        win, billing, loss = (
            _json(f"{base_url}{path}?id=")[1:-1] for path in (WIN_PATH, BILLING_PATH, LOSS_PATH)
        )
        self._nurl = b',"nurl":"' + win
        self._burl = b'","burl":"' + billing
        self._lurl = b'","lurl":"' + loss

    def write(self, auction_id: str, bid_id: bytes, bids: Sequence[Bid]) -> bytes:
        """The body. `bid_id` is ASCII letters, digits and dashes, new for each response."""
        auction_json, auction = _identifier(auction_id)
        if len(bids) == 1:
            seats = [*self._bid(bids[0], auction, bid_id + b"-0"), bids[0].template.seat]
        else:
            seats = self._seats(bids, auction, bid_id)
        head = (b'{"id":', auction_json, b',"seatbid":[{"bid":[')
        return b"".join([*head, *seats, b'],"bidid":"', bid_id, b'","cur":"USD"}'])

    def _seats(self, bids: Sequence[Bid], auction: bytes, bid_id: bytes) -> list[bytes]:
        """The bids of each seat, in the order of the seats' first bids."""
        seats: dict[bytes, list[bytes]] = {}
        for number, bid in enumerate(bids):
            written = b"".join(self._bid(bid, auction, b"%b-%d" % (bid_id, number)))
            seats.setdefault(bid.template.seat, []).append(written)
        return [b',{"bid":['.join([b",".join(own) + seat for seat, own in seats.items()])]

    def _bid(self, bid: Bid, auction: bytes, bid_id: bytes) -> list[bytes]:
        """In pieces."""
        imp_id, of = bid.imp_id, bid.template
        imp_json, imp = _cached_identifier(imp_id) if len(imp_id) <= 32 else _identifier(imp_id)
        pieces = of.pieces.copy()
        pieces[1::2] = of.pick((bid_id, imp_json, auction, imp, bid_id))
        if bid.deal is not None:
            pieces.append(b',"dealid":' + _json(bid.deal))
        query = auction + b"&impId=" + imp
        pieces += (self._nurl, query, self._burl, query, self._lurl, query, _END)
        return pieces


def percent_encoded(text: str) -> str:
    """As a query value: everything but unreserved characters (RFC 3986, 2.3) encoded."""
    return quote(text, safe="")


def _identifier(text: str) -> tuple[bytes, bytes]:
    """An id as JSON, and as a query value."""
    plain = text.encode()
    if plain.replace(b"-", b"").isalnum() or not plain.translate(None, _UNRESERVED):
        return b'"' + plain + b'"', plain  # the first says so of nearly all, in half the time
    return _json(text), quote(text, safe="").encode()


_cached_identifier = lru_cache(4096)(_identifier)  # impressions are called 1, 2, 3 everywhere
