"""Encodings of bids and notices, in Redis and in the spool, and of batches of bids.

The layouts are in records.lua and remember.lua; native code packs bids and notices.
"""

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from time import gmtime, strftime
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from snapbid.base.redis_keys import shard_of
from snapbid.ledger.bids._records import AnswerBids as AnswerBids
from snapbid.ledger.bids._records import bid_digest as bid_digest
from snapbid.ledger.bids._records import count
from snapbid.ledger.bids._records import join as join
from snapbid.ledger.bids._records import keep as keep
from snapbid.ledger.bids._records import pack_notice as pack_notice
from snapbid.ledger.bids._records import user_digest as user_digest

if TYPE_CHECKING:  # limits.py imports this module
    from snapbid.ledger.budgets.limits import Limits

DAY_S: Final = 86_400

WIN: Final = 1
BILLING: Final = 2
LOSS: Final = 4
HELD: Final = 8  # flag of a record: the cost of the bid is held
CAPPED: Final = 16  # flag of a record: the user is capped, and follows the price
NOTICE_KINDS: Final = WIN | BILLING | LOSS
ALTERED: Final = 32  # flag of a notice: its URL was altered (bidding/notice.py)
OTHERWISE: Final = 64  # flag of a spooled notice: an alternative reading of the one before it
SPOOLED: Final = 128  # flag of a notice: it comes from a spool

DIGEST_SIZE: Final = 16
NAMED_BY_FAMILY: Final = b"\xff"  # begins the names of signed bids, and no text in UTF-8
FAMILY_SIZE: Final = 4
# Kind, loss reason, digest, time of arrival, start of the Redis run last reached; times are epoch s
# and ms, zeros if unknown. Written by `pack_notice`.
NOTICE: Final = Struct("<Bh16sIHIH")


class BidVerdict(StrEnum):
    """The outcome of remembering a bid.

    `UNCONFIRMED`, from `look` only: Redis has restarted or lost its data, and budgets are not yet
    restored; `remember` then gives `OVER_BUDGET`. `CAPS_UNAVAILABLE`: the shard with the user's
    impressions is unavailable. `OVER_SHARE`: several SSPs compete for the budget, and this one has
    used its share. `TAKEN`: another family of SSPs has a bid on this impression. `OVER_SUM`: the
    cost would overflow the day's sums (remember.lua).
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
    """The outcome of a notice. `LATE`: counted on the day of settlement, not the bid's day."""

    COUNTED = "c"
    LATE = "l"
    DUPLICATE = "d"
    UNKNOWN = "u"
    SPOOLED = "s"


def family_of(canonical: str) -> bytes:
    """Return the prefix that the auction ids of a family's signed bids get before hashing.

    `canonical`: the family's canonical id. The prefix begins with NAMED_BY_FAMILY, which UTF-8
    never contains, so a signed bid is never mistaken for an unsigned one.
    """
    return NAMED_BY_FAMILY + blake2b(canonical.encode(), digest_size=FAMILY_SIZE).digest()


def marked(campaign: int, mark: int) -> int:
    """Pack a creative's mark (campaigns/suspensions.py) above its campaign's number (32 bits)."""
    return mark << 32 | campaign


def identity(marked: int, answer: int) -> int:
    """Pack the creative's mark (from `marked`) above the answer's identity (24 bits).

    The result is the bid's identity; see records.lua.
    """
    return marked >> 32 << 24 | answer


def user_shard(digest: bytes, shards: int) -> int:
    """Return the number of the shard that counts a user's impressions for frequency caps."""
    return int.from_bytes(digest[:4], "little") % shards


def moved_to(auction_id: bytes, former: Sequence[int], shards: int) -> list[int]:
    """List the shards that moves of the ledger may have taken an auction's bids to.

    `former`: the number of shards before each move, in order. Each move took shard N to shard N
    modulo the next number of shards. The shard of bids made just before the last move comes first.
    """
    found = list[int]()
    for at in reversed(range(len(former))):
        shard = shard_of(auction_id, former[at])
        for later in (*former[at + 1 :], shards):
            shard %= later
        if shard not in found:
            found.append(shard)
    return found


# -- batches of bids ------------------------------------------------------------------------------

# Impression id, `marked` campaign, cost in nano-USD (a plain bid's CPM in micro-USD), limits.
LedgerBid: TypeAlias = "tuple[bytes, int, int, Limits | None]"

_FIRST: Final = 1  # the first bid of its answer
_COUNT: Final = 2  # count the answer
_LIMITED: Final = 4
_KEPT: Final = 8  # in a rollback: the ledger kept the bid
_RECORD_AT: Final = 18  # offset of the record in an entry; the byte before it is its size

KEPT: Final = BidVerdict.KEPT.value
Verdicts = str  # a BidVerdict for each bid; empty if they were not remembered in time


class BidBatch(NamedTuple):
    """A batch of bids as sent, with all that is needed to roll it back."""

    writer: str
    number: int
    entries: bytes


def counters(answers: list[AnswerBids]) -> list[str | bytes | int]:
    """Encode the counter increments that apply if all bids are kept, by day, for remember.lua."""
    parts: list[str | bytes | int] = []
    for day, names, increments in count(answers):
        parts += (_date(day), len(names), *names, *increments)
    return parts


@lru_cache(4)
def _date(day: int) -> str:
    return strftime("%Y-%m-%d", gmtime(day * DAY_S))


def verdicts(answers: Sequence[AnswerBids], refused: bytes) -> list[Verdicts]:
    """Parse remember.lua's refusals (`3b12c`: `b` for bid 3, `c` for bid 12) into verdicts."""
    letters = [KEPT] * sum([answer.bids for answer in answers])
    number = ""
    for character in refused.decode():
        if character.isdigit():
            number += character
        else:
            letters[int(number)], number = character, ""
    joined, start, split = "".join(letters), 0, []
    for answer in answers:
        split.append(joined[start : start + answer.bids])
        start += answer.bids
    return split


def kept_entries(answer: AnswerBids, letters: Verdicts) -> bytes:
    """Encode the kept bids of an answer, for a rollback."""
    flags = _KEPT | _FIRST | (_COUNT if answer.is_counted else 0)
    entries, at = answer.entries, 0
    parts: list[bytes] = []
    for letter in letters:
        end = at + _RECORD_AT + entries[at + _RECORD_AT - 1]
        if letter == BidVerdict.KEPT:
            parts += (bytes((flags,)), entries[at + 1 : end])
            flags &= ~_FIRST
        if entries[at] & _LIMITED:
            end += 2 + int.from_bytes(entries[end : end + 2], "little")
        at = end
    return b"".join(parts)
