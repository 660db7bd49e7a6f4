"""Bids as they travel to Redis (remember.lua has the layout)."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import Struct
from time import gmtime, strftime
from typing import Final, NamedTuple

import msgspec

from snapbid.ledger.limits import DAY_S, Limits
from snapbid.ledger.records import USER, BidVerdict, bid_digest, user_digest

# impression id, number of the campaign with the creative's mark (records.marked), cost in nano-USD
# (a plain bid's CPM in micro-USD), limits
LedgerBid = tuple[bytes, int, int, Limits | None]

_CAMPAIGN: Final = 0xFFFFFFFF
_FIRST: Final = 1  # of its answer
_COUNT: Final = 2  # the answer is to be counted
_LIMITED: Final = 4
_ENTRY: Final = Struct("<B16sBIIIHIB")  # flags, digest, size; SSP, campaign, s, ms, identity, kinds
_ENTRY_SIZE: Final = _ENTRY.size
_RECORD_AT: Final = 18  # in an entry
_RECORD_SIZE: Final = _ENTRY_SIZE - _RECORD_AT
_LENGTH: Final = Struct("<H")

KEPT: Final = BidVerdict.KEPT.value
Verdicts = str  # a BidVerdict for each bid; empty where they were not remembered in time


class AnswerBids(msgspec.Struct, frozen=True):
    """The bids of one 200 answer, which waits for them to be remembered."""

    ssp: int
    day: int  # since 1970-01-01
    campaigns: list[int]
    entries: list[bytes]
    is_counted: bool  # by this batch; else an earlier one did
    is_limited: bool
    done: "asyncio.Future[Verdicts]"
    deadline: float  # loop time

    def accept(self, verdicts: Verdicts) -> bool:
        """Pass on what became of the bids; return whether the answer still waited for it."""
        if self.done.done():
            return False
        self.done.set_result(verdicts)
        return True

    def refuse(self) -> None:
        """The bids will not be remembered."""
        if not self.done.done():
            self.done.set_result("")


class BidBatch(NamedTuple):
    """Bids as they were sent: what it takes to take them back."""

    writer: str
    number: int
    entries: bytes


def encode_bids(
    auction_id: bytes,
    ssp: int,
    bids: Iterable[LedgerBid],
    user: str | None,
    now: tuple[int, int],
    answer: int,
    counted: bool,
) -> tuple[list[int], list[bytes], bool]:
    """The campaigns and the entries of an answer's bids, and whether any has limits.

    `now` is in epoch s and ms; `answer` is the answer's identity (24 bits); `counted`: it was
    counted before. `user` is needed where limits have caps.
    """
    seconds, ms = now
    campaigns, entries, limited, digest_of_user = [], [], False, b""
    flags = _FIRST if counted else _FIRST | _COUNT
    for imp_id, whose, price, limits in bids:
        digest, tail = bid_digest(auction_id, imp_id), b"%d" % price
        campaign, id = whose & _CAMPAIGN, whose >> 32 << 24 | answer
        if limits is None:
            size = _RECORD_SIZE + len(tail)
            entry = _ENTRY.pack(flags, digest, size, ssp, campaign, seconds, ms, id, 0) + tail
        else:
            limited = True
            if limits.longest_s:
                if not digest_of_user:
                    assert user is not None
                    digest_of_user = user_digest(user)
                tail += USER.pack(digest_of_user, limits.longest_s)
            head = (flags | _LIMITED, digest, _RECORD_SIZE + len(tail), ssp, campaign)
            packed = limits.at(seconds)
            entry = b"".join(
                (
                    _ENTRY.pack(*head, seconds, ms, id, limits.kinds),
                    tail,
                    _LENGTH.pack(len(packed)),
                    packed,
                )
            )
        entries.append(entry)
        campaigns.append(campaign)
        flags &= ~_FIRST
    return campaigns, entries, limited


def counters(answers: Sequence[AnswerBids]) -> list[str | bytes | int]:
    """What the bids count, if all are kept: each day with its counters and their increments."""
    first = answers[0].day
    if [answer.day for answer in answers].count(first) == len(answers):
        return _counters(first, answers)
    parts: list[str | bytes | int] = []
    for day in sorted({answer.day for answer in answers}):
        parts += _counters(day, [answer for answer in answers if answer.day == day])
    return parts


def _counters(day: int, answers: Iterable[AnswerBids]) -> list[str | bytes | int]:
    of_ssps = Counter([answer.ssp for answer in answers if answer.is_counted])
    of_campaigns = Counter([campaign for answer in answers for campaign in answer.campaigns])
    names = [b"b:%d" % ssp for ssp in of_ssps]
    names += [b"B:%d" % campaign for campaign in of_campaigns]
    return [_date(day), len(names), *names, *of_ssps.values(), *of_campaigns.values()]


@lru_cache(4)
def _date(day: int) -> str:
    return strftime("%Y-%m-%d", gmtime(day * DAY_S))


def verdicts(answers: Sequence[AnswerBids], refused: bytes) -> list[Verdicts]:
    """The verdicts on each answer, from remember.lua's list of what was refused: `3b12c`."""
    letters = [KEPT] * sum([len(answer.entries) for answer in answers])
    number = ""
    for character in refused.decode():
        if character.isdigit():
            number += character
        else:
            letters[int(number)], number = character, ""
    joined, start, split = "".join(letters), 0, []
    for answer in answers:
        split.append(joined[start : start + len(answer.entries)])
        start += len(answer.entries)
    return split


def kept_entries(answer: AnswerBids, letters: Verdicts) -> bytes:
    """The entries of the bids that were kept, as it takes to take them back."""
    flags = _FIRST | _COUNT if answer.is_counted else _FIRST
    parts: list[bytes] = []
    for entry, letter in zip(answer.entries, letters, strict=True):
        if letter == BidVerdict.KEPT:
            end = _RECORD_AT + entry[_RECORD_AT - 1]
            parts += (bytes((flags,)), entry[1:end])
            flags &= ~_FIRST
    return b"".join(parts)
