"""The bid response (OpenRTB 2.6, 4.2), written from templates.

Only a few values of a bid change from auction to auction, so each creative is encoded once, as the
pieces between those values. A value that is filled in is either JSON itself or percent-encoded, so
it needs no escaping inside the markup.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec import Struct, structs

from snapbid.exchange.routes import BILLING_PATH, LOSS_PATH, WIN_PATH
from snapbid.ledger.limits import Limits
from snapbid.ledger.records import marked
from snapbid.match.campaign import Declaration
from snapbid.match.payload import CampaignPayload, CreativePayload
from snapbid.match.rests import marks_of

# The values between a template's pieces: the bid's id, the impression's id as JSON, and those of
# macros, percent-encoded.
VALUES: Final = ("bid_id", "imp_json", "auction_id", "imp_id", "cachebuster")

MAX_ANSWER: Final = 262_144  # bytes of all bids, if they are several

_MACRO: Final = re.compile(rb"\{\{(\w+)\}\}")
_UNRESERVED: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.~-"

_ADM: Final = b',"adm":'
_PRICED: Final = 4  # the piece with the price, which the markup follows
_END: Final = b'&nbr=${AUCTION_LOSS}"}'

_json: Final = msgspec.json.encode


class Template(Struct, frozen=True):
    """A creative's bid; for the ledger `number`, of campaign and creative (`marked`), and `limits`.

    Every second of the `pieces` is empty and takes one of the VALUES, in the order in which `pick`
    returns them. The notification URLs follow. `seat` closes the list of the seat's bids. What
    follows is for the auction log: `sent_micros` is the price in the currency of the answer.
    """

    number: int
    price_micros: int
    seat: bytes
    pieces: list[bytes]
    pick: Callable[[tuple[bytes, ...]], tuple[bytes, ...]]
    limits: Limits | None = None
    campaign: str = ""
    creative: str = ""
    sent_micros: int = 0


def adapted(template: Template, price_micros: int, dsa: Declaration | None) -> Template:
    """Return the template with a price in millionths of another currency, and a declaration."""
    pieces = template.pieces.copy()
    markup = pieces[_PRICED].index(_ADM)
    pieces[_PRICED] = _price(price_micros) + pieces[_PRICED][markup:]
    if dsa is not None:
        pieces[-1] += b',"ext":{"dsa":%b}' % _json(dsa)
    return structs.replace(template, pieces=pieces, sent_micros=price_micros)


class Bid(Struct, frozen=True):
    """A bid before it is written; `imp_id` and `deal` are the request's own ids.

    `cost_micros`: what the ledger counts in place of the price, if it is something else (`cost`).
    """

    imp_id: str
    template: Template
    deal: str | None
    cost_micros: int | None = None


def template(
    document: CampaignPayload,
    creative: CreativePayload,
    price_micros: int,
    limits: Limits | None = None,
) -> Template:
    """Encode what does not change from auction to auction; the price is a CPM."""
    constants = {b"campaign_id": document.cid, b"creative_id": creative.crid}
    values = [0, 1]  # indexes into VALUES
    pieces = [b'{"id":"', b"", b'","impid":', b"", _price(price_micros) + _ADM]
    # Odd parts are macro names. The markup is escaped first; the names need no escaping.
    for position, part in enumerate(_MACRO.split(_json(creative.adm))):
        if position % 2 == 0:
            pieces[-1] += part
        elif part in constants:
            pieces[-1] += percent_encoded(constants[part]).encode()
        elif part.decode() in VALUES[2:]:
            pieces += (b"", b"")
            values.append(VALUES.index(part.decode()))
        else:
            pieces[-1] += b"{{" + part + b"}}"
    fields: dict[str, object] = {
        "adomain": [document.adomain],
        "cid": document.cid,
        "crid": creative.crid,
        "cat": document.cat,
        "cattax": document.cattax if document.cat else None,
        "attr": creative.attr,
        "w": creative.w,
        "h": creative.h,
        "iurl": creative.iurl,
        "mtype": creative.mtype,
        "apis": creative.apis,
        "language": creative.language and creative.language.partition("-")[0],
        "dur": creative.duration,
        "protocol": creative.protocol,
    }
    rest = _json({name: value for name, value in fields.items() if value not in (None, (), [])})
    pieces[-1] += b"," + rest[1:-1]
    seat = b"]}" if document.seat is None else b'],"seat":%b}' % _json(document.seat)
    mark = marks_of(each.crid for each in document.creatives)[creative.crid]
    number = marked(document.number, mark)
    return Template(
        number,
        price_micros,
        seat,
        pieces,
        itemgetter(*values),
        limits,
        document.cid,
        creative.crid,
        price_micros,
    )


def _price(micros: int) -> bytes:
    return b',"price":%b' % repr(micros / 1_000_000).encode()


class Writer:
    """Writes responses, whose notification URLs start with `base_url`."""

    def __init__(self, base_url: str) -> None:
        win, billing, loss = (
            _json(f"{base_url}{path}?id=")[1:-1] for path in (WIN_PATH, BILLING_PATH, LOSS_PATH)
        )
        self._nurl = b',"nurl":"' + win
        self._burl = b'","burl":"' + billing
        self._lurl = b'","lurl":"' + loss

    def write(
        self, auction_id: str, bid_id: bytes, bids: list[Bid], currency: str = "USD"
    ) -> bytes:
        """Write a response's body. `bid_id`: ASCII letters, digits and dashes, unique.

        What would make it longer than `MAX_ANSWER` is taken from the end of `bids`; a single bid
        may be longer.
        """
        auction_json, auction = _identifier(auction_id)
        if len(bids) == 1:
            seats = [*self._bid(bids[0], auction, bid_id + b"-0"), bids[0].template.seat]
        else:
            seats = self._seats(bids, auction, bid_id)
        head = (b'{"id":', auction_json, b',"seatbid":[{"bid":[')
        tail = (b'],"bidid":"', bid_id, b'","cur":"', currency.encode(), b'"}')
        return b"".join([*head, *seats, *tail])

    def length(self, auction_id: str, bid: Bid) -> int:
        """Return how many bytes a bid takes in an answer, without its own id."""
        return len(b"".join(self._bid(bid, _identifier(auction_id)[1], b"")))

    def _seats(self, bids: list[Bid], auction: bytes, bid_id: bytes) -> list[bytes]:
        """Group the bids that have room by seat, in the order of the seats' first bids."""
        seats: dict[bytes, list[bytes]] = {}
        room = MAX_ANSWER
        for number, bid in enumerate(bids):
            written = b"".join(self._bid(bid, auction, b"%b-%d" % (bid_id, number)))
            room -= len(written)
            if room < 0 and number:
                del bids[number:]
                break
            seats.setdefault(bid.template.seat, []).append(written)
        return [b',{"bid":['.join([b",".join(written) + seat for seat, written in seats.items()])]

    def _bid(self, bid: Bid, auction: bytes, bid_id: bytes) -> list[bytes]:
        """Write one bid, in pieces."""
        imp_id, template = bid.imp_id, bid.template
        imp_json, imp = _cached_identifier(imp_id) if len(imp_id) <= 32 else _identifier(imp_id)
        pieces = template.pieces.copy()
        pieces[1::2] = template.pick((bid_id, imp_json, auction, imp, bid_id))
        if bid.deal is not None:
            pieces.append(b',"dealid":' + _json(bid.deal))
        query = auction + b"&impId=" + imp
        pieces += (self._nurl, query, self._burl, query, self._lurl, query, _END)
        return pieces


def percent_encoded(text: str) -> str:
    """Encode a query value: everything but unreserved characters (RFC 3986, 2.3)."""
    return quote(text, safe="")


def _identifier(text: str) -> tuple[bytes, bytes]:
    """Return an id as JSON and as a query value."""
    plain = text.encode()
    if plain.replace(b"-", b"").isalnum() or not plain.translate(None, _UNRESERVED):
        return b'"' + plain + b'"', plain  # the first test settles nearly all, in half the time
    return _json(text), quote(text, safe="").encode()


_cached_identifier = lru_cache(4096)(_identifier)  # most impressions are called 1, 2, 3
