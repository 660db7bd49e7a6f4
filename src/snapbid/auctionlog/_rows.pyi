from collections.abc import Callable, Sequence
from typing import Any, Self, final

from typing_extensions import Buffer

@final
class RowWriter:
    """Writes a worker's rows into the chunks offered to it. Not thread-safe.

    A row is complete once it is published, whatever becomes of the process then. If no chunk has
    space, rows are lost and counted; a gap row records how many once there is a chunk again.
    `on_full` is called when the writer has moved on to the chunk offered last.
    """

    lost: int
    """How many rows were lost for lack of a chunk."""

    def __new__(cls, on_full: Callable[[], object]) -> Self: ...
    @property
    def has_next(self) -> bool:
        """Whether the next chunk has been offered."""

    @property
    def in_flight(self) -> int:
        """How many bids and notices have begun and not ended."""

    def offer(self, chunk: Buffer) -> None:
        """Take a prepared next chunk. Raises ValueError if it is too small, or not needed yet."""

    def begin(self, count: int = 1) -> int:
        """Count bids or notices sent to the ledger; return the time (epoch ms)."""

    def end(self, count: int = 1) -> None:
        """Count answered bids or notices, whose rows are written."""

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
        ssp: str | None = None,
    ) -> None:
        """Write a notice; a replayed one has its digest in place of the auction id.

        `ssp`: canonical id of the SSP whose signed notice it is.
        """

    def close(self) -> None:
        """Release the chunks; anything in flight counts as missing."""
