"""The days and months by which events are stored."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from snapbid.warehouse.partitions import Span, day, month


@pytest.mark.parametrize(("span_of", "name"), [(day, "%Y%m%d"), (month, "%Y%m")])
def test_each_moment_is_in_one_span_that_ends_where_the_next_begins(
    span_of: Callable[[datetime], Span], name: str
) -> None:
    last: Span | None = None
    moment = datetime(2023, 12, 1, 12, tzinfo=UTC)
    while moment.year < 2025:
        span = span_of(moment)
        assert span.has(moment)
        assert span.name == f"events_{moment:{name}}"
        assert span.has(span.first)
        assert not span.has(span.next)
        assert last is None or span == last or span.first == last.next
        moment, last = moment + timedelta(days=1), span
