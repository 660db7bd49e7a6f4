import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from snapbid.bidding import gpp as gpp_strings
from snapbid.bidding import privacy

CASES = Path(__file__).parents[1] / "conformance" / "cases" / "privacy"


def may_use(
    *,
    coppa: int | None = None,
    gpc: int | None = None,
    gdpr: int | None = None,
    consent: str | None = None,
    us_privacy: str | None = None,
    gpp: str | None = None,
    gpp_sid: Sequence[int] = (),
    gvl_id: int | None = None,
) -> bool:
    signals = privacy.PrivacySignals(
        coppa=coppa == 1,
        gpc=gpc == 1,
        gdpr=gdpr == 1,
        consents=[consent] if consent else [],
        us_privacy=[us_privacy] if us_privacy else [],
        gpp=[gpp] if gpp else [],
        gpp_sid=gpp_sid,
    )
    return privacy.may_use_user_data(signals, gvl_id)


def cases() -> list[Any]:
    return [
        pytest.param(case, id=f"{path.stem}: {case['name']}")
        for path in sorted(CASES.glob("*.json"))
        for case in json.loads(path.read_text())
    ]


@pytest.mark.parametrize("case", cases())
def test_case(case: dict[str, Any]) -> None:
    fields = {key: value for key, value in case.items() if key not in ("name", "may_use")}
    assert may_use(**fields) is case["may_use"]
    assert may_use(**fields) is case["may_use"], "the remembered answer differs"


# --- a plain encoder of the standards, on texts of ones and zeroes ------------------------------
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
VENDORS = st.integers(1, 40) | st.integers(1, 65_535)
RANGES = st.lists(st.tuples(VENDORS, VENDORS).map(sorted), max_size=4)


def number(value: int, width: int) -> str:
    return f"{value:0{width}b}"


def websafe(bits: str) -> str:
    padded = bits + "0" * (-len(bits) % 6)
    return "".join(ALPHABET[int(padded[at : at + 6], 2)] for at in range(0, len(padded), 6))


def bit_field(ids: set[int], width: int) -> str:
    return "".join("1" if number in ids else "0" for number in range(1, width + 1))


def ranges(entries: list[list[int]]) -> str:
    return number(len(entries), 12) + "".join(
        f"0{number(first, 16)}" if first == last else f"1{number(first, 16)}{number(last, 16)}"
        for first, last in entries
    )


def vendor_section(vendors: set[int] | list[list[int]]) -> str:
    if isinstance(vendors, set):
        highest = max(vendors, default=0)
        return number(highest, 16) + "0" + bit_field(vendors, highest)
    highest = max((last for _, last in vendors), default=0)
    return number(highest, 16) + "1" + ranges(vendors)


def tc_string(
    purposes: set[int],
    consents: set[int] | list[list[int]] = [],  # noqa: B006
    interests: set[int] | list[list[int]] = [],  # noqa: B006
    restrictions: list[tuple[int, int, list[list[int]]]] = [],  # noqa: B006
    version: int = 2,
) -> str:
    return websafe(
        number(version, 6)
        + number(16_000_000_000, 36) * 2  # created, last updated
        + number(300, 12)  # CMP id
        + number(3, 12)  # CMP version
        + number(1, 6)  # consent screen
        + number(4, 6)
        + number(13, 6)  # consent language EN
        + number(200, 12)  # vendor list version
        + number(4, 6)  # policy version
        + "10"  # service specific, no non-standard texts
        + bit_field({1}, 12)  # special features
        + bit_field(purposes, 24)
        + bit_field({2, 7, 10}, 24)  # legitimate interests
        + "0"  # purpose one treatment
        + number(3, 6)
        + number(4, 6)  # publisher's country DE
        + vendor_section(consents)
        + vendor_section(interests)
        + number(len(restrictions), 12)
        + "".join(
            number(purpose, 6) + number(kind, 2) + ranges(entries)
            for purpose, kind, entries in restrictions
        )
    )


def fibonacci(value: int) -> str:
    places = [1, 2]
    while places[-1] <= value:
        places.append(places[-1] + places[-2])
    bits = ""
    for place in reversed([place for place in places if place <= value]):
        bits = ("1" if place <= value else "0") + bits
        value -= place if place <= value else 0
    return bits + "1"


def gpp_header(sections: list[int], grouped: bool) -> str:
    runs: list[list[int]] = []
    for section in sections:
        if grouped and runs and runs[-1][1] == section - 1:
            runs[-1][1] = section
        else:
            runs.append([section, section])
    bits, last = number(3, 6) + number(1, 6) + number(len(runs), 12), 0
    for first, end in runs:
        bits += "0" if first == end else "1"
        bits += fibonacci(first - last) + (fibonacci(end - first) if end > first else "")
        last = end
    return websafe(bits)


# --- TCF ----------------------------------------------------------------------------------------
@given(st.sets(st.integers(1, 24)), st.sets(VENDORS, max_size=5) | RANGES)
@example({1, 3, 4}, set())
@example({1, 3}, set())
@example(set(range(1, 25)) - {3}, {1})
def test_purposes(purposes: set[int], consents: set[int] | list[list[int]]) -> None:
    consent = tc_string(purposes, consents)
    assert may_use(gdpr=1, consent=consent) is ({1, 3, 4} <= purposes)
    assert may_use(gdpr=1, consent=consent + ".YAAAAAAAAAAA") is ({1, 3, 4} <= purposes)
    assert may_use(gdpr=0, consent=consent) is True


@given(VENDORS, st.sets(VENDORS, max_size=5), RANGES, st.booleans())
def test_vendor_consent_in_both_encodings(
    vendor: int, others: set[int], interests: list[list[int]], named: bool
) -> None:
    vendors = others | {vendor} if named else others - {vendor}
    consent = tc_string({1, 2, 3, 4}, vendors, interests)
    as_ranges = tc_string({1, 2, 3, 4}, [[vendor, vendor] for vendor in sorted(vendors)], others)
    assert may_use(gdpr=1, consent=consent, gvl_id=vendor) is named
    assert may_use(gdpr=1, consent=as_ranges, gvl_id=vendor) is named


@given(VENDORS, RANGES)
def test_vendor_ranges(vendor: int, entries: list[list[int]]) -> None:
    consent = tc_string({1, 3, 4}, entries)
    named = any(first <= vendor <= last for first, last in entries)
    assert may_use(gdpr=1, consent=consent, gvl_id=vendor) is named


@given(VENDORS, st.lists(RANGES | st.sets(st.integers(1, 9_000), max_size=5), max_size=2))
def test_disclosed_vendors(vendor: int, segments: list[set[int] | list[list[int]]]) -> None:
    consent = tc_string({1, 3, 4}, [[vendor, vendor]])
    disclosed = True
    for vendors in segments:
        consent += "." + websafe(number(1, 3) + vendor_section(vendors))
        if isinstance(vendors, set):
            disclosed = disclosed and vendor in vendors
        else:
            disclosed = disclosed and any(first <= vendor <= last for first, last in vendors)
    assert may_use(gdpr=1, consent=consent, gvl_id=vendor) is disclosed
    assert may_use(gdpr=1, consent=consent + ".YAAAAAAAAAAA", gvl_id=vendor) is disclosed
    assert may_use(gdpr=1, consent=consent) is True


@pytest.mark.parametrize("segment", ["I", "IAAA", "IAMgAAA", "IAMgAPAIgAA"])
def test_a_segment_of_disclosed_vendors_that_cannot_be_read(segment: str) -> None:
    consent = tc_string({1, 3, 4}, {7})
    assert may_use(gdpr=1, consent=consent, gvl_id=7) is True
    assert may_use(gdpr=1, consent=f"{consent}.{segment}", gvl_id=7) is False


@pytest.mark.parametrize("purpose", range(1, 11))
@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("entries", [[[7, 7]], [[1, 6], [8, 9]], [[3, 9]]])
def test_publisher_restrictions(purpose: int, kind: int, entries: list[list[int]]) -> None:
    restrictions = [(5, 0, [[1, 90]]), (purpose, kind, entries)]
    consent = tc_string({1, 3, 4}, {7, 8}, {1, 2}, restrictions)
    taken_away = purpose in (1, 3, 4) and kind in (0, 2) and entries != [[1, 6], [8, 9]]
    assert may_use(gdpr=1, consent=consent, gvl_id=7) is not taken_away
    assert may_use(gdpr=1, consent=consent) is True


@given(st.integers(0, 63))
def test_version_2_alone_grants(version: int) -> None:
    consent = tc_string({1, 3, 4}, {7}, version=version)
    assert may_use(gdpr=1, consent=consent, gvl_id=7) is (version == 2)


@given(st.data())
def test_a_string_cut_short_grants_no_vendor(data: st.DataObject) -> None:
    whole = tc_string({1, 3, 4}, [[2, 9]], {1, 30}, [(3, 1, [[7, 7], [9, 20]])])
    cut = data.draw(st.integers(0, len(whole) - 2))
    assert may_use(gdpr=1, consent=whole, gvl_id=7) is True
    assert may_use(gdpr=1, consent=whole[:cut], gvl_id=7) is False


# --- GPP ----------------------------------------------------------------------------------------
LAYOUT = {  # fields before the choices, the choices (1 of any opts out), those behind
    7: (6, 17, 4),
    8: (3, 13, 4),
    9: (3, 11, 3),
    10: (3, 10, 3),
    11: (4, 11, 3),
    12: (3, 13, 3),
    15: (3, 16, 4),
    21: (3, 17, 4),
    27: (5, 3, 1),
}


@given(
    st.sets(st.sampled_from([2, 5, 6, *LAYOUT]), min_size=1, max_size=8).map(sorted),
    st.booleans(),
    st.data(),
)
def test_sections(sections: list[int], grouped: bool, data: st.DataObject) -> None:
    bodies, opted_out = [], {}
    for section in sections:
        if section == 6:
            sale = data.draw(st.sampled_from("YN-"))
            bodies.append(f"1Y{sale}N")
            opted_out[section] = sale == "Y"
            continue
        before, count, behind = LAYOUT.get(section, (3, 2, 1))
        notices = data.draw(st.lists(st.integers(0, 3), min_size=before, max_size=before))
        choices = [data.draw(st.sampled_from([0, *[2] * count, 1])) for _ in range(count)]
        rest = data.draw(st.lists(st.integers(0, 3), min_size=behind, max_size=behind))
        fields = "".join(number(field, 2) for field in notices + choices + rest)
        bodies.append(websafe(number(1, 6) + fields) + data.draw(st.sampled_from(["", "A", "AAA"])))
        opted_out[section] = 1 in choices or section not in (6, *LAYOUT)  # no TCF string is that
    gpp = "~".join([gpp_header(sections, grouped), *bodies])
    for section in sections:
        assert may_use(gpp=gpp, gpp_sid=[section]) is not opted_out[section], section
    assert may_use(gpp=gpp, gpp_sid=sections) is not any(opted_out.values())
    absent = next(section for section in (*LAYOUT, 16) if section not in sections)
    assert may_use(gpp=gpp, gpp_sid=[absent]) is False


def test_the_header_examples_of_the_standard() -> None:
    assert gpp_header([2], False) == "DBABM"
    assert gpp_header([2, 6], False) == "DBACNY"
    assert gpp_header([5, 6], True) == "DBABjw"
    assert [fibonacci(value) for value in (1, 2, 3, 4, 5, 6, 7)] == [
        *("11", "011", "0011", "1011", "00011", "10011", "01011")
    ]


# --- anything -----------------------------------------------------------------------------------
TEXTS = (
    st.none()
    | st.text()
    | st.text(ALPHABET + "~.", max_size=200)
    | st.text(ALPHABET + "~.").map("CPCfkEbPCfkEbERACAENBbCsAP_AAH_AAAAAHetf_X_fb39j".__add__)
    | st.text(ALPHABET + "~.").map("DBABL".__add__)
)


@given(TEXTS, TEXTS, TEXTS, st.lists(st.integers(-2, 20)), st.none() | st.integers(-1, 70_000))
def test_any_text_is_accepted(
    consent: str | None, us_privacy: str | None, gpp: str | None, sid: list[int], gvl: int | None
) -> None:
    answer = may_use(
        gdpr=1, consent=consent, us_privacy=us_privacy, gpp=gpp, gpp_sid=sid, gvl_id=gvl
    )
    assert isinstance(answer, bool)


@pytest.mark.parametrize(
    "gpp",
    [
        "DBABL" + "A" * 300_000,
        "DBABL~" + "A" * 300_000,
        "DBABL" + "~" * 300_000,
        "DBAB" + websafe("0" * 90_000),
        "DBAB" + websafe("1" + "01" * 8_000 + "1"),
        "D" * 300_000,
    ],
)
def test_huge_strings_count_as_malformed(gpp: str) -> None:
    assert may_use(gpp=gpp, gpp_sid=[7]) is False
    consent = tc_string({1, 3, 4}, [[1, 9]] * 1000) + "A" * 300_000
    assert may_use(gdpr=1, consent=consent, gvl_id=7) is False
    assert gpp_strings._cached.cache_info().maxsize is not None


@pytest.mark.parametrize(
    "grown",
    [
        lambda size: {"gpp": "DBABL~" + "A" * size, "gpp_sid": [7]},
        lambda size: {"gpp": "DBABL" + "~B" * (size // 2), "gpp_sid": [7]},
        lambda size: {"gpp": "DBAB" + websafe("0" + "011" * (2 * size)) + "~A" * 60},
        lambda size: {"gpp": "DBABL~BVVqgAAAAA" + ".QA" * (size // 3), "gpp_sid": [7]},
        lambda size: {"gpp_sid": range(-size, size)},
        lambda size: {"consent": tc_string({1, 3, 4}, [[1, 9]] * (size // 6)), "gdpr": 1},
        lambda size: {
            "consent": tc_string({1, 3, 4}, {9}) + ".YAAAAAAAAA" * (size // 11),
            "gdpr": 1,
        },
        lambda size: {
            "consent": tc_string({1, 3, 4}, {9}, restrictions=[(3, 1, [[1, 9]])] * (size // 9)),
            "gdpr": 1,
        },
    ],
)
def test_cost_is_linear_in_length(grown: Callable[[int], dict[str, Any]]) -> None:
    """Counts lines of Python executed, so what one line does in C has to be linear by itself."""

    def steps(size: int) -> int:
        lines = 0

        def count(frame: FrameType, event: str, _: object) -> Any:
            nonlocal lines
            lines += event == "line"
            return count

        fields = {"gvl_id": 9} | grown(size)
        old = sys.gettrace()
        sys.settrace(count)
        try:
            may_use(**fields)
        finally:
            sys.settrace(old)
        return lines

    few, many = steps(1_500), steps(12_000)
    assert many <= 8 * few + 1_000
    assert many <= 60_000
