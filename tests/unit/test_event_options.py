"""The headers of event requests: test mode and lenient handling."""

import pytest

from snapbid.events.endpoint import RequestOptions, read_options

LIVE = RequestOptions(test=False, lenient=False)
TEST = RequestOptions(test=True, lenient=False)
LENIENT = RequestOptions(test=False, lenient=True)
INVALID = RequestOptions(test=None, lenient=False)


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ([], LIVE),
        ([("x-test-mode", "true")], TEST),
        ([("x-test-mode", " TrUe\t")], TEST),
        ([("x-test-mode", "FALSE")], LIVE),
        ([("x-test-mode", " ")], LIVE),
        ([("x-test-mode", "1")], INVALID),
        ([("x-test-mode", "true"), ("x-test-mode", "false")], INVALID),
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
def test_headers(fields: list[tuple[str, str]], options: RequestOptions) -> None:
    assert read_options((name.encode(), value.encode()) for name, value in fields) == options
