"""Consent strings with a known meaning, written bit by bit from the IAB's formats.

`TCF`, `US_PRIVACY` and `GPP` map a string to its meaning, so that a test knows the verdict without
parsing. Formats: TCF core string v2, US privacy string 1.0, Global Privacy Platform 1.0 with the
sections usnat (7, version 1), usca (8), ustx (16) and uspv1 (6).
"""

import base64
from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Grant:
    """What a TCF string grants."""

    purposes: frozenset[int]
    vendors: frozenset[int]


@dataclass(frozen=True)
class UsSections:
    """What a GPP string says: its sections, and those that opt out."""

    sections: frozenset[int]
    opted_out: frozenset[int]
    gpc: bool = False
    europe: Grant | None = None  # section 2


def bits(value: int, width: int) -> str:
    """Write an integer as big-endian bits."""
    return format(value, f"0{width}b")


def base64url(content: str) -> str:
    """Encode bits, padded with zeroes to whole bytes, without trailing `=`."""
    content += "0" * (-len(content) % 8)
    raw = int(content, 2).to_bytes(len(content) // 8, "big")
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def letters(code: str) -> str:
    """Write a two-letter code in six bits a letter."""
    return "".join(bits(ord(letter) - ord("A"), 6) for letter in code)


def bitfield(granted: Collection[int], width: int) -> str:
    """Write a set of numbers from 1 to `width` as one bit each."""
    return "".join("1" if number in granted else "0" for number in range(1, width + 1))


def vendor_section(vendors: Collection[int], ranges: bool) -> str:
    """Write the vendors who have consent, as a bit field or as ranges of one."""
    highest = max(vendors, default=0)
    if not ranges:
        return bits(highest, 16) + "0" + bitfield(vendors, highest)
    entries = "".join("0" + bits(vendor, 16) for vendor in sorted(vendors))
    return bits(highest, 16) + "1" + bits(len(vendors), 12) + entries


def tcf(purposes: Collection[int], vendors: Collection[int] = (), ranges: bool = False) -> str:
    """Write a TCF v2 core string."""
    moment = bits(17_000_000_000, 36)
    core = bits(2, 6) + moment + moment + bits(300, 12) + bits(2, 12) + bits(1, 6)
    core += letters("EN") + bits(48, 12) + bits(4, 6) + "00" + bits(0, 12)
    core += bitfield(purposes, 24) + bitfield((), 24) + "0" + letters("DE")
    core += vendor_section(vendors, ranges) + vendor_section((), False) + bits(0, 12)
    return base64url(core)


def fibonacci(value: int) -> str:
    """Write a positive integer as Fibonacci code."""
    numbers = [1, 2]
    while numbers[-1] <= value:
        numbers.append(numbers[-1] + numbers[-2])
    code = ""
    for number in reversed([number for number in numbers if number <= value]):
        code = ("1" if number <= value else "0") + code
        value -= number if number <= value else 0
    return code + "1"


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Group numbers into first and last of every run without a gap."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


def gpp(sections: dict[int, str]) -> str:
    """Write a GPP string of sections by their id."""
    groups = runs(sections)
    header, previous = bits(3, 6) + bits(1, 6) + bits(len(groups), 12), 0
    for first, last in groups:
        header += ("1" if last > first else "0") + fibonacci(first - previous)
        header += fibonacci(last - first) if last > first else ""
        previous = last
    return "~".join([base64url(header), *(sections[id_] for id_ in sorted(sections))])


def usnat(sale: int = 2, sharing: int = 2, targeted: int = 2) -> str:
    """Write a usnat v1 section; 1 opts out, 2 does not, 0 does not apply."""
    fields = [1] * 6 + [sale, sharing, targeted] + [0] * 12 + [0] * 2 + [0, 2, 0, 0]
    return base64url(bits(1, 6) + "".join(bits(field, 2) for field in fields))


def usca(sale: int = 2, sharing: int = 2) -> str:
    """Write a usca v1 section; 1 opts out, 2 does not, 0 does not apply."""
    fields = [1] * 3 + [sale, sharing] + [0] * 9 + [0] * 2 + [0, 2, 0, 0]
    return base64url(bits(1, 6) + "".join(bits(field, 2) for field in fields))


def ustx(sensitive: int = 2, child: int = 0) -> str:
    """Write a ustx v1 section; 1 has no consent, 2 has it, 0 does not apply."""
    fields = [1] * 3 + [2, 2] + [0] * 7 + [sensitive, child] + [0, 2, 0, 0]
    return base64url(bits(1, 6) + "".join(bits(field, 2) for field in fields))


def _grants(cases: Iterable[tuple[set[int], set[int], bool]]) -> dict[str, Grant]:
    return {
        tcf(purposes, vendors, ranges): Grant(frozenset(purposes), frozenset(vendors))
        for purposes, vendors, ranges in cases
    }


VENDOR = 755
EVERYTHING = set(range(1, 11))

TCF = _grants(
    [
        (EVERYTHING, {2, VENDOR, 800}, False),
        ({1, 3, 4}, {VENDOR}, True),
        ({1, 3, 4}, {VENDOR - 1, VENDOR + 1}, False),
        ({1, 3, 4}, {28, VENDOR + 1}, True),
        ({1, 3}, {VENDOR}, True),
        ({3, 4}, {VENDOR}, False),
        ({1, 2, 4}, {VENDOR}, False),
        (set(), set(), False),
    ]
)
"""TCF strings; the first one grants everything."""

US_PRIVACY = {"1YNN": False, "1---": False, "1NNY": False, "1YYN": True, "1NYN": True, "1-Y-": True}
"""US privacy string -> whether it opts out of sale."""

GPP = {
    gpp({7: usnat()}): UsSections(frozenset({7}), frozenset()),
    gpp({7: usnat(sale=1)}): UsSections(frozenset({7}), frozenset({7})),
    gpp({7: usnat(sharing=1)}): UsSections(frozenset({7}), frozenset({7})),
    gpp({7: usnat(targeted=1)}): UsSections(frozenset({7}), frozenset({7})),
    gpp({8: usca(sharing=1)}): UsSections(frozenset({8}), frozenset({8})),
    gpp({6: "1YYN"}): UsSections(frozenset({6}), frozenset({6})),
    gpp({6: "1YNN", 8: usca(sale=1)}): UsSections(frozenset({6, 8}), frozenset({8})),
    gpp({2: tcf({1}), 7: usnat(sale=0), 8: usca()}): UsSections(
        frozenset({2, 7, 8}), frozenset(), europe=Grant(frozenset({1}), frozenset())
    ),
    gpp({7: f"{usnat()}.YA"}): UsSections(frozenset({7}), frozenset(), gpc=True),
    gpp({16: ustx()}): UsSections(frozenset({16}), frozenset()),
    gpp({16: ustx(sensitive=1)}): UsSections(frozenset({16}), frozenset({16})),
    gpp({16: ustx(child=1)}): UsSections(frozenset({16}), frozenset({16})),
}
"""GPP string -> what its US sections say."""


def may_use_user_data(
    *,
    coppa: bool,
    gpc: bool,
    gdpr: bool,
    consents: Collection[str],
    us_privacy: Collection[str],
    gpp: Collection[str],
    gpp_sid: Collection[int],
    gvl_id: int | None,
) -> bool:
    """Decide as contract 3 requires, by the known meaning of this module's strings."""
    if coppa or gpc or any(GPP[said].gpc for said in gpp):
        return False
    if any(US_PRIVACY[said] for said in us_privacy):
        return False
    listed = set(gpp_sid)
    if gdpr or 2 in listed:
        grants = [TCF[consent] for consent in consents]
        grants += [grant for said in gpp if (grant := GPP[said].europe)]
        if not grants:
            return False
        for grant in grants:
            if not grant.purposes >= {1, 3, 4} or (gvl_id and gvl_id not in grant.vendors):
                return False
    applying = listed - {-1, 2}
    if not applying:
        return True
    return bool(gpp) and all(
        applying <= GPP[said].sections and not applying & GPP[said].opted_out for said in gpp
    )
