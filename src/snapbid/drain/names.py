"""Names of changed counters (run, day, field): `RUN 2026-05-31 w:7`, `RUN 2026-05-31 l:7:102`.

Of an SSP (KIND:NUMBER, or KIND:NUMBER:REASON):

    b           answers with bids
    w, p, i     wins, the sum of their CPMs, billing notices
    l           losses, by reason
    n           anomalies, by code (`anomaly_daily`). The code of a notice is its kind (1 win,
                2 billing, 4 loss) plus 10 if it was late, 20 if repeated, 30 if it came after its
                bid had been forgotten, 50 if its URL was altered. Other codes: 40 for a bid on an
                auction and impression that this SSP had used before, 41 if an SSP of another
                family had; 60 if the same bid had both a loss notice and a win or billing notice

Of a campaign:

    B, W, P, I  bids, wins, the sum of their CPMs, billing notices
    r168.202    rejections, for loss reason 202, of the creative with mark 168
                (`campaigns/suspensions.py`); REASON is the SSP's number
    q168        bids with that creative since the SSP first rejected it; REASON is the SSP's number
"""

import datetime
import re
from functools import lru_cache
from typing import Final, NamedTuple

_WHERE: Final = re.compile(rb"[0-9a-f]{10} \d{4}-\d\d-\d\d")
_FIELD: Final = re.compile(
    rb"([bwpiBWPI]):([1-9]\d{0,9})"
    rb"|([ln]|r[1-9]\d{0,2}\.2\d\d|q[1-9]\d{0,2}):([1-9]\d{0,9}):(-1|0|[1-9]\d{0,9})"
)
_MOST: Final = 2**31 - 1
_KINDS: Final = {kind.encode(): kind for kind in "bwpiBWPIln"}


class SegmentDay(NamedTuple):
    """A day of a run; its counters are one hash in Redis."""

    segment: str
    day: datetime.date


class CounterField(NamedTuple):
    """A counter's field in the hash of its day."""

    kind: str
    number: int  # of the SSP or campaign
    reason: int  # a loss reason, an anomaly's code, or the number of the SSP that rejected


@lru_cache(64)
def parse_head(head: bytes) -> SegmentDay | None:
    """Parse the run and day at the start of a counter's name; None if malformed."""
    if not _WHERE.fullmatch(head):
        return None
    segment, _, day = head.decode().rpartition(" ")
    try:
        return SegmentDay(segment, datetime.date.fromisoformat(day))
    except ValueError:
        return None


@lru_cache(1 << 17)  # the same ones change again and again, in each shard
def parse_field(field: bytes) -> CounterField | None:
    """Parse a field, such as `w:7`; None if malformed."""
    match = _FIELD.fullmatch(field)
    if not match:
        return None
    kind, digits, kind_with_reason, more_digits, reason = match.groups()
    number, code = int(digits or more_digits), int(reason or 0)
    kind = kind or kind_with_reason
    if number > _MOST or code > _MOST:
        return None
    return CounterField(_KINDS.get(kind) or kind.decode(), number, code)


def format_field(field: CounterField) -> bytes:
    """Format a field so that `parse_field` can read it."""
    kind, number, reason = field
    has_reason = kind[0] in "lnrq"
    return (f"{kind}:{number}:{reason}" if has_reason else f"{kind}:{number}").encode()


def join(segment: str, day: str, field: bytes) -> bytes:
    """Return the name of a counter; `day` is YYYY-MM-DD."""
    return f"{segment} {day} ".encode() + field
