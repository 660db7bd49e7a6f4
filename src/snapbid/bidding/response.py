"""The bid response (OpenRTB 2.6, 4.2), written from templates.

Only a few values of a bid change from auction to auction, so each creative is encoded once, as the
pieces between those values. The values are inserted as JSON or percent-encoded, so they need no
escaping inside the markup.
"""

import re
import secrets
from typing import Final
from urllib.parse import quote

import msgspec

from snapbid.bidding._response import Bid as Bid
from snapbid.bidding._response import BidIds
from snapbid.bidding._response import ClickSigner as ClickSigner
from snapbid.bidding._response import ResponseWriter as ResponseWriter
from snapbid.bidding._response import Template as Template
from snapbid.bidding.routes import BILLING_PATH, LOSS_PATH, WIN_PATH
from snapbid.campaigns.campaign import Declaration
from snapbid.campaigns.click_id import bought
from snapbid.campaigns.suspensions import marks_of
from snapbid.catalog.payload import CampaignPayload, CreativePayload
from snapbid.ledger.bids.records import marked
from snapbid.ledger.budgets.limits import Limits

# The values between a template's pieces: the bid's id, the impression's id as JSON, and the values
# of macros, percent-encoded. `_response.pxd` numbers them in this order.
VALUES: Final = ("bid_id", "imp_json", "auction_id", "imp_id", "cachebuster", "click_id")

MAX_ANSWER: Final = 262_144  # bytes of all bids, if there are several

_MACRO: Final = re.compile(rb"\{\{(\w+)\}\}")

_CLICK_ID: Final = VALUES.index("click_id")
_ADM: Final = b',"adm":'
_PRICED: Final = 2  # the piece with the price, which the markup follows
_END: Final = b'&nbr=${AUCTION_LOSS}"}'

_json: Final = msgspec.json.encode


def adapted(template: Template, price_micros: int, dsa: Declaration | None) -> Template:
    """Copy a template with its price in another currency (millionths) and any DSA declaration."""
    pieces = list(template.pieces)
    markup = pieces[_PRICED].index(_ADM)
    pieces[_PRICED] = _price(price_micros) + pieces[_PRICED][markup:]
    if dsa is not None:
        pieces[-1] += b',"ext":{"dsa":%b}' % _json(dsa)
    return Template(
        template.number,
        template.price_micros,
        template.seat,
        tuple(pieces),
        template.values,
        template.limits,
        template.campaign,
        template.creative,
        price_micros,
        template.click,
    )


def template(
    document: CampaignPayload,
    creative: CreativePayload,
    price_micros: int,
    limits: Limits | None = None,
) -> Template:
    """Encode the constant parts of a creative's bid; `price_micros` is a CPM (micro-USD)."""
    constants = {
        b"campaign_id": percent_encoded(document.cid).encode(),
        b"creative_id": percent_encoded(creative.crid).encode(),
        b"open": b"{{",  # so that any text can be sent verbatim
    }
    values = [0, 1]  # indexes into VALUES
    pieces = [b'{"id":"', b'","impid":', _price(price_micros) + _ADM]
    # Odd parts are macro names. The markup is escaped first; the names need no escaping.
    for position, part in enumerate(_MACRO.split(_json(creative.adm))):
        if position % 2 == 0:
            pieces[-1] += part
        elif part in constants:
            pieces[-1] += constants[part]
        elif part.decode() in VALUES[2:]:
            pieces.append(b"")
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
        **_language(creative.language),
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
        tuple(pieces),
        bytes(values),
        limits,
        document.cid,
        creative.crid,
        price_micros,
        bought(document.number, creative.crid) if _CLICK_ID in values else b"",
    )


def _language(tag: str | None) -> dict[str, str | None]:
    """Return the field for a language: `language` for a code of two letters, else `langb`."""
    code = tag and tag.partition("-")[0]
    return {"language": code} if not code or len(code) == 2 else {"langb": tag}


def _price(micros: int) -> bytes:
    return b',"price":%b' % repr(micros / 1_000_000).encode()


def response_writer(base_url: str) -> ResponseWriter:
    """Return a writer of responses whose notification URLs start with `base_url`."""
    base = _json(base_url)[1:-1]
    urls = (
        (b',"nurl":"' + base, f"{WIN_PATH}?id=".encode()),
        (b'","burl":"' + base, f"{BILLING_PATH}?id=".encode()),
        (b'","lurl":"' + base, f"{LOSS_PATH}?id=".encode()),
    )
    return ResponseWriter(urls, _END, MAX_ANSWER, BidIds(secrets.token_hex(6).encode()))


def percent_encoded(text: str) -> str:
    """Percent-encode a query value, except its unreserved characters (RFC 3986, 2.3)."""
    return quote(text, safe="")
