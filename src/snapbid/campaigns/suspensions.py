"""Suspended creatives, which an SSP keeps rejecting for their content (contract 11).

The ledger counts rejections by campaign and by the creative's mark, a byte in the record of a bid.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

import msgspec

REASONS: Final = {  # OpenRTB 2.5, 5.25
    200: "General; Reason Unknown",
    201: "Pending processing by Exchange",
    202: "Disapproved by Exchange",
    203: "Size Not Allowed",
    204: "Incorrect Creative Format",
    205: "Advertiser Exclusions",
    206: "App Bundle Exclusions",
    207: "Not Secure",
    208: "Language Exclusions",
    209: "Category Exclusions",
    210: "Creative Attribute Exclusions",
    211: "Ad Type Exclusions",
    212: "Animation Too Long",
    213: "Not Allowed in PMP Deal",
}
MARKS: Final = 255  # and 0 for creatives without a mark


class CreativeSuspension(msgspec.Struct, frozen=True, array_like=True):
    """A creative that is not offered to an SSP for some time; times in epoch s.

    `ssp` (canonical id) has rejected it `losses` times, most recently for `reason` (OpenRTB 2.5,
    5.25).
    """

    ssp: str
    campaign: str
    creative: str
    reason: int
    losses: int
    since: int
    until: int


def marks_of(creatives: Iterable[str]) -> dict[str, int]:
    """Assign unique marks (1 to 255) to a campaign's creatives, by id; 0 if no mark is left.

    A mark is derived from the id, so it rarely changes when other creatives are added or removed.
    If two ids lead to the same mark, the id that sorts second gets the next free mark.
    """
    marks: dict[str, int] = {}
    taken: set[int] = set()
    for creative in sorted(set(creatives)):
        mark = 0
        if len(taken) < MARKS:
            mark = blake2b(creative.encode(), digest_size=8).digest()[0] % MARKS + 1
            while mark in taken:
                mark = mark % MARKS + 1
            taken.add(mark)
        marks[creative] = mark
    return marks
