"""Consent strings of the Transparency and Consent Framework (contract 3, "Privacy").

A string permits the use of user data if its core consents to purposes 1, 3 and 4. If a vendor id is
set, the string must also consent to that vendor, its publisher must not have restricted the vendor
on any of these purposes, and the vendor must be among the disclosed ones if the string lists them
(TCF 2.3). Europe's string is version 2 (v1 permits nothing); Canada's, section 5 of a GPP string,
is version 1. Only the user's own consent counts: Europe's legitimate interests and Canada's implied
consent do not.

Standards: IAB Europe TCF, "Consent string and vendor list formats", v2.3; IAB Canada TCF v1 (GPP
section 5), whose vendors are encoded as in IAB Tech Lab's own library, with a 16-bit MaxVendorId
before ids in Fibonacci code.
"""

import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from snapbid.bidding.bits import SIX_BITS, Bits, MalformedError

MAX_STRING: Final = 16_384
"""The longest TCF or GPP string that is parsed, in characters; real ones are under 5,000."""

_PURPOSES_CHARACTER: Final = 25  # has bits 150 to 155, where both formats have purposes 1 to 4
_RESTRICTED_PURPOSES: Final = (1, 3, 4)
_NOT_ALLOWED, _NO_CONSENT_ASKED = 0, 2  # restriction types that override consent
_DISCLOSED_VENDORS, _ALLOWED_VENDORS, _PUBLISHER = 1, 2, 3  # segment types


class _Framework(Struct, frozen=True):
    """The format of a framework's consent strings: positions in the core, encoding of id ranges."""

    text: re.Pattern[str]  # begins with the version's character; the shortest core, and segments
    purposes_1_3_4: int  # bits in the purposes' character
    vendors: int  # bit position of the vendors with consent; other vendors and restrictions follow
    read_vendors: Callable[[Bits, int], bool]
    read_restricted: Callable[[Bits, int], bool]


def grants_in_europe(text: str, vendor: int | None) -> bool:
    """Return whether a TC string permits the use of user data (by `vendor`, if given)."""
    return _grants(text, vendor, _EUROPE)


def grants_in_canada(text: str, vendor: int | None) -> bool:
    """Return whether section 5 of a GPP string (Canada) permits the use of user data."""
    return _grants(text, vendor, _CANADA)


def _grants(text: str, vendor: int | None, form: _Framework) -> bool:
    if len(text) > MAX_STRING or not form.text.fullmatch(text):
        return False
    purposes = SIX_BITS[text[_PURPOSES_CHARACTER]]
    if purposes & form.purposes_1_3_4 != form.purposes_1_3_4:
        return False
    if vendor is None:
        return True
    core, *segments = text.split(".")
    try:
        return _grants_vendor(Bits(core), vendor, form) and all(
            _read_segment(Bits(segment), vendor, form) for segment in segments
        )
    except MalformedError:
        return False


def _grants_vendor(bits: Bits, vendor: int, form: _Framework) -> bool:
    """Return whether a consent string's core permits the vendor to use user data."""
    bits.position = form.vendors
    if not form.read_vendors(bits, vendor):
        return False
    form.read_vendors(bits, vendor)  # legitimate interests, or implied consents
    for _ in range(bits.take(12)):
        purpose, kind = bits.take(6), bits.take(2)
        named = form.read_restricted(bits, vendor)
        if named and purpose in _RESTRICTED_PURPOSES and kind in (_NOT_ALLOWED, _NO_CONSENT_ASKED):
            return False
    return True


def _read_segment(bits: Bits, vendor: int, form: _Framework) -> bool:
    """Read a segment; return False if it is a list of disclosed vendors that lacks `vendor`."""
    kind = bits.take(3)
    if kind == _DISCLOSED_VENDORS:
        return form.read_vendors(bits, vendor)
    if kind == _ALLOWED_VENDORS:  # of no effect since TCF 2.2
        form.read_vendors(bits, vendor)
    elif kind == _PUBLISHER:
        bits.skip(2 * 24)
        bits.skip(2 * bits.take(6))
    else:
        raise MalformedError("unknown segment")
    return True


def _vendors(bits: Bits, vendor: int, ranges: Callable[[Bits, int], bool]) -> bool:
    """Read a list of vendors, as a bit for each or as ranges; return whether it has `vendor`."""
    highest = bits.take(16)
    if bits.take(1):
        return ranges(bits, vendor)
    start = bits.skip(highest)
    return 1 <= vendor <= highest and bits.at(start + vendor - 1)


def _integer_ranges(bits: Bits, vendor: int) -> bool:
    """Read NumEntries and that many 16-bit ids or ranges; return whether one includes `vendor`."""
    included = False
    for _ in range(bits.take(12)):
        is_range = bits.take(1)
        first = bits.take(16)
        last = bits.take(16) if is_range else first
        if not 1 <= first <= last:
            raise MalformedError("invalid range of ids")
        included = included or first <= vendor <= last
    return included


def _fibonacci_ranges(bits: Bits, vendor: int) -> bool:
    """Read NumEntries and that many ids or ranges; return whether one includes `vendor`.

    Ids are in Fibonacci code, each relative to the one before.
    """
    included, last = False, 0
    for _ in range(bits.take(12)):
        is_range = bits.take(1)
        first = last + bits.fibonacci()
        last = first + bits.fibonacci() if is_range else first
        included = included or first <= vendor <= last
    return included


def _integer_vendors(bits: Bits, vendor: int) -> bool:
    return _vendors(bits, vendor, _integer_ranges)


def _fibonacci_vendors(bits: Bits, vendor: int) -> bool:
    return _vendors(bits, vendor, _fibonacci_ranges)


_SEGMENTS: Final = r"(?:\.[A-Za-z0-9_-]+){0,3}"
_EUROPE: Final = _Framework(
    text=re.compile(r"C[A-Za-z0-9_-]{43,}" + _SEGMENTS),
    purposes_1_3_4=0b001011,
    vendors=213,
    read_vendors=_integer_vendors,
    read_restricted=_integer_ranges,
)
_CANADA: Final = _Framework(
    text=re.compile(r"B[A-Za-z0-9_-]{40,}" + _SEGMENTS),
    purposes_1_3_4=0b010110,
    vendors=199,
    read_vendors=_fibonacci_vendors,
    read_restricted=_fibonacci_vendors,
)
