"""Win, billing and loss notices (document 2, Notification endpoints; contract 5).

    GET /rtb/win?id=AUCTION&impId=IMPRESSION
    GET /rtb/bill?id=AUCTION&impId=IMPRESSION
    GET /rtb/loss?id=AUCTION&impId=IMPRESSION&nbr=REASON

The answer is the same transparent pixel whether the notice counts, is a repeat, or names an unknown
auction: SSPs do not fire again, and learn nothing about other SSPs' auctions.
"""

from collections.abc import Callable
from typing import Final, Protocol

from snapbid.errors import BadRequest, Unavailable
from snapbid.exchange._query import first_values
from snapbid.exchange.routes import NOTICE_NAMES
from snapbid.http import Answer, Receive, Scope, answer
from snapbid.ledger.ledger import SpoolFullError
from snapbid.ledger.records import LOSS, NoticeVerdict
from snapbid.metrics import Counter, Metrics

PARAMETERS: Final = (b"id", b"impId", b"nbr")
MAX_ID: Final = 512  # bytes
NO_REASON: Final = -1
_UNKNOWN: Final = NoticeVerdict.UNKNOWN.value
OUTCOMES: Final = {verdict: verdict.name.lower() for verdict in NoticeVerdict}

PIXEL_GIF: Final = bytes.fromhex(
    "47494638396101000100800000ffffff00000021f90401000000002c00000000010001000002024401003b"
)
PIXEL: Final = answer(200, PIXEL_GIF, b"image/gif", ((b"cache-control", b"no-store"),))


class SettlesNotices(Protocol):
    """A ledger that settles notices; see `ledger.Ledger.settle`."""

    async def settle(self, kind: int, auction_id: bytes, imp_id: bytes, reason: int = 0) -> str: ...


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
        query = scope["query_string"]
        auction_id, imp_id, given = first_values(query, PARAMETERS)
        if not auction_id or not imp_id or len(query) > MAX_ID:
            _check("id", auction_id)
            _check("impId", imp_id)
        if scope["method"] == "HEAD":
            return PIXEL
        reason = loss_reason(given) if self._kind == LOSS else 0
        try:
            verdict = await self._ledger.settle(self._kind, auction_id, imp_id, reason)
        except SpoolFullError:
            raise Unavailable("the notice cannot be kept at the moment") from None
        self._outcomes[verdict].inc()
        if verdict == _UNKNOWN:
            self._unknown(self._kind, auction_id, imp_id)
        return PIXEL


def loss_reason(text: bytes) -> int:
    """Parse OpenRTB's loss reason; NO_REASON for anything but 1 to 4 digits."""
    return int(text) if 1 <= len(text) <= 4 and text.isdigit() else NO_REASON


def _check(name: str, value: bytes) -> None:
    if not value:
        raise BadRequest(f"{name}: is required and may not be empty")
    if len(value) > MAX_ID:
        raise BadRequest(f"{name}: is over {MAX_ID} bytes")
