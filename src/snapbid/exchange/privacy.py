"""Whether a request's user data may be used (contract 3, "Limits that the request sets").

It may not if any of these holds, each taken by itself:

- `coppa` is 1.
- `gdpr` is 1 and `consent` is not a TCF v2 string that grants purposes 1, 3 and 4 and, if a vendor
  id is set, consents to that vendor without a publisher restriction on those purposes. A TCF v1
  string, a malformed one and a truncated one grant nothing.
- `us_privacy` opts out of sale, or is not a valid US Privacy v1 string.
- `gpp_sid` lists 6 (`uspv1`) or 7 to 12 (US national, California, Virginia, Colorado, Utah,
  Connecticut) and that section of `gpp` opts out of sale, sharing or targeted advertising, carries
  a Global Privacy Control signal, is missing, or cannot be decoded: a section that applies but says
  nothing counts as an opt-out. Other sections are ignored.

Where the standards leave room, the stricter reading applies: it may cost a bid its targeting, but
never a user their choice. Standards: IAB Europe TCF v2.2 (Consent string and vendor list formats),
IAB US Privacy String v1, IAB Tech Lab Global Privacy Platform (Core; Sections/US-National v1 and
v2; Sections/US-States v1). Nothing here raises, whatever the strings contain. A string longer
than `MAX_STRING` counts as malformed, which bounds the time that decoding takes.
"""

import re
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Sequence
from functools import lru_cache

MAX_STRING = 16_384
"""Longest consent or GPP string that is decoded, in characters; real ones are under 5,000."""

_SIX_BITS = {
    character: value
    for value, character in enumerate(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    )
}


def may_use_user_data(
    coppa: int | None,
    gdpr: int | None,
    consent: str | None,
    us_privacy: str | None,
    gpp: str | None,
    gpp_sid: Sequence[int],
    gvl_id: int | None,
) -> bool:
    """Return whether a request's user data may be used; the arguments are OpenRTB's fields.

    `gvl_id` is the bidder's own id in the Global Vendor List (`SNAPBID_GVL_ID`), None if unset.
    """
    if coppa == 1:
        return False
    if gdpr == 1 and not (consent and grants(consent, gvl_id)):
        return False
    if us_privacy and usp_opts_out(us_privacy):
        return False
    if gpp_sid:
        sections = tuple(sid for sid in gpp_sid if 6 <= sid <= 12)
        if sections:
            return not _gpp_opts_out(gpp or "", sections)
    return True


# --- TCF v2 -------------------------------------------------------------------------------------
# Bit positions in the core segment, which are fixed up to the 16-bit MaxVendorId.
_PURPOSES_CHARACTER = 25  # bits 150 to 155: PurposesConsent begins at bit 152
_PURPOSES_1_3_4 = 0b001011
_VENDOR_CONSENTS = 213
_RESTRICTED_PURPOSES = (1, 3, 4)
_NOT_ALLOWED, _REQUIRE_LEGITIMATE_INTEREST = 0, 2

# Even without any vendor or restriction, 259 bits are needed.
_TC_STRING = re.compile(r"C[A-Za-z0-9_-]{43,}(?:\.[A-Za-z0-9_-]+)*")


def grants(consent: str, gvl_id: int | None) -> bool:
    """Return whether a TC string consents to purposes 1, 3 and 4, and to the vendor if given."""
    if len(consent) > MAX_STRING or not _TC_STRING.fullmatch(consent):
        return False
    purposes = _SIX_BITS[consent[_PURPOSES_CHARACTER]]
    if purposes & _PURPOSES_1_3_4 != _PURPOSES_1_3_4:
        return False
    if gvl_id is None:
        return True
    try:
        return _grants_vendor(_Bits(consent.partition(".")[0]), gvl_id)
    except EOFError:
        return False


def _grants_vendor(bits: "_Bits", vendor: int) -> bool:
    bits.position = _VENDOR_CONSENTS
    if not _names_vendor(bits, vendor):
        return False
    _names_vendor(bits, vendor)  # skips legitimate interests, which come before the restrictions
    for _ in range(bits.take(12)):
        purpose, kind = bits.take(6), bits.take(2)
        named = _in_ranges(bits, vendor)
        if (
            named
            and purpose in _RESTRICTED_PURPOSES
            and kind in (_NOT_ALLOWED, _REQUIRE_LEGITIMATE_INTEREST)
        ):
            return False
    return True


def _names_vendor(bits: "_Bits", vendor: int) -> bool:
    """Read a vendor section (MaxVendorId, IsRangeEncoding, then bits or ranges) to its end."""
    highest = bits.take(16)
    if bits.take(1):
        return _in_ranges(bits, vendor)
    start = bits.position
    bits.skip(highest)
    return 1 <= vendor <= highest and bits.at(start + vendor - 1) == 1


def _in_ranges(bits: "_Bits", vendor: int) -> bool:
    """Read NumEntries and that many single ids or ranges, to their end."""
    included = False
    for _ in range(bits.take(12)):
        is_range = bits.take(1)
        first = bits.take(16)
        last = bits.take(16) if is_range else first
        included = included or first <= vendor <= last
    return included


class _Bits:
    """Reads web-safe base64 bit by bit. Raises EOFError past the end."""

    __slots__ = ("_data", "_length", "position")

    def __init__(self, text: str) -> None:
        self._data = urlsafe_b64decode(text + "A" * (-len(text) % 4))
        self._length = 6 * len(text)
        self.position = 0

    def take(self, count: int) -> int:
        start, end = self.position, self.position + count
        self.skip(count)
        window = int.from_bytes(self._data[start >> 3 : (end + 7) >> 3])
        return window >> (-end % 8) & ((1 << count) - 1)

    def skip(self, count: int) -> None:
        if self.position + count > self._length:
            raise EOFError
        self.position += count

    def at(self, position: int) -> int:
        return self._data[position >> 3] >> (7 - position % 8) & 1


# --- US Privacy ---------------------------------------------------------------------------------
_USP = re.compile(r"1[YN-]([YN-])[YN-]", re.IGNORECASE | re.ASCII)


def usp_opts_out(us_privacy: str) -> bool:
    """Return whether a US Privacy string opts out of sale, or is invalid."""
    match = _USP.fullmatch(us_privacy)
    return match is None or match.group(1) in "Yy"


# --- Global Privacy Platform --------------------------------------------------------------------
_USP_SECTION = 6
_MAX_WEIGHT = 1 << 16  # of a Fibonacci digit; no section id comes near it

# Section -> the versions known, and the bit positions of its opt-out fields (two bits each, after
# the six bits of the version): SaleOptOut, SharingOptOut, TargetedAdvertisingOptOut. Versions 1
# and 2 of the national section differ only after these.
_OPT_OUTS: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {
    7: ((1, 2), (18, 20, 22)),  # usnat: sale, sharing, targeting
    8: ((1,), (12, 14)),  # usca: sale, sharing
    9: ((1,), (12, 14)),  # usva: sale, targeting
    10: ((1,), (12, 14)),  # usco: sale, targeting
    11: ((1,), (14, 16)),  # usut: sale, targeting
    12: ((1,), (12, 14)),  # usct: sale, targeting
}
_WITH_GPC = (7, 8, 10, 12)
_GPC_TYPE = 1
_NOT_APPLICABLE, _DID_NOT_OPT_OUT = 0, 2

_SECTION = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_CACHEABLE_GPP = 512


def _gpp_opts_out(gpp: str, sections: tuple[int, ...]) -> bool:
    if len(gpp) <= _CACHEABLE_GPP and len(sections) <= 7:
        return _cached_opt_out(gpp, sections)
    return _any_opt_out(gpp, sections)


def _any_opt_out(gpp: str, sections: tuple[int, ...]) -> bool:
    if len(gpp) > MAX_STRING:
        return True
    header, *bodies = gpp.split("~")
    try:
        by_id = dict(zip(_section_ids(header, len(bodies)), bodies, strict=True))
        return any(_section_opts_out(section, by_id[section]) for section in set(sections))
    except (EOFError, ValueError, KeyError):
        return True


_cached_opt_out = lru_cache(maxsize=2048)(_any_opt_out)


def _section_ids(header: str, count: int) -> list[int]:
    """Decode the header: type 3, version 1, and a Fibonacci-coded range of ascending section ids.

    Raises ValueError or EOFError if it is malformed or names more than `count` sections.
    """
    if not _SECTION.fullmatch(header):
        raise ValueError("not a GPP header")
    bits = _Bits(header)
    if (bits.take(6), bits.take(6)) != (3, 1):
        raise ValueError("not a GPP header of version 1")
    ids: list[int] = []
    last = 0
    for _ in range(bits.take(12)):
        is_range = bits.take(1)
        first = last + _fibonacci(bits)
        last = first + _fibonacci(bits) if is_range else first
        if len(ids) + last - first >= count:
            raise ValueError("fewer sections than the header names")
        ids.extend(range(first, last + 1))
    return ids


def _fibonacci(bits: _Bits) -> int:
    """Read one Fibonacci-coded integer: the sum of the digits set, ended by two ones in a row."""
    total, weight, following, previous = 0, 1, 2, 0
    while weight < _MAX_WEIGHT:
        bit = bits.take(1)
        if bit and previous:
            return total
        total += weight * bit
        weight, following, previous = following, weight + following, bit
    raise ValueError("a Fibonacci-coded integer without an end")


def _section_opts_out(section: int, body: str) -> bool:
    if section == _USP_SECTION:
        return usp_opts_out(body)
    if not _SECTION.fullmatch(body):
        return True
    core, *subsections = body.split(".")
    bits = _Bits(core)
    versions, fields = _OPT_OUTS[section]
    if bits.take(6) not in versions:
        return True
    if any(value not in (_NOT_APPLICABLE, _DID_NOT_OPT_OUT) for value in _fields(bits, fields)):
        return True
    return section in _WITH_GPC and any(map(_is_gpc_set, subsections))


def _fields(bits: _Bits, positions: tuple[int, ...]) -> Iterator[int]:
    for position in positions:
        bits.position = position
        yield bits.take(2)


def _is_gpc_set(subsection: str) -> bool:
    bits = _Bits(subsection)
    return bits.take(2) == _GPC_TYPE and bits.take(1) == 1
