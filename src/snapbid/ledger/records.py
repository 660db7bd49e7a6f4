"""How bids and notices are written down, in Redis and in the spool (layouts: records.lua)."""

from enum import StrEnum
from hashlib import blake2b
from struct import Struct
from typing import Final

WIN: Final = 1
BILLING: Final = 2
LOSS: Final = 4
HELD: Final = 8  # with the kinds: the cost of the bid is held
CAPPED: Final = 16  # with the kinds: the user is capped, and follows the price
SPOOLED: Final = 128  # with the kind of a notice: it comes from a spool

DIGEST_SIZE: Final = 16
USER: Final = Struct("<16sI")  # digest of the user, longest window of the caps (s)
NOTICE: Final = Struct("<Bh16sIH")  # kind, loss reason, digest, when it came (epoch s, ms)

_digest: Final = blake2b(digest_size=DIGEST_SIZE).copy  # a copy costs half as much as a new one


class BidVerdict(StrEnum):
    """What became of a bid that was to be remembered.

    A look tells also that budgets are `UNCONFIRMED` since Redis started or lost its data: for the
    bid that is the same as `OVER_BUDGET`.
    """

    KEPT = "k"
    OVER_BUDGET = "b"
    OVER_CAP = "c"
    UNCONFIRMED = "w"


class NoticeVerdict(StrEnum):
    """What became of a notice. `LATE` is counted on the day of the notice, not on the bid's."""

    COUNTED = "c"
    LATE = "l"
    DUPLICATE = "d"
    UNKNOWN = "u"
    SPOOLED = "s"


def marked(campaign: int, mark: int) -> int:
    """A campaign's number with a creative's mark (0 to 255) above its 32 bits, as bids have it."""
    return mark << 32 | campaign


def user_digest(user: str) -> bytes:
    """The 16 bytes by which a capped user is known."""
    return blake2b(user.encode(errors="surrogatepass"), digest_size=16).digest()


def bid_digest(auction_id: bytes, imp_id: bytes) -> bytes:
    """The 16 bytes by which the bid for an auction's impression is found.

    The length in front keeps different pairs apart, and 128 bits keep hostile ids from being made
    to collide. The first two bytes choose a bucket, the others the record in it.
    """
    digest = _digest()
    digest.update(len(auction_id).to_bytes(4, "little") + auction_id + imp_id)
    return digest.digest()


def shard_of(auction_id: bytes, shards: int) -> int:
    """The shard that holds an auction's bids."""
    if shards == 1:
        return 0
    return int.from_bytes(blake2b(auction_id, digest_size=4).digest(), "little") % shards
