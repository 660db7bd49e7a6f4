"""What headers ask for."""

import pytest

from snapbid.events.asked import Asked, read

LIVE, TEST, LENIENT = Asked(False, False), Asked(True, False), Asked(False, True)
WRONG = Asked(None, False)


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ([], LIVE),
        ([("x-test-mode", "true")], TEST),
        ([("x-test-mode", " TrUe\t")], TEST),
        ([("x-test-mode", "FALSE")], LIVE),
        ([("x-test-mode", " ")], LIVE),
        ([("x-test-mode", "1")], WRONG),
        ([("x-test-mode", "true"), ("x-test-mode", "false")], WRONG),
        ([("prefer", "handling=lenient")], LENIENT),
        ([("prefer", ' Handling = "Lenient" ; a=b')], LENIENT),
        ([("prefer", "wait=5"), ("prefer", "handling=lenient")], LENIENT),
        ([("prefer", "handling=strict, handling=lenient")], LIVE),  # the first one counts
        ([("prefer", "handling")], LIVE),
        ([("prefer", "handling=lenients")], LIVE),
        ([("prefer", "nothandling=lenient")], LIVE),
        ([("prefer", "handling=lenient"), ("x-test-mode", "true")], TEST),
    ],
    ids=str,
)
def test_headers(fields: list[tuple[str, str]], asked: Asked) -> None:
    assert read((name.encode(), value.encode()) for name, value in fields) == asked
