"""What the headers of a request ask for: test mode, lenience (contract 7, Test mode and Batch)."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from snapbid.events.outcomes import VALIDATION_ERROR, Finding, Refusal

TEST_MODE: Final = "X-Test-Mode"

_TEST_MODES: Final = {b"true": True, b"false": False, b"": False}

WRONG_TEST_MODE: Final = Refusal(
    VALIDATION_ERROR,
    f"{TEST_MODE}: enum (true, false or absent)",
    [Finding(TEST_MODE, "enum", None)],
)


class Asked(NamedTuple):
    """`test` is None where the header's value is none of those that are known."""

    test: bool | None
    lenient: bool


def read(fields: Iterable[tuple[bytes, bytes]]) -> Asked:
    """Read the header fields, names in lower case; a field given twice is a list (RFC 9110)."""
    mode, preferences = [], []
    for name, value in fields:
        if name == b"x-test-mode":
            mode.append(value)
        elif name == b"prefer":
            preferences.append(value)
    test = _TEST_MODES.get(b", ".join(mode).strip().lower())
    return Asked(test, bool(preferences) and not test and _is_lenient(b",".join(preferences)))


def _is_lenient(preferences: bytes) -> bool:
    """Whether `handling=lenient` is the first preference for handling (RFC 7240, 2 and 4.4)."""
    for preference in preferences.lower().split(b","):
        name, _, value = preference.partition(b";")[0].partition(b"=")
        if name.strip() == b"handling":
            return value.strip().strip(b'"') == b"lenient"
    return False
