"""Bid responses joined from pieces: slow and obvious, against the native writer."""

from urllib.parse import quote

import msgspec

from snapbid.bidding.response import MAX_ANSWER, Bid

PATHS = {"nurl": "/rtb/win", "burl": "/rtb/bill", "lurl": "/rtb/loss"}


def write(base_url: str, auction_id: str, bid_id: str, bids: list[Bid], currency: str) -> bytes:
    """Write a response; bids that have no room are left out."""
    seats: dict[bytes, list[bytes]] = {}
    room = MAX_ANSWER
    for number, bid in enumerate(bids):
        written = write_bid(base_url, auction_id, f"{bid_id}-{number}", bid)
        room -= len(written)
        if room < 0 and number:
            break
        seats.setdefault(bid.template.seat, []).append(written)
    listed = b",".join(b'{"bid":[' + b",".join(each) + seat for seat, each in seats.items())
    tail = f'"bidid":"{bid_id}","cur":"{currency}"}}'.encode()
    return b'{"id":' + msgspec.json.encode(auction_id) + b',"seatbid":[' + listed + b"]," + tail


def write_bid(base_url: str, auction_id: str, bid_id: str, bid: Bid) -> bytes:
    auction, imp = quote(auction_id, safe=""), quote(bid.imp_id, safe="")
    imp_json = msgspec.json.encode(bid.imp_id).decode()
    values = [value.encode() for value in (bid_id, imp_json, auction, imp, bid_id, "-" * 60)]
    parts = [bid.template.pieces[0]]
    for value, piece in zip(bid.template.values, bid.template.pieces[1:], strict=True):
        parts += (values[value], piece)
    if bid.deal is not None:
        parts.append(b',"dealid":' + msgspec.json.encode(bid.deal))
    for name, path in PATHS.items():
        url = f"{base_url}{path}?id={auction}&impId={imp}"
        url += "&nbr=${AUCTION_LOSS}" if name == "lurl" else ""
        parts.append(f',"{name}":"{url}"'.encode())
    return b"".join(parts) + b"}"
