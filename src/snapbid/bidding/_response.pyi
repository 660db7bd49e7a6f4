from collections.abc import Callable
from typing import Self, final

from typing_extensions import disjoint_base

from snapbid.bidding.response import Bid

@final
class BidIds:
    """The ids of a process's answers: `process` and a number in hexadecimal digits."""

    def __new__(cls, process: bytes) -> Self: ...
    def next(self) -> bytes: ...

@disjoint_base
class ResponseWriter:
    """Writes bid responses (OpenRTB 2.6, 4.2) into one buffer, from the bids' templates.

    The notification URLs, each a start and a path with the beginning of its query, follow the bid's
    own pieces; the last one ends in `end`. `sign`, if there is one, makes what stands between start
    and path from the ids of auction and impression. `encode` gives an id as JSON and as a query
    value, where it is not the same in both. Several bids take at most `most` bytes.
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

        Bids that have no room are taken from the end of `bids`; a single one may be of any length.
        """

    def length(self, auction_id: str, bid: Bid) -> int:
        """Return how many bytes a bid takes in an answer, without its own id."""
