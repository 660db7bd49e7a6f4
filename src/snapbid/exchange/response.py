"""The bid response (OpenRTB 2.6, 4.2), written from templates.

Of a bid only a few values change from auction to auction, so each creative is encoded once, into
the pieces of JSON between them. Every value that is filled in is either JSON itself or
percent-encoded, and so needs no escaping inside the markup.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from snapbid.ledger.limits import Limits
from snapbid.match.compile import Advertisement, Document

# The values of a template, by the place of their name here.
SLOTS: Final = ("auction_id", "imp_id", "cachebuster")

_MACRO: Final = re.compile(rb"\{\{(\w+)\}\}")
_UNRESERVED: Final = re.compile(r"[A-Za-z0-9_.~-]+", re.ASCII)

_json: Final = msgspec.json.encode

Piece = bytes | int  # literal JSON, or one of the SLOTS


class Template(NamedTuple):
    """A creative's bid from its price on; `number` is the campaign's, for the ledger, as are
    `limits`.
    """

    number: int
    price_micros: int
    seat: str | None
    pieces: tuple[Piece, ...]
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
    pieces: list[Piece] = []
    literal = b',"price":%b,"adm":' % repr(price_micros / 1_000_000).encode()
    # Odd parts are names of macros; the markup is escaped before it is cut, the names need none.
    for place, part in enumerate(_MACRO.split(_json(creative.adm))):
        if place % 2 == 0:
            literal += part
        elif part in constants:
            literal += percent_encoded(constants[part]).encode()
        elif part.decode() in SLOTS:
            pieces += [literal, SLOTS.index(part.decode())]
            literal = b""
        else:
            literal += b"{{" + part + b"}}"
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
    pieces.append(literal + b"," + rest[1:-1])
    return Template(document.number, price_micros, document.seat, tuple(pieces), limits)


class Writer:
    """Writes responses whose notification URLs start with `base_url`."""

    def __init__(self, base_url: str) -> None:
        base = _json(base_url)[1:-1]
        self._win = b',"nurl":"' + base + b"/rtb/win?id="
        self._bill = b'","burl":"' + base + b"/rtb/bill?id="
        self._loss = b'","lurl":"' + base + b"/rtb/loss?id="

    def write(self, auction_id: str, bid_id: str, bids: Sequence[Bid]) -> bytes:
        """The body. `bid_id` is ASCII letters, digits and dashes, new for each response."""
        auction_json, auction = _identifier(auction_id)
        own = bid_id.encode()
        out = [b'{"id":', auction_json, b',"seatbid":[']
        for seat, group in _by_seat(bids):
            out.append(b'{"bid":[' if len(out) == 3 else b',{"bid":[')
            for number, bid in group:
                self._write_bid(out, bid, auction, own + b"-%d" % number)
                out.append(b",")
            out[-1] = b"]}" if seat is None else b'],"seat":%b}' % _json(seat)
        out += (b'],"bidid":"', own, b'","cur":"USD"}')
        return b"".join(out)

    def _write_bid(self, out: list[bytes], bid: Bid, auction: bytes, bid_id: bytes) -> None:
        imp_id, bid_template, deal = bid
        imp_json, imp = _cached_identifier(imp_id) if len(imp_id) <= 32 else _identifier(imp_id)
        out += (b'{"id":"', bid_id, b'","impid":', imp_json)
        values = (auction, imp, bid_id)
        for piece in bid_template.pieces:
            out.append(piece if isinstance(piece, bytes) else values[piece])
        if deal is not None:
            out += (b',"dealid":', _json(deal))
        query = b"%b&impId=%b" % (auction, imp)
        out += (self._win, query, self._bill, query, self._loss, query, b'&nbr=${AUCTION_LOSS}"}')


def _by_seat(bids: Sequence[Bid]) -> list[tuple[str | None, list[tuple[int, Bid]]]]:
    """The numbered bids of each seat, in the order of the seats' first bids."""
    if len(bids) == 1:
        return [(bids[0].template.seat, [(0, bids[0])])]
    seats: dict[str | None, list[tuple[int, Bid]]] = {}
    for number, bid in enumerate(bids):
        seats.setdefault(bid.template.seat, []).append((number, bid))
    return list(seats.items())


def percent_encoded(text: str) -> str:
    """As a query value: everything but unreserved characters (RFC 3986, 2.3) encoded."""
    return text if _UNRESERVED.fullmatch(text) else quote(text, safe="")


def _identifier(text: str) -> tuple[bytes, bytes]:
    """An id as JSON, and as a query value."""
    if _UNRESERVED.fullmatch(text):
        plain = text.encode()
        return b'"%b"' % plain, plain
    return _json(text), quote(text, safe="").encode()


_cached_identifier = lru_cache(4096)(_identifier)  # impressions are called 1, 2, 3 everywhere
