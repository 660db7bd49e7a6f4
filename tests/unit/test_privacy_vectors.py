"""25,000 consent strings of the IAB Tech Lab's libraries (support/consent_vectors): the verdict is
taken from the fields that they decoded and the words of contract 3, "Privacy".
"""

import json
import lzma
from pathlib import Path
from typing import Any

from snapbid.bidding.privacy import PrivacySignals, may_use_user_data

VECTORS = Path(__file__).parents[1] / "conformance" / "cases" / "privacy" / "vectors.jsonl.xz"

Vector = dict[str, Any]
NOT_ALLOWED, REQUIRE_CONSENT, NO_CONSENT_ASKED = 0, 1, 2


def vectors() -> list[Vector]:
    with lzma.open(VECTORS, "rt") as lines:
        return [json.loads(line) for line in lines]


def grants(read: Vector | None) -> bool:
    """Purposes 1, 3 and 4; the vendor by consent, not restricted, and disclosed if that is said."""
    if read is None:
        return False
    restricted = any(
        purpose in (1, 3, 4) and kind in (NOT_ALLOWED, NO_CONSENT_ASKED)
        for purpose, kind in read["restrictions"]
    )
    return (
        {1, 3, 4} <= set(read["purposes"])
        and read["consent"]
        and not restricted
        and read["disclosed"] is not False
    )


def opts_out(read: Vector | None) -> bool:
    """Sale, sharing, targeting, sensitive data, a known child, or that cannot be read."""
    if read is None or read.get("OptOutSale") == "Y":
        return True
    choices: list[int] = []
    for name in ("SaleOptOut", "SharingOptOut", "TargetedAdvertisingOptOut"):
        choices.append(read.get(name, 0))
    for name in ("SensitiveDataProcessing", "KnownChildSensitiveDataConsents"):
        value = read.get(name, 0)
        choices += value if isinstance(value, list) else [value]
    return not set(choices) <= {0, 2}


def expected(vector: Vector) -> bool:
    """Whether user data may be used."""
    listed, read = vector.get("sid", []), vector["read"] or {}
    if any(fields is not None and fields.get("Gpc") for fields in read.values()):
        return False
    if (vector.get("gdpr") == 1 or 2 in listed) and not grants(read.get("2")):
        return False
    for section in listed:
        if section == 5 and not grants(read.get("5")):
            return False
        if 6 <= section <= 27 and opts_out(read.get(str(section))):
            return False
        if section not in (-1, 2, 5, *range(6, 28)):
            return False
    return True


def may_use(vector: Vector) -> bool:
    signals = PrivacySignals(
        gdpr=vector.get("gdpr") == 1,
        consents=[vector["consent"]] if vector.get("consent") else [],
        gpp=[vector["gpp"]] if vector.get("gpp") else [],
        gpp_sid=vector.get("sid", ()),
    )
    return may_use_user_data(signals, vector["vendor"])


def test_opt_outs_are_honoured_and_consent_is_not_withheld() -> None:
    whole = [vector for vector in vectors() if not vector.get("broken")]
    assert len(whole) == 20_000
    wrong = [vector for vector in whole if may_use(vector) != expected(vector)]
    assert wrong == []
    allowed = sum(map(expected, whole))
    assert 4_000 < allowed < 12_000


def test_damaged_strings_never_override_an_opt_out() -> None:
    damaged = [vector for vector in vectors() if vector.get("broken")]
    assert len(damaged) == 5_000
    assert [vector for vector in damaged if may_use(vector) and not expected(vector)] == []
    assert sum(map(may_use, damaged)) > 500
