"""The bid response (OpenRTB 2.6, 4.2), written from templates.

Of a bid only a few values change from auction to auction, so each creative is encoded once, into
the pieces of JSON between them. Every value that is filled in is either JSON itself or
percent-encoded, and so needs no escaping inside the markup.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from snapbid.match.compile import Advertisement, Document

# The values of a template, by the place of their name here.
SLOTS: Final = ("auction_id", "imp_id", "cachebuster")
AUCTION_ID, IMP_ID, CACHEBUSTER = range(3)

_MACRO: Final = re.compile(rb"\{\{(\w+)\}\}")
_UNRESERVED: Final = re.compile(r"[A-Za-z0-9_.~-]+", re.ASCII)

_json: Final = msgspec.json.encode

Piece = bytes | int  # literal JSON, or one of the SLOTS


class Template(NamedTuple):
    """A bid from its `adm` on: literal JSON and slots by turns."""

    seat: str | None
    markup: tuple[Piece, ...]
    rest: bytes  # what follows the markup, up to the notification URLs


class Bid(NamedTuple):
    """A bid before it is written. `imp_id` and `deal` as they came in the request."""

    imp_id: str
    price_micros: int
    template: Template
    deal: str | None


def template(document: Document, creative: Advertisement) -> Template:
    """Encodes what does not change: the markup around its macros, and the fields of the bid."""
    constants = {b"campaign_id": document.cid, b"creative_id": creative.crid}
    pieces: list[Piece] = []
    literal = b""
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
    return Template(document.seat, (*pieces, literal), b"," + rest[1:-1])


class Writer:
    """Writes responses whose notification URLs start with `base_url`."""

    def __init__(self, base_url: str) -> None:
        base = _json(base_url)[1:-1]
        self._win = b',"nurl":"' + base + b"/rtb/win?"
        self._bill = b'","burl":"' + base + b"/rtb/bill?"
        self._loss = b'","lurl":"' + base + b"/rtb/loss?"

    def write(self, auction_id: str, bid_id: str, bids: Iterable[Bid]) -> bytes:
        """The body. `bid_id` is ASCII letters, digits and dashes, new for each response."""
        own = bid_id.encode()
        auction = percent_encoded(auction_id).encode()
        seats: dict[str | None, list[bytes]] = {}
        for number, bid in enumerate(bids):
            seat = bid.template.seat
            written = seats.get(seat)
            if written is None:
                written = seats[seat] = []
            else:
                written.append(b",")
            self._write_bid(written, bid, auction, b"%b-%d" % (own, number))
        parts = [b'{"id":', _text(auction_id), b',"seatbid":[']
        for seat, written in seats.items():
            if len(parts) > 3:
                parts.append(b",")
            parts.append(b'{"bid":[')
            parts += written
            parts.append(b"]}" if seat is None else b'],"seat":%b}' % _json(seat))
        parts += [b'],"bidid":"', own, b'","cur":"USD"}']
        return b"".join(parts)

    def _write_bid(self, out: list[bytes], bid: Bid, auction: bytes, bid_id: bytes) -> None:
        imp = percent_encoded(bid.imp_id).encode()
        query = b"id=%b&impId=%b" % (auction, imp)
        values = (auction, imp, bid_id)
        out += (
            b'{"id":"',
            bid_id,
            b'","impid":',
            _text(bid.imp_id),
            b',"price":',
            repr(bid.price_micros / 1_000_000).encode(),
            b',"adm":',
        )
        out += [piece if piece.__class__ is bytes else values[piece] for piece in bid.template.markup]
        out.append(bid.template.rest)
        if bid.deal is not None:
            out += (b',"dealid":', _json(bid.deal))
        out += (self._win, query, self._bill, query, self._loss, query, b'&nbr=${AUCTION_LOSS}"}')


def percent_encoded(text: str) -> str:
    """As a query value: everything but unreserved characters (RFC 3986, 2.3) encoded."""
    return text if _UNRESERVED.fullmatch(text) else quote(text, safe="")


def _text(text: str) -> bytes:
    return b'"%b"' % text.encode() if _UNRESERVED.fullmatch(text) else _json(text)
