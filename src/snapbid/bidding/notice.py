"""Win, billing and loss notices (document 2, Notification endpoints; contract 5).

    GET /rtb/win?id=AUCTION&impId=IMPRESSION
    GET /rtb/bill?id=AUCTION&impId=IMPRESSION
    GET /rtb/loss?id=AUCTION&impId=IMPRESSION&nbr=REASON

The answer is the same transparent pixel whether the notice counts, is a repeat, or names an unknown
auction, so SSPs do not retry, and learn nothing about other SSPs' auctions.

URLs get altered in transit: some senders escape `&impId` for HTML as `&amp;impId`, and some encode
the ids twice. If parameters are missing, HTML escapes are undone; if the auction is unknown, the
ids are decoded once more. An unaltered notice costs nothing extra.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeAlias
from urllib.parse import unquote_to_bytes

from snapbid.base.errors import BadRequest, Unavailable
from snapbid.base.http import Answer, Handler, Receive, Scope, answer
from snapbid.bidding._query import first_values
from snapbid.bidding.routes import NOTICE_NAMES
from snapbid.bidding.signing import NoticeSigner
from snapbid.ledger.bids.ledger import SpoolFullError
from snapbid.ledger.bids.records import ALTERED, LOSS, NAMED_BY_FAMILY, NoticeVerdict
from snapbid.metrics import Counter, Metrics

PARAMETERS: Final = (b"id", b"impId", b"nbr")
MAX_ID: Final = 512  # bytes
NO_REASON: Final = -1
_PERCENT: Final = ord("%")  # for `in`, an int is faster than b"%"
_ESCAPED: Final = re.compile(rb"&(?:amp(?:;|%3B))+", re.IGNORECASE)  # an escaped ampersand
_UNKNOWN: Final = NoticeVerdict.UNKNOWN.value
_SETTLED: Final = (NoticeVerdict.COUNTED.value, NoticeVerdict.LATE.value)
OUTCOMES: Final = {verdict.value: verdict.name.lower() for verdict in NoticeVerdict}

PIXEL_GIF: Final = bytes.fromhex(
    "47494638396101000100800000ffffff00000021f90401000000002c00000000010001000002024401003b"
)
PIXEL: Final = answer(200, PIXEL_GIF, b"image/gif", ((b"cache-control", b"no-store"),))


class SettlesNotices(Protocol):
    """The part of the ledger that notice endpoints use; see `Ledger.settle`."""

    async def settle(
        self,
        kind: int,
        auction_id: bytes,
        imp_id: bytes,
        reason: int = 0,
        otherwise: tuple[bytes, bytes] | None = None,
        family: bytes = b"",
    ) -> str: ...


class NotesRejections(Protocol):
    """A receiver of settled loss notices; see `rejections.Rejections.note`."""

    def note(self, scope: Scope, auction_id: bytes, imp_id: bytes, reason: int) -> None: ...


FamilyOf: TypeAlias = Callable[[bytes, bytes], bytes | None]
"""A function that returns the family of SSPs to which a notice's token for these ids belongs, or
None if the token is invalid."""


class NoticeEndpoint:
    """The endpoint of one kind of notice. Notices of unknown auctions are passed to `unknown`.

    `unsigned` handles unsigned notices, which count only for unsigned bids, and never if
    `only_signed` is set. `signer` verifies signed ones. `rejections` receives settled losses.

    A handler returns the pixel. It raises BadRequest if an id is missing or too long, and
    Unavailable if the notice cannot be stored.
    """

    def __init__(
        self,
        kind: int,
        ledger: SettlesNotices,
        metrics: Metrics,
        unknown: Callable[[int, bytes, bytes], None] = lambda kind, auction_id, imp_id: None,
        rejections: NotesRejections | None = None,
        signer: NoticeSigner | None = None,
        *,
        only_signed: bool = False,
    ) -> None:
        self._kind = kind
        self._ledger = ledger
        self._unknown = unknown
        self._rejections = rejections if kind == LOSS else None
        self._signer = signer
        self.unsigned: Handler = self._settle
        if only_signed:
            self.unsigned = partial(self._settle, family_of=lambda *ids: None)
        name = NOTICE_NAMES[kind]
        self._ignored = metrics.counter("snapbid_notices_total", kind=name, outcome="unsigned")
        self._outcomes: dict[str, Counter] = {
            verdict: metrics.counter("snapbid_notices_total", kind=name, outcome=outcome)
            for verdict, outcome in OUTCOMES.items()
        }

    def signed(self, token: str) -> Handler:
        """Return the handler of a notice that is signed with this token; requires `signer`."""
        assert self._signer is not None
        return partial(self._settle, family_of=partial(self._signer.family, token))

    async def _settle(
        self, scope: Scope, receive: Receive, family_of: FamilyOf | None = None
    ) -> Answer:
        query, kind = scope["query_string"], self._kind
        auction_id, imp_id, given = first_values(query, PARAMETERS)
        if not auction_id or not imp_id or len(query) > MAX_ID or (kind == LOSS and not given):
            kind, auction_id, imp_id, given = _read_closely(kind, query)
        if scope["method"] == "HEAD":
            return PIXEL
        reason = loss_reason(given) if self._kind == LOSS else 0
        otherwise = None
        if _PERCENT in auction_id or _PERCENT in imp_id:
            otherwise = _decoded_again(auction_id, imp_id)
        family = b""
        if family_of is not None:
            found = family_of(auction_id, imp_id)
            if found is None and otherwise is not None:
                kind, (auction_id, imp_id) = kind | ALTERED, otherwise
                found = family_of(auction_id, imp_id)
            if found is None:
                self._ignored.inc()
                return PIXEL
            family, otherwise = found, None
        elif auction_id.startswith(NAMED_BY_FAMILY) or (
            otherwise is not None and otherwise[0].startswith(NAMED_BY_FAMILY)
        ):
            self._ignored.inc()
            return PIXEL
        try:
            verdict = await self._ledger.settle(kind, auction_id, imp_id, reason, otherwise, family)
            if verdict == _UNKNOWN and otherwise is not None:
                self._unknown(self._kind, auction_id, imp_id)
                auction_id, imp_id = otherwise
                kind |= ALTERED
                verdict = await self._ledger.settle(kind, auction_id, imp_id, reason)
        except SpoolFullError:
            raise Unavailable("the notice cannot be stored at present") from None
        self._outcomes[verdict].inc()
        if verdict == _UNKNOWN:
            self._unknown(self._kind, auction_id, imp_id)
        elif self._rejections is not None and verdict in _SETTLED:
            self._rejections.note(scope, family + auction_id, imp_id, reason)
        return PIXEL


def loss_reason(text: bytes) -> int:
    """Parse OpenRTB's loss reason; NO_REASON for anything but 1 to 4 digits."""
    return int(text) if 1 <= len(text) <= 4 and text.isdigit() else NO_REASON


def _read_closely(kind: int, query: bytes) -> tuple[int, bytes, bytes, bytes]:
    """Undo known alterations of a query; return kind, auction id, impression id and loss reason.

    The kind is flagged ALTERED if anything was undone. Raises BadRequest if an id is still missing
    or too long.
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
    """Decode both ids once more; None if that changes nothing."""
    again = unquote_to_bytes(auction_id), unquote_to_bytes(imp_id)
    return None if again == (auction_id, imp_id) else again


def _check(name: str, value: bytes) -> None:
    if not value:
        raise BadRequest(f"{name}: is required and may not be empty")
    if len(value) > MAX_ID:
        raise BadRequest(f"{name}: must have at most {MAX_ID} bytes")
