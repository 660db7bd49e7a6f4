"""How bids and notices are written down, in Redis and in the spool (layouts: records.lua)."""

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
HELD: Final = 8  # with the kinds: the cost of the bid is held
CAPPED: Final = 16  # with the kinds: the user is capped, and follows the price
NOTICE_KINDS: Final = WIN | BILLING | LOSS
ALTERED: Final = 32  # with the kind of a notice: its URL was altered (bidding/notice.py)
OTHERWISE: Final = 64  # in a spool: another reading, for where the notice before it is unknown
SPOOLED: Final = 128  # with the kind of a notice: it comes from a spool

DIGEST_SIZE: Final = 16
# Kind, loss reason, digest, when it came, and when the run of Redis began that was reached last
# (each epoch s, ms; zeros: unknown).
NOTICE: Final = Struct("<Bh16sIHIH")


class BidVerdict(StrEnum):
    """What became of a bid that was to be remembered.

    A look tells also that budgets are `UNCONFIRMED` since Redis started or lost its data: for the
    bid that is the same as `OVER_BUDGET`. `CAPS_AWAY`: the shard with the user's impressions is.
    `OVER_SHARE`: of a budget for which several SSPs ask, the bid's own holds as much as is free.
    `TAKEN`: another family of SSPs has a bid on the auction's impression.
    `OVER_SUM`: the sums of a day's money would not hold its cost (remember.lua).
    """

    KEPT = "k"
    OVER_BUDGET = "b"
    OVER_CAP = "c"
    OVER_SUM = "s"
    UNCONFIRMED = "w"
    CAPS_AWAY = "a"
    TAKEN = "t"
    OVER_SHARE = "h"


class NoticeVerdict(StrEnum):
    """What became of a notice. `LATE` is counted on the day on which it is settled."""

    COUNTED = "c"
    LATE = "l"
    DUPLICATE = "d"
    UNKNOWN = "u"
    SPOOLED = "s"


def marked(campaign: int, mark: int) -> int:
    """A campaign's number with a creative's mark (0 to 255) above its 32 bits, as bids have it."""
    return mark << 32 | campaign


def identity(marked: int, answer: int) -> int:
    """The identity of a bid of an answer (records.lua)."""
    return marked >> 32 << 24 | answer


def user_shard(digest: bytes, shards: int) -> int:
    """The shard that holds a user's impressions (money.lua)."""
    return int.from_bytes(digest[:4], "little") % shards


def moved_to(auction_id: bytes, former: Sequence[int], shards: int) -> list[int]:
    """The shards that hold an auction's bids from when the ledger had so many shards, newest first.

    `former` is in the order of the moves, each of which took shard N to N modulo the next number.
    """
    places = list[int]()
    for at in reversed(range(len(former))):
        place = shard_of(auction_id, former[at])
        for later in (*former[at + 1 :], shards):
            place %= later
        if place not in places:
            places.append(place)
    return places
