"""What the drain takes for a counter's name."""

import pytest

from snapbid.drain.names import (
    CounterField,
    SegmentDay,
    format_field,
    join,
    parse_field,
    parse_head,
)

SEGMENT = "0123456789"


def parse(name: bytes) -> tuple[SegmentDay, CounterField, bytes] | None:
    head, _, rest = name.rpartition(b" ")
    where, field = parse_head(head), parse_field(rest)
    return None if where is None or field is None else (where, field, rest)


@pytest.mark.parametrize(
    "name",
    [
        *("2024-05-01 b:1", "2024-05-01 w:2147483647", "2024-02-29 p:7", "2024-05-01 i:10"),
        *("2024-05-01 B:1", "2024-05-01 W:1", "2024-05-01 P:1", "2024-05-01 I:1"),
        *("2024-05-01 l:1:-1", "2024-05-01 l:1:0", "2024-05-01 l:1:102", "2024-05-01 l:9:9999"),
        "2024-05-01 r255.213:1:2147483647",
    ],
)
def test_counters(name: str) -> None:
    whole = f"{SEGMENT} {name}".encode()
    parsed = parse(whole)
    assert parsed is not None
    where, parts, field = parsed
    assert where.segment == SEGMENT
    assert format_field(parts) == field
    assert join(where.segment, where.day.isoformat(), field) == whole


@pytest.mark.parametrize(
    "name",
    [
        *("", "b:1", "2024-05-01", "2024-05-01 ", "2024-05-01 b:", "2024-05-01 b:0"),
        *("2024-05-01 b:01", "2024-05-01 b:-1", "2024-05-01 b:2147483648", "2024-05-01 b:1:2"),
        *("2024-05-01 x:1", "2024-05-01 l:1", "2024-05-01 L:1:2", "2024-05-01 l:1:-2"),
        *("2024-05-01 l:1:00", "2024-02-30 b:1", "2024-5-1 b:1", "2024-05-01  b:1"),
        *("2024-05-01 r1.200:1", "2024-05-01 r1.200:1:2147483648", "2024-05-01 r:1:1"),
        *("2024-05-01 r0.200:1:1", "2024-05-01 r1.300:1:1"),
        *("2024-05-01 b:1\n", " 2024-05-01 b:1", "2024-05-01 b:\u0661"),  # an Arabic digit
    ],
)
def test_no_counters(name: str) -> None:
    assert parse(f"{SEGMENT} {name}".encode()) is None


@pytest.mark.parametrize("segment", ["", " ", "012345678 ", "012345678X ", "01234567890 "])
def test_no_segments(segment: str) -> None:
    assert parse(f"{segment}2024-05-01 b:1".encode()) is None
