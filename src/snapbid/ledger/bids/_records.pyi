from collections.abc import Sequence
from typing import final

from snapbid.ledger.bids.records import LedgerBid, Verdicts
from snapbid.redisclient.trips import Pending

def bid_digest(auction_id: bytes, imp_id: bytes) -> bytes:
    """Return the 16-byte key of the bid on an auction's impression.

    The auction id's length is also hashed, to distinguish `ab`, `c` from `a`, `bc`. 128 bits make
    collisions infeasible even for hostile ids. The first two bytes select a bucket, the others the
    record in it.
    """

def user_digest(user: str) -> bytes:
    """Return the 16-byte key of a capped user."""

def pack_notice(
    kind: int,
    reason: int,
    auction_id: bytes,
    imp_id: bytes,
    came: tuple[int, int],
    run: tuple[int, int],
) -> bytes:
    """Pack a notice as `records.NOTICE` describes. Raises OverflowError if a value does not fit."""

@final
class AnswerBids:
    """The bids of one 200 answer, waiting to be remembered.

    `now`: epoch seconds, and the milliseconds of that second; `answer`: the answer's identity (24
    bits); `counted`: whether the answer was counted in an earlier batch. `user` is required if the
    limits of a bid have caps. Raises OverflowError for values that do not fit the layout, TypeError
    and AttributeError for malformed bids.
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
        """The day on which the bids are made, in days since 1970-01-01."""

    @property
    def bids(self) -> int:
        """The number of bids."""

    @property
    def entries(self) -> bytes:
        """The bids, packed for remember.lua."""

    @property
    def is_counted(self) -> bool:
        """Whether this batch counts the answer; False if an earlier batch did."""

    @property
    def is_limited(self) -> bool: ...
    @property
    def done(self) -> Pending[Verdicts]: ...
    @property
    def deadline(self) -> float:
        """The event loop time at which the answer times out."""

    def accept(self, verdicts: Verdicts) -> bool:
        """Resolve `done` with the verdicts; return whether it was still pending."""

    def refuse(self) -> None:
        """Resolve the answer without verdicts (""), since its bids were not remembered in time."""

def join(answers: list[AnswerBids]) -> tuple[bytes, bool]:
    """Concatenate the packed bids of all answers; also return whether any bid has limits."""

def keep(answers: list[AnswerBids], kept: str) -> list[AnswerBids]:
    """Give all bids the verdict `kept`; return the answers that were no longer pending."""

def count(answers: list[AnswerBids]) -> list[tuple[int, list[bytes], list[int]]]:
    """List the counters that grow if all bids are kept, as (day, counters, increments)."""
