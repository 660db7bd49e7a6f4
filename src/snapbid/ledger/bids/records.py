"""Encodings of bids and notices, in Redis and in the spool (layouts: records.lua)."""

from collections.abc import Sequence
from enum import StrEnum
from struct import Struct
from typing import Final

from snapbid.base.redis_keys import shard_of
from snapbid.ledger.bids._records import bid_digest as bid_digest
from snapbid.ledger.bids._records import user_digest as user_digest

WIN: Final = 1
BILLING: Final = 2
LOSS: Final = 4
HELD: Final = 8  # beside the kinds of a record: the cost of the bid is held
CAPPED: Final = 16  # beside the kinds of a record: the user is capped, and follows the price
NOTICE_KINDS: Final = WIN | BILLING | LOSS
ALTERED: Final = 32  # beside the kind of a notice: its URL was altered (bidding/notice.py)
OTHERWISE: Final = 64  # in a spool: alternative reading, used if the notice before it is unknown
SPOOLED: Final = 128  # beside the kind of a notice: it comes from a spool

DIGEST_SIZE: Final = 16
# Kind, loss reason, digest, time of arrival, start of the run of Redis that was last reached (both
# times epoch s, ms; zeros: unknown).
NOTICE: Final = Struct("<Bh16sIHIH")


class BidVerdict(StrEnum):
    """The outcome of remembering a bid.

    `UNCONFIRMED`, reported by `look` alone: Redis started or lost its data, and budgets are not
    restored yet; a bid gets `OVER_BUDGET` instead. `CAPS_UNAVAILABLE`: the shard with the user's
    impressions is unavailable. `OVER_SHARE`: several SSPs compete for the budget, and this one
    holds its share. `TAKEN`: another family of SSPs has a bid on this impression. `OVER_SUM`: the
    cost would overflow the sums of the day (remember.lua).
    """

    KEPT = "k"
    OVER_BUDGET = "b"
    OVER_CAP = "c"
    OVER_SUM = "s"
    UNCONFIRMED = "w"
    CAPS_UNAVAILABLE = "a"
    TAKEN = "t"
    OVER_SHARE = "h"


class NoticeVerdict(StrEnum):
    """The outcome of a notice. `LATE`: counted on the day of settlement, not on the bid's."""

    COUNTED = "c"
    LATE = "l"
    DUPLICATE = "d"
    UNKNOWN = "u"
    SPOOLED = "s"


def marked(campaign: int, mark: int) -> int:
    """Combine a campaign's number (32 bits) with a creative's mark (0 to 255) above it."""
    return mark << 32 | campaign


def identity(marked: int, answer: int) -> int:
    """Return the identity of a bid within an answer (records.lua)."""
    return marked >> 32 << 24 | answer


def user_shard(digest: bytes, shards: int) -> int:
    """Return the shard that holds a user's impressions (money.lua)."""
    return int.from_bytes(digest[:4], "little") % shards


def moved_to(auction_id: bytes, former: Sequence[int], shards: int) -> list[int]:
    """List the shards that hold an auction's bids from before moves of the ledger, newest first.

    `former`: the shard counts before each move, in order; a move took shard N to N modulo the next
    count.
    """
    found = list[int]()
    for at in reversed(range(len(former))):
        shard = shard_of(auction_id, former[at])
        for later in (*former[at + 1 :], shards):
            shard %= later
        if shard not in found:
            found.append(shard)
    return found
