from collections.abc import Callable, Sequence
from typing import Any, Self, final

from typing_extensions import Buffer

@final
class RowWriter:
    """A writer of a worker's rows into the chunks that it is offered. Not thread-safe.

    A row is complete once it is published, whatever becomes of the process then. If no chunk
    has space, rows are lost and counted; a gap row records how many once there is a chunk again.
    `on_full` is called when the writer has moved on to the chunk offered last.
    """

    lost: int
    """Rows lost for want of a chunk."""

    def __new__(cls, on_full: Callable[[], object]) -> Self: ...
    @property
    def has_next(self) -> bool:
        """Whether it has a next chunk."""

    @property
    def in_flight(self) -> int:
        """Bids and notices that have begun and not ended."""

    def offer(self, chunk: Buffer) -> None:
        """Take a prepared next chunk. Raises ValueError if it is small, or not needed yet."""

    def begin(self, count: int = 1) -> int:
        """Count bids or notices sent to the ledger; return the time (epoch ms)."""

    def end(self, count: int = 1) -> None:
        """Count bids or notices that are answered, with their rows written."""

    def bids(
        self,
        time_ms: int,
        source: tuple[str, str],
        request: Any,
        bids: Sequence[Any],
        currency: str,
        test: bool = False,
    ) -> None:
        """Write the bids (a list of `bidding.response.Bid`) that answer a `BidRequest`.

        `source`: descriptor and canonical id of the SSP.
        """

    def notice(
        self,
        time_ms: int,
        kind: int,
        verdict: str,
        reason: int,
        auction_id: bytes,
        imp_id: bytes | None,
        replayed: bool = False,
    ) -> None:
        """Write a notice; a replayed one has its digest instead of the auction's id."""

    def close(self) -> None:
        """Release the chunks; whatever is in flight counts as missing."""
