"""Win, billing and loss notices (document 2, Notification endpoints; contract 5).

    GET /rtb/win?id=AUCTION&impId=IMPRESSION
    GET /rtb/bill?id=AUCTION&impId=IMPRESSION
    GET /rtb/loss?id=AUCTION&impId=IMPRESSION&nbr=REASON

The answer is the same transparent pixel whether the notice counts, is a repeat, or names an unknown
auction: SSPs do not fire again, and learn nothing about other SSPs' auctions.

URLs are altered on their way: HTML layers write `&amp;impId`, and clients encode what is encoded.
Where the parameters cannot be found the first is undone, and a notice that is unknown as it came is
settled for its ids decoded once more. What comes as it was sent pays for none of this.
"""

import re
from collections.abc import Callable
from typing import Final, Protocol
from urllib.parse import unquote_to_bytes

from snapbid.errors import BadRequest, Unavailable
from snapbid.exchange._query import first_values
from snapbid.exchange.routes import NOTICE_NAMES
from snapbid.http import Answer, Receive, Scope, answer
from snapbid.ledger.ledger import SpoolFullError
from snapbid.ledger.records import ALTERED, LOSS, NoticeVerdict
from snapbid.metrics import Counter, Metrics

PARAMETERS: Final = (b"id", b"impId", b"nbr")
MAX_ID: Final = 512  # bytes
NO_REASON: Final = -1
_ESCAPED: Final = re.compile(rb"&(?:amp(?:;|%3B))+", re.IGNORECASE)  # an ampersand, by HTML
_UNKNOWN: Final = NoticeVerdict.UNKNOWN.value
OUTCOMES: Final = {verdict: verdict.name.lower() for verdict in NoticeVerdict}

PIXEL_GIF: Final = bytes.fromhex(
    "47494638396101000100800000ffffff00000021f90401000000002c00000000010001000002024401003b"
)
PIXEL: Final = answer(200, PIXEL_GIF, b"image/gif", ((b"cache-control", b"no-store"),))


class SettlesNotices(Protocol):
    """A ledger that settles notices; see `ledger.Ledger.settle`."""

    async def settle(
        self,
        kind: int,
        auction_id: bytes,
        imp_id: bytes,
        reason: int = 0,
        otherwise: tuple[bytes, bytes] | None = None,
    ) -> str: ...


class NoticeEndpoint:
    """Answers one kind of notice. Notices of unknown auctions are passed to `unknown`."""

    def __init__(
        self,
        kind: int,
        ledger: SettlesNotices,
        metrics: Metrics,
        unknown: Callable[[int, bytes, bytes], None] = lambda kind, auction_id, imp_id: None,
    ) -> None:
        self._kind = kind
        self._ledger = ledger
        self._unknown = unknown
        name = NOTICE_NAMES[kind]
        self._outcomes: dict[str, Counter] = {
            verdict: metrics.counter("snapbid_notices_total", kind=name, outcome=outcome)
            for verdict, outcome in OUTCOMES.items()
        }

    async def __call__(self, scope: Scope, receive: Receive) -> Answer:
        """Settle a notice. Raises BadRequest without ids, Unavailable if it could not be kept."""
        query, kind = scope["query_string"], self._kind
        auction_id, imp_id, given = first_values(query, PARAMETERS)
        if not auction_id or not imp_id or len(query) > MAX_ID or (kind == LOSS and not given):
            kind, auction_id, imp_id, given = _read_closely(kind, query)
        if scope["method"] == "HEAD":
            return PIXEL
        reason = loss_reason(given) if self._kind == LOSS else 0
        otherwise = None
        if b"%" in auction_id or b"%" in imp_id:
            otherwise = _decoded_again(auction_id, imp_id)
        try:
            verdict = await self._ledger.settle(kind, auction_id, imp_id, reason, otherwise)
            if verdict == _UNKNOWN and otherwise is not None:
                self._unknown(self._kind, auction_id, imp_id)
                auction_id, imp_id = otherwise
                verdict = await self._ledger.settle(kind | ALTERED, auction_id, imp_id, reason)
        except SpoolFullError:
            raise Unavailable("the notice cannot be kept at the moment") from None
        self._outcomes[verdict].inc()
        if verdict == _UNKNOWN:
            self._unknown(self._kind, auction_id, imp_id)
        return PIXEL


def loss_reason(text: bytes) -> int:
    """Parse OpenRTB's loss reason; NO_REASON for anything but 1 to 4 digits."""
    return int(text) if 1 <= len(text) <= 4 and text.isdigit() else NO_REASON


def _read_closely(kind: int, query: bytes) -> tuple[int, bytes, bytes, bytes]:
    """Read a query in which something is missing or long: kind, both ids and the loss reason.

    Raises BadRequest.
    """
    restored = _ESCAPED.sub(b"&", query)
    if restored != query:
        kind |= ALTERED
    auction_id, imp_id, given = first_values(restored, PARAMETERS)
    if len(auction_id) > MAX_ID or len(imp_id) > MAX_ID:  # no bid has such ids
        again = _decoded_again(auction_id, imp_id)
        if again is not None:
            kind |= ALTERED
            auction_id, imp_id = again
    _check("id", auction_id)
    _check("impId", imp_id)
    return kind, auction_id, imp_id, given


def _decoded_again(auction_id: bytes, imp_id: bytes) -> tuple[bytes, bytes] | None:
    """Decode both ids once more; None where that changes nothing."""
    again = unquote_to_bytes(auction_id), unquote_to_bytes(imp_id)
    return None if again == (auction_id, imp_id) else again


def _check(name: str, value: bytes) -> None:
    if not value:
        raise BadRequest(f"{name}: is required and may not be empty")
    if len(value) > MAX_ID:
        raise BadRequest(f"{name}: is over {MAX_ID} bytes")
