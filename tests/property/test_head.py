"""The quick look at a bid request's headers agrees with the thorough one."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapbid.base import http
from snapbid.base.errors import UnsupportedMediaType
from snapbid.bidding._bid_path import plain_length, value_of

NAMES = [b"content-type", b"content-length", b"content-encoding", b"content-lengtH", b"accept", b""]
VALUES = [
    *(b"application/json", b"application/json;charset=utf-8", b"application/jsonp", b"text/html"),
    *(b"", b"0", b"7", b"0012", b"-1", b"+1", b"1 ", b"9" * 18, b"9" * 19, b"9" * 30, b"\xb2"),
    *(b"gzip", b"identity", b"application/json ", b"Application/JSON", b" application/json"),
]
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(NAMES) | st.binary(max_size=20),
        st.sampled_from(VALUES) | st.binary(max_size=20),
    ),
    max_size=6,
)
PLAIN = [(b"content-type", b"application/json"), (b"content-length", b"12")]


def thorough(headers: list[tuple[bytes, bytes]]) -> int:
    """The length of an uncompressed JSON body, by the last headers; else -1."""
    last = dict(headers)
    try:
        http.check_type(last.get(b"content-type"))
        encoding = http.encoding_of(last.get(b"content-encoding"))
    except UnsupportedMediaType:
        return -1
    length = http._length(last.get(b"content-length"))
    return -1 if encoding or length is None else length


@given(HEADERS)
def test_plain_heads_are_plain_to_the_full_parser(headers: list[tuple[bytes, bytes]]) -> None:
    length = plain_length(headers)
    assert length in (-1, thorough(headers))


@given(st.permutations([*PLAIN, (b"host", b"x"), (b"accept-encoding", b"gzip")]))
def test_usual_headers_are_plain(headers: list[tuple[bytes, bytes]]) -> None:
    assert plain_length(headers) == 12
    assert value_of(headers, b"accept-encoding") == b"gzip"
    assert value_of(headers, b"accept") == b""


@pytest.mark.parametrize(
    "headers",
    [
        None,
        tuple(PLAIN),
        [list(field) for field in PLAIN],
        [*PLAIN, ()],
        [*PLAIN, (b"a",)],
        [*PLAIN, (b"a", b"b", b"c")],
        [("content-type", "application/json"), *PLAIN],
        [*PLAIN, (b"content-length", b"12")],
        [*PLAIN, (b"content-type", b"application/json")],
        [*PLAIN, (b"content-encoding", b"identity")],
    ],
)
def test_unusual_heads_are_not_plain(headers: object) -> None:
    assert plain_length(headers) == -1  # type: ignore[arg-type]


def test_the_last_value_counts() -> None:
    assert value_of([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], b"a") == b"3"


def test_references_balance() -> None:
    value = bytes(bytearray(b"application/json"))
    headers = [(b"content-type", value), (b"content-length", b"5")]
    before = sys.getrefcount(value), sys.getrefcount(headers), sys.getrefcount(headers[0])
    for _ in range(1000):
        assert plain_length(headers) == 5
        assert value_of(headers, b"content-type") is value
    assert before == (sys.getrefcount(value), sys.getrefcount(headers), sys.getrefcount(headers[0]))
