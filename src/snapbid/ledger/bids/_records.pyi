from collections.abc import Sequence
from typing import final

from snapbid.ledger.bids.batch import LedgerBid, Verdicts
from snapbid.redisclient.replies import Pending

def bid_digest(auction_id: bytes, imp_id: bytes) -> bytes:
    """The 16 bytes by which the bid for an auction's impression is found.

    The length in front keeps different pairs apart, and 128 bits keep hostile ids from being made
    to collide. The first two bytes choose a bucket, the others the record in it.
    """

def user_digest(user: str) -> bytes:
    """The 16 bytes by which a capped user is known."""

@final
class AnswerBids:
    """The bids of one 200 answer, which waits for them to be remembered.

    `now` is in epoch s and ms; `answer` is the answer's identity (24 bits); `counted`: it was
    counted before. `user` is needed where limits have caps.
    Raises OverflowError for what the layout has no room for, TypeError and AttributeError for what
    is no bid.
    """

    def __new__(
        cls,
        auction_id: bytes,
        ssp: int,
        bids: Sequence[LedgerBid],
        user: str | None,
        now: tuple[int, int],
        answer: int,
        counted: bool,
        done: Pending[Verdicts],
        deadline: float,
    ) -> AnswerBids: ...
    @property
    def ssp(self) -> int: ...
    @property
    def day(self) -> int:
        """Since 1970-01-01."""

    @property
    def bids(self) -> int:
        """How many."""

    @property
    def entries(self) -> bytes:
        """The bids, packed."""

    @property
    def is_counted(self) -> bool:
        """By this batch; else an earlier one did."""

    @property
    def is_limited(self) -> bool: ...
    @property
    def done(self) -> Pending[Verdicts]: ...
    @property
    def deadline(self) -> float:
        """Loop time."""

    def accept(self, verdicts: Verdicts) -> bool:
        """Pass on what became of the bids; return whether the answer still waited for it."""

    def refuse(self) -> None:
        """The bids will not be remembered."""

def join(answers: list[AnswerBids]) -> tuple[bytes, bool]:
    """The entries of all bids, and whether any has limits."""

def keep(answers: list[AnswerBids], kept: str) -> list[AnswerBids]:
    """Pass on that verdict for each bid; return the answers that wait for it no longer."""

def count(answers: list[AnswerBids]) -> list[tuple[int, list[bytes], list[int]]]:
    """What answers count, if all bids are kept: days, each with counters and increments."""
