from collections.abc import Callable, Sequence
from typing import Any, Self, final

from typing_extensions import Buffer

@final
class RowWriter:
    """Writes a worker's rows into the segments that it is offered. For one thread.

    A row is complete once it is published, whatever becomes of the process then. Where no segment
    has room, rows are lost and counted; a gap row tells how many as soon as there is one again.
    `on_full` is called when it has gone on in the segment offered last.
    """

    lost: int
    """Rows that no segment took."""

    def __new__(cls, on_full: Callable[[], object]) -> Self: ...
    @property
    def has_next(self) -> bool:
        """Whether it has a segment to go on in."""

    @property
    def in_flight(self) -> int:
        """What has begun and not ended."""

    def offer(self, segment: Buffer) -> None:
        """Take a prepared segment to go on in. Raises ValueError if it has one, or is small."""

    def begin(self, count: int = 1) -> int:
        """Note that so many bids or notices are sent to the ledger; return the time (epoch ms)."""

    def end(self, count: int = 1) -> None:
        """Note that they are answered, and their rows written."""

    def bids(
        self,
        time_ms: int,
        source: tuple[str, str],
        auction_id: str,
        bids: Sequence[Any],
        currency: str,
        test: bool = False,
    ) -> None:
        """Write the bids of an answer (a list of `exchange.response.Bid`).

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
        """Write a notice; one that is replayed has its digest in place of the auction's id."""

    def close(self) -> None:
        """Let go of the segments; what is in flight then counts as missing."""
