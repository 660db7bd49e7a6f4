"""Names of changed counters: `SEGMENT 2026-05-31 w:7`, `SEGMENT 2026-05-31 l:7:102`.

Those from before there were segments begin with the day.
"""

import datetime
import re
from functools import lru_cache
from typing import Final, NamedTuple

_NAME: Final = re.compile(
    rb"(?:([0-9a-f]{10}) )?(\d{4}-\d\d-\d\d) "
    rb"((?:([bwpiBWPI]):([1-9]\d{0,9})|(l):([1-9]\d{0,9}):(-1|0|[1-9]\d{0,4})))"
)
_MOST: Final = 2**31 - 1


class CounterName(NamedTuple):
    """`field` is the counter's in the hash of its segment and day; `number` its SSP or campaign."""

    segment: str
    day: datetime.date
    field: bytes
    kind: str
    number: int
    reason: int


def parse(name: bytes) -> CounterName | None:
    """The parts of a name; None for what cannot be a counter of the ledger."""
    match = _NAME.fullmatch(name)
    if not match:
        return None
    segment, day, field, kind, number, loss, loss_number, reason = match.groups()
    date = _parse_day(day)
    of = int(number or loss_number)
    if date is None or of > _MOST:
        return None
    return CounterName(
        (segment or b"").decode(), date, field, (kind or loss).decode(), of, int(reason or 0)
    )


def join(segment: str, day: str, field: bytes) -> bytes:
    """The name of a counter; `day` is YYYY-MM-DD."""
    return f"{segment} {day} ".lstrip().encode() + field


@lru_cache(64)
def _parse_day(day: bytes) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(day.decode())
    except ValueError:
        return None
