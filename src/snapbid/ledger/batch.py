"""Bids on their way to Redis: what waits, and a batch as the scripts read it (remember.lua)."""

import asyncio
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from functools import lru_cache
from struct import Struct
from time import gmtime, strftime
from typing import Any, Final, NamedTuple

import msgspec

from snapbid.ledger.limits import DAY_S
from snapbid.ledger.records import PLACE_SIZE, RECORD, USER, Remembered, Reserved

_ANSWER: Final = Struct("<IBH")  # SSP, counted already, number of bids
_LENGTH: Final = Struct("<H")
_RECORD: Final = Struct(f"<{PLACE_SIZE}sB" + RECORD.format[1:])  # place, size, record
_RECORD_SIZE: Final = RECORD.size
_COUNTER: Final = Struct("<cII")  # of an SSP's answers (b) or a campaign's bids (B): whose, by


class Bids(msgspec.Struct, frozen=True):
    """One 200 answer that waits to be remembered.

    With limits, `counted` says whether it has been counted, and `bids` are Reserved; without any it
    is None. `done` becomes remember.lua's letters, or "", with limits, else True or False.
    """

    ssp: int
    bids: "Sequence[Remembered | Reserved]"
    counted: bool | None
    done: "asyncio.Future[Any]"
    deadline: float  # loop time

    def accept(self, letters: str) -> bool:
        """Redis has them, or has decided; whether the answer has waited for it."""
        if self.done.done():
            return False
        self.done.set_result(True if self.counted is None else letters)
        return True

    def refuse(self) -> None:
        """They will not be remembered."""
        if not self.done.done():
            self.done.set_result(False if self.counted is None else "")

    def places(self, letters: str) -> Iterator[bytes]:
        """Where the bids that were kept are remembered."""
        if self.counted is None:
            return (bid.place for bid in self.bids)
        kept = zip(self.bids, letters, strict=True)
        return (bid.place for bid, letter in kept if letter == "k")


class Batch(NamedTuple):
    """Bids as they were sent; enough to take them back. `letters` are forget.lua's."""

    number: int
    granule: int
    expires: int
    day: str
    records: bytes
    answers: bytes
    now_ms: int
    letters: str
    counters: bytes


def split(entries: list[Bids], letters: str) -> list[str]:
    """The letters of each answer; "" for those without limits."""
    if not letters:
        return [""] * len(entries)
    found, at = [], 0
    for one in entries:
        size = 0 if one.counted is None else len(one.bids)
        found.append(letters[at : at + size])
        at += size
    return found


def make_batch(
    number: int,
    entries: list[Bids],
    now_ms: int,
    granule_s: int,
    ttl_s: int,
    *,
    kept: Container[bytes] = (),
    letters: str = "",
) -> Batch:
    """The entries as they travel; without the records of `kept` places, but counted."""
    now = now_ms // 1000
    plain = [one for one in entries if one.counted is None]
    answers: list[bytes] = []
    if len(plain) < len(entries):
        for one in entries:
            if one.counted is not None:
                _add_limited(one, now, answers)
    granule = now // granule_s
    expires = (granule + 1) * granule_s + ttl_s + granule_s
    packed = (_records(plain, now, kept), b"".join(answers))
    day, counters = _day(now // DAY_S), _counters(plain)
    return Batch(number, granule, expires, day, *packed, now_ms, letters, counters)


@lru_cache(2)
def _day(number: int) -> str:
    return strftime("%Y-%m-%d", gmtime(number * DAY_S))


def _records(entries: list[Bids], now: int, kept: Container[bytes]) -> bytes:
    parts: list[bytes] = []
    for one in entries:
        for bid in one.bids:
            if bid.place not in kept:
                digits = b"%d" % bid.price_micros
                size = _RECORD_SIZE + len(digits)
                parts.append(_RECORD.pack(bid.place, size, one.ssp, bid.campaign, now, 0))
                parts.append(digits)
    return b"".join(parts)


def _counters(entries: list[Bids]) -> bytes:
    answers = Counter([one.ssp for one in entries])
    bids = Counter([bid.campaign for one in entries for bid in one.bids])
    parts = [_COUNTER.pack(b"b", ssp, count) for ssp, count in answers.items()]
    parts += [_COUNTER.pack(b"B", campaign, count) for campaign, count in bids.items()]
    return b"".join(parts)


def _add_limited(one: Bids, now: int, parts: list[bytes]) -> None:
    """Which of these are kept is known to the script alone, so that it counts them itself."""
    ssp = one.ssp
    parts.append(_ANSWER.pack(ssp, bool(one.counted), len(one.bids)))
    for bid in one.bids:
        assert isinstance(bid, Reserved)
        limits, digits = bid.limits, b"%d" % bid.price_micros
        if limits is None:
            value, packed = RECORD.pack(ssp, bid.campaign, now, 0) + digits, b""
        else:
            value = RECORD.pack(ssp, bid.campaign, now, limits.kinds) + digits
            packed = limits.at(now)
            if limits.longest_s:
                value += USER.pack(bid.user, limits.longest_s)
        parts += (bid.place, bytes((len(value),)), value, _LENGTH.pack(len(packed)), packed)
