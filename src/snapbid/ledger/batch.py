"""Bids on their way to Redis: what waits, and a batch as the scripts read it (remember.lua)."""

import asyncio
from collections.abc import Container, Iterator, Sequence
from struct import Struct
from time import gmtime, strftime
from typing import Any, Final, NamedTuple

from snapbid.ledger.records import RECORD, USER, Remembered, Reserved

_ANSWER: Final = Struct("<IBH")  # SSP, counted already, number of bids
_LENGTH: Final = Struct("<H")


class Bids(NamedTuple):
    """One 200 answer that waits to be remembered.

    With limits, `counted` says whether it has been counted, and `bids` are Reserved; without any it
    is None. `done` becomes remember.lua's letters, or "", with limits, else True or False.
    """

    ssp: int
    bids: "Sequence[Remembered | Reserved]"
    counted: bool | None
    done: "asyncio.Future[Any]"
    deadline: float  # loop time

    def accept(self, letters: str) -> None:
        """Redis has them, or has decided."""
        if not self.done.done():
            self.done.set_result(True if self.counted is None else letters)

    def refuse(self) -> None:
        """They will not be remembered."""
        if not self.done.done():
            self.done.set_result(False if self.counted is None else "")

    def is_wanted(self) -> bool:
        """Whether, after it was accepted, the answer still waits for it."""
        return not self.done.cancelled() and bool(self.done.result())

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
    counters: dict[bytes, int]


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
    records: list[bytes] = []
    answers: list[bytes] = []
    counters: dict[bytes, int] = {}
    for one in entries:
        if one.counted is None:
            _add_plain(one, now, kept, records, counters)
        else:
            _add_limited(one, now, answers)
    granule = now // granule_s
    expires = (granule + 1) * granule_s + ttl_s + granule_s
    day = strftime("%Y-%m-%d", gmtime(now))
    packed = (b"".join(records), b"".join(answers))
    return Batch(number, granule, expires, day, *packed, now_ms, letters, counters)


def _add_plain(
    one: Bids, now: int, kept: Container[bytes], parts: list[bytes], counters: dict[bytes, int]
) -> None:
    ssp = one.ssp
    answers = b"b:%d" % ssp
    counters[answers] = counters.get(answers, 0) + 1
    for place, campaign, price, *_ in one.bids:
        if place not in kept:
            digits = b"%d" % price
            parts += (
                place,
                bytes((RECORD.size + len(digits),)),
                RECORD.pack(ssp, campaign, now, 0),
                digits,
            )
        bid = b"B:%d" % campaign
        counters[bid] = counters.get(bid, 0) + 1


def _add_limited(one: Bids, now: int, parts: list[bytes]) -> None:
    """Which of these are kept is known to the script alone, so that it counts them itself."""
    ssp = one.ssp
    parts.append(_ANSWER.pack(ssp, bool(one.counted), len(one.bids)))
    for bid in one.bids:
        assert isinstance(bid, Reserved)
        place, campaign, price, limits, user = bid
        if limits is None:
            value, packed = RECORD.pack(ssp, campaign, now, 0) + b"%d" % price, b""
        else:
            value = RECORD.pack(ssp, campaign, now, limits.kinds) + b"%d" % price
            packed = limits.at(now)
            if limits.longest_s:
                value += USER.pack(user, limits.longest_s)
        parts += (place, bytes((len(value),)), value, _LENGTH.pack(len(packed)), packed)
