"""What every answer of the bid endpoint must satisfy, whatever the request (contract 4)."""

import re
from typing import Any
from urllib.parse import parse_qsl

from snapbid.bidding.request import decode
from support.http import Reply
from support.openrtb import violations
from support.oracle_native import judge

REQUIRED = {"id", "impid", "price", "adm", "adomain", "cid", "crid", "mtype"}
NOTICES = {"nurl": "/rtb/win", "burl": "/rtb/bill", "lurl": "/rtb/loss"}
OPTIONAL = {"cat", "cattax", "attr", "apis", "language", "langb", "w", "h", "iurl"} | {
    "dur",
    "protocol",
    "dealid",
    "ext",
}
LOSS_MACRO = "&nbr=${AUCTION_LOSS}"

# The detail of a 400 begins with the path of a field, or with what is wrong with the body.
NAMED = re.compile(
    r"(?:\w+(?:\[\d+\])?(?:\.\w+(?:\[\d+\])?)*:|Content-Encoding:|the (?:gzip |zstd )?body) \S"
)


def as_echoed(id: Any) -> str:
    """An id as an answer spells it: numbers as text, `77.0` as 77, that of a list of one alone."""
    if isinstance(id, list):
        id = id[0]
    return str(int(id)) if isinstance(id, float) and id.is_integer() else str(id)


def check_reply(reply: Reply, body: bytes, base_url: str) -> None:
    """Fail unless it is a valid answer to that bid request: a 200 with a complete response, an
    empty 204, or a 400 that names the field.
    """
    assert reply.status in (200, 204, 400), reply
    if reply.status == 204:
        assert (reply.body, reply.headers.get("content-type")) == (b"", None)
    elif reply.status == 400:
        check_refusal(reply.json())
    else:
        request = decode(body)
        assert isinstance(request.id, str)
        ids = {as_echoed(imp.id) for imp in request.imp or ()}
        bids = check_bid_response(reply.json(), request.id, ids, base_url)
        natives = {as_echoed(imp.id): imp.native for imp in request.imp or ()}
        for bid in bids:
            if bid["mtype"] == 4:
                native = natives[bid["impid"]]
                assert native is not None
                judge({"request": native.request, "ver": native.ver}, bid["adm"])


def check_refusal(problem: Any) -> None:
    """Fail unless it is the body of a 400 that names the field."""
    assert set(problem) == {"error", "detail"}
    assert problem["error"] == "bad_request"
    assert NAMED.match(problem["detail"]), problem


def check_bid_response(
    response: Any, auction_id: str, imp_ids: set[str], base_url: str
) -> list[dict[str, Any]]:
    """Fail unless it is a complete bid response to that auction; returns its bids."""
    assert set(response) == {"id", "bidid", "cur", "seatbid"}
    assert [*violations(response)] == []
    assert response["id"] == auction_id
    assert response["bidid"]
    assert re.fullmatch("[A-Z]{3}", response["cur"])
    seats = [seatbid.get("seat") for seatbid in response["seatbid"]]
    assert len(seats) == len(set(seats)) > 0
    bids: list[dict[str, Any]] = []
    for seatbid in response["seatbid"]:
        assert set(seatbid) - {"seat"} == {"bid"}
        assert seatbid["bid"]
        bids += seatbid["bid"]
    for bid in bids:
        _check_bid(bid, auction_id, base_url)
    assert len({bid["id"] for bid in bids}) == len(bids)
    bid_on = {bid["impid"] for bid in bids}
    assert len(bid_on) == len(bids)
    assert bid_on <= imp_ids
    return bids


def _check_bid(bid: dict[str, Any], auction_id: str, base_url: str) -> None:
    assert set(bid) >= REQUIRED | NOTICES.keys()
    assert set(bid) <= REQUIRED | OPTIONAL | NOTICES.keys()
    assert bid["price"] > 0
    assert bid["mtype"] in (1, 2, 3, 4)
    for name, path in NOTICES.items():
        url = bid[name]
        if name == "lurl":
            assert url.endswith(LOSS_MACRO)
            url = url.removesuffix(LOSS_MACRO)
        start, _, query = url.partition("?")
        assert start == base_url + path
        assert re.fullmatch(r"(?:[A-Za-z0-9_.~=&-]|%[0-9A-F]{2})*", query)
        assert parse_qsl(query, strict_parsing=True) == [
            ("id", auction_id),
            ("impId", bid["impid"]),
        ]
