from collections.abc import Callable
from typing import Self, final

from typing_extensions import disjoint_base

from snapbid.bidding.response import Bid

@final
class BidIds:
    """The ids of a process's responses: `process` and a hexadecimal number."""

    def __new__(cls, process: bytes) -> Self: ...
    def next(self) -> bytes: ...

@disjoint_base
class ResponseWriter:
    """A writer of bid responses (OpenRTB 2.6, 4.2), from the bids' templates into one buffer.

    The notification URLs, each a start and a path with the beginning of its query, follow the bid's
    own pieces; the last one is followed by `end`. `sign`, if given, makes the token between start
    and path from the ids of auction and impression. `encode` returns an id as JSON and as a query
    value; it is only called if they differ. Several bids take at most `most` bytes.
    """

    def __init__(
        self,
        urls: tuple[tuple[bytes, bytes], ...],
        end: bytes,
        encode: Callable[[str], tuple[bytes, bytes]],
        most: int,
        sign: Callable[[str, str], bytes] | None = None,
    ) -> None: ...
    def write(
        self, auction_id: str, bid_id: bytes, bids: list[Bid], currency: str = "USD"
    ) -> bytes:
        """Write a response's body. `bid_id`: ASCII letters, digits and dashes, unique.

        Bids that do not fit are dropped from the end of `bids`; a single one may have any length.
        """

    def length(self, auction_id: str, bid: Bid) -> int:
        """Return how many bytes a bid takes in an answer, without its own id."""
