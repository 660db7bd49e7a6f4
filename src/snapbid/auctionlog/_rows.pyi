from collections.abc import Callable, Sequence
from typing import Any, Self, final

from typing_extensions import Buffer

@final
class RowWriter:
    """Writes a worker's rows into the chunks given to `offer`. Not thread-safe.

    A complete row survives the death of the process. If no chunk has space, rows are lost and
    counted; once a chunk is offered, a gap row records how many. `on_full` is called when the
    writer has moved on to the offered chunk and needs another.
    """

    lost: int
    """How many rows were lost for lack of a chunk."""

    def __new__(cls, on_full: Callable[[], object]) -> Self: ...
    @property
    def has_next(self) -> bool:
        """Whether the chunk to use next has already been passed to `offer`."""

    @property
    def in_flight(self) -> int:
        """The number of bids and notices that have begun but not ended."""

    def offer(self, chunk: Buffer) -> None:
        """Add an empty chunk, to be used once the current chunk is full.

        The new chunk is used at once if there is no current chunk, or if rows have been lost.
        Raises ValueError for a chunk that is too small, or if the previous offer is still unused.
        """

    def begin(self, count: int = 1) -> int:
        """Count bids or notices as sent to the ledger; return the current time (epoch ms)."""

    def end(self, count: int = 1) -> None:
        """Count bids or notices as answered; call this after writing their rows."""

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

        `source`: the SSP's descriptor and canonical id.
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
        """Write a notice; `ssp`: the canonical id of the SSP that sent it, for a signed notice.

        For a replayed notice, `auction_id` is the digest of the auction's and the impression's id,
        and `imp_id` is None.
        """

    def close(self) -> None:
        """Release the chunks; the writer counts bids and notices still in flight as lost."""
