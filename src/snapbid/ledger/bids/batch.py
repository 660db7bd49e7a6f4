"""Encode bids for Redis and decode its verdicts (layout in remember.lua; native code packs)."""

from collections.abc import Sequence
from functools import lru_cache
from time import gmtime, strftime
from typing import Final, NamedTuple

from snapbid.ledger.bids._records import AnswerBids as AnswerBids
from snapbid.ledger.bids._records import count
from snapbid.ledger.bids._records import join as join
from snapbid.ledger.bids._records import keep as keep
from snapbid.ledger.bids.records import BidVerdict
from snapbid.ledger.budgets.limits import DAY_S, Limits

# impression id, number of the campaign with the creative's mark (records.marked), cost in nano-USD
# (a plain bid's CPM in micro-USD), limits
LedgerBid = tuple[bytes, int, int, Limits | None]

_FIRST: Final = 1  # the first bid of its answer
_COUNT: Final = 2  # count the answer
_LIMITED: Final = 4
_KEPT: Final = 8  # in a rollback: the ledger kept the bid
_RECORD_AT: Final = 18  # offset of the record in an entry; the byte before it is its size

KEPT: Final = BidVerdict.KEPT.value
Verdicts = str  # a BidVerdict for each bid; empty where they were not remembered in time


class BidBatch(NamedTuple):
    """Bids as they were sent, with all that is needed to roll them back."""

    writer: str
    number: int
    entries: bytes


def counters(answers: list[AnswerBids]) -> list[str | bytes | int]:
    """List, for each day, the counters that the bids raise if all are kept, and by how much."""
    parts: list[str | bytes | int] = []
    for day, names, increments in count(answers):
        parts += (_date(day), len(names), *names, *increments)
    return parts


@lru_cache(4)
def _date(day: int) -> str:
    return strftime("%Y-%m-%d", gmtime(day * DAY_S))


def verdicts(answers: Sequence[AnswerBids], refused: bytes) -> list[Verdicts]:
    """Parse remember.lua's list of refused bids (`3b12c`) into the verdicts on each answer."""
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
    """Encode the bids of an answer that were kept, for a rollback."""
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
