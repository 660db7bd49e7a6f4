"""Global Privacy Platform strings: sections and US opt-outs (contract 3).

A string is a header that lists the sections, followed by the sections, separated by `~`. Section 2
is Europe's TC string, 5 is Canada's; 6 is a US privacy string, 7 the US national section, and 8 to
27 are the sections of US states.

The core of a US section begins with a version and notices. The user's choices follow, two bits
each: 0 not applicable, 1 no (opted out of sale, of sharing or of targeted advertising; no consent
to the processing of sensitive data or of a known child's data), 2 yes. Any 1 opts out, and so does
3, which is undefined. A subsection after the core has a Global Privacy Control signal, or in
sections 25 to 27 the choices on sensitive data.

Standards: IAB Tech Lab Global Privacy Platform: Core; Sections/US-National v1 and v2;
Sections/US-States. The states of sections 24 to 27 specify a header that the IAB's library does not
write; these sections are read with and without it.
"""

import re
from functools import lru_cache
from typing import Final

from msgspec import Struct

from snapbid.bidding.bits import Bits, MalformedError
from snapbid.bidding.tcf import MAX_STRING

TCF_EUROPE: Final = 2
TCF_CANADA: Final = 5
US_SECTIONS: Final = range(6, 28)
NONE_APPLIES: Final = -1  # "no section is applicable" (Core, CMP API, applicableSections)
KNOWN: Final = frozenset((NONE_APPLIES, TCF_EUROPE, TCF_CANADA, *US_SECTIONS))
"""Known values of `gpp_sid`."""

_MAX_SECTIONS: Final = 64
_CACHEABLE: Final = 512  # characters

_USP_SECTION: Final = 6
_ANY_VERSION: Final = -1
_LAST_WITH_VERSION: Final = 23  # later cores begin with the version of the MSPA, a contract

# Section -> version -> how many two-bit fields it has before the user's choices, for the choices
# (opt-outs, categories of sensitive data, known child), and after them.
_FIELDS: Final[dict[int, dict[int, tuple[int, int, int]]]] = {
    7: {1: (6, 3 + 12 + 2, 4), 2: (6, 3 + 16 + 3, 4)},  # usnat
    8: {1: (3, 2 + 9 + 2, 4)},  # usca
    9: {1: (3, 2 + 8 + 1, 3)},  # usva
    10: {1: (3, 2 + 7 + 1, 3)},  # usco
    11: {1: (4, 2 + 8 + 1, 3)},  # usut
    12: {1: (3, 2 + 8 + 3, 3)},  # usct
    13: {1: (3, 2 + 8 + 3, 4)},  # usfl
    14: {1: (3, 2 + 8 + 3, 4)},  # usmt
    15: {1: (3, 2 + 11 + 3, 4)},  # usor
    16: {1: (3, 2 + 8 + 1, 4)},  # ustx
    17: {1: (3, 2 + 9 + 5, 4)},  # usde
    18: {1: (4, 2 + 8 + 1, 3)},  # usia
    19: {1: (3, 2 + 8 + 1, 4)},  # usne
    20: {1: (3, 2 + 8 + 3, 4)},  # usnh
    21: {1: (3, 2 + 10 + 5, 4)},  # usnj
    22: {1: (3, 2 + 8 + 1, 4)},  # ustn
    23: {1: (3, 2 + 8 + 1, 4)},  # usmn
    24: {_ANY_VERSION: (5, 2, 1)},  # usmd
    25: {_ANY_VERSION: (5, 2 + 1, 1)},  # usin
    26: {_ANY_VERSION: (5, 2 + 1, 1)},  # usky
    27: {_ANY_VERSION: (5, 2 + 1, 1)},  # usri
}
_WITH_SENSITIVE_DATA: Final = (25, 26, 27)  # in a subsection
_SENSITIVE_DATA: Final = 8  # choices
_MAX_SUBSECTIONS: Final = 8
_GPC_TYPE: Final = 1
_SECTION_VERSION: Final = 1  # in a section's own header

_USP: Final = re.compile(r"1[YN-]([YN-])[YN-]", re.IGNORECASE | re.ASCII)


class Sections(Struct, frozen=True):
    """A parsed GPP string: `texts` has its sections by id.

    `opted_out`: the US sections that opt out or cannot be read; `gpc`: whether any section carries
    a Global Privacy Control signal.
    """

    texts: dict[int, str]
    opted_out: frozenset[int] = frozenset()
    gpc: bool = False


def usp_opts_out(us_privacy: str) -> bool:
    """Return whether a US Privacy string opts out of sale, or is invalid."""
    match = _USP.fullmatch(us_privacy)
    return match is None or match.group(1) in "Yy"


def read(gpp: str) -> Sections | None:
    """Parse a GPP string; None if it is malformed or longer than MAX_STRING.

    A bare TC string counts as section 2.
    """
    return _cached(gpp) if len(gpp) <= _CACHEABLE else _read(gpp)


def _read(gpp: str) -> Sections | None:
    if len(gpp) > MAX_STRING:
        return None
    if gpp.startswith("C"):
        return Sections({TCF_EUROPE: gpp})
    header, *texts = gpp.split("~")
    if not all(texts):
        return None
    try:
        by_id = dict(zip(_section_ids(header, len(texts)), texts, strict=True))
    except ValueError:
        return None
    opted_out, gpc = set(), False
    for section in US_SECTIONS:
        if section in by_id:
            core, *subsections = by_id[section].split(".", _MAX_SUBSECTIONS)
            if section not in _WITH_SENSITIVE_DATA:
                gpc = gpc or any(map(_is_gpc_set, subsections))
            if _opts_out(section, core, subsections):
                opted_out.add(section)
    return Sections(by_id, frozenset(opted_out), gpc)


_cached = lru_cache(maxsize=2048)(_read)


def _section_ids(header: str, count: int) -> list[int]:
    """Return the section ids that a GPP header (version 1) lists, in ascending order.

    Raises MalformedError if the header is malformed, or names more than `count` sections or more
    than `_MAX_SECTIONS`.
    """
    bits = Bits(header)
    if (bits.take(6), bits.take(6)) != (3, 1):
        raise MalformedError("not a GPP header of version 1")
    ids: list[int] = []
    last = 0
    for _ in range(bits.take(12)):
        is_range = bits.take(1)
        first = last + bits.fibonacci()
        last = first + bits.fibonacci() if is_range else first
        if len(ids) + last - first >= min(count, _MAX_SECTIONS):
            raise MalformedError("fewer sections than the header lists")
        ids.extend(range(first, last + 1))
    return ids


def _is_gpc_set(subsection: str) -> bool:
    """Return whether a section's subsection sets Global Privacy Control."""
    try:
        bits = Bits(subsection)
        bits.skip(2)
        return bits.take(1) == 1
    except MalformedError:
        return False


def _opts_out(section: int, core: str, subsections: list[str]) -> bool:
    """Return whether a US section opts out, or cannot be read."""
    if section == _USP_SECTION:
        return bool(subsections) or usp_opts_out(core)
    try:
        segments = [Bits(core), *map(Bits, subsections)]
        if section > _LAST_WITH_VERSION:
            _drop_header(section, segments)
        return not _allows(section, *segments)
    except MalformedError:
        return True


def _drop_header(section: int, segments: list[Bits]) -> None:
    """Remove a section's first segment if that is a header, which begins with the section's id."""
    header = segments[0]
    if header.take(6) == section:
        if header.take(6) != _SECTION_VERSION or len(segments) == 1:
            raise MalformedError("unknown version")
        del segments[0]
    header.position = 0


def _allows(section: int, core: Bits, *subsections: Bits) -> bool:
    """Return whether neither the core nor a subsection of a US section opts out.

    Raises MalformedError if any of them cannot be read.
    """
    versions = _FIELDS[section]
    fields = versions.get(core.take(6)) or versions.get(_ANY_VERSION)
    if fields is None:
        raise MalformedError("unknown version")
    before, choices, behind = fields
    core.skip(2 * before)
    allowed = _all_allow(core, choices)
    core.skip(2 * behind)
    core.end()
    for bits in subsections:
        if section in _WITH_SENSITIVE_DATA:
            allowed = _all_allow(bits, _SENSITIVE_DATA) and allowed
        elif bits.take(2) != _GPC_TYPE:
            raise MalformedError("unknown subsection")
        else:
            bits.skip(1)  # the signal counts whether or not the section applies
    return allowed


def _all_allow(bits: Bits, count: int) -> bool:
    """Read `count` choices; return whether each is "yes" or "not applicable"."""
    return not bits.take(2 * count) & int("01" * count, 2)
