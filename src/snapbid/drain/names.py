"""Names of changed counters: `SEGMENT 2026-05-31 w:7`, `SEGMENT 2026-05-31 l:7:102`.

Of an SSP, `b` counts answers with bids, `w`, `p` and `i` wins, their CPM and billing notices, `l`
losses by reason, `n` anomalies by code (`anomaly_daily`): the notice's kind, 1 win, 2 billing or
4 loss, and 10 where it was late, 20 repeated, 30 later than bids are remembered; 40 a bid on a pair
of auction and impression that the SSP had used before, 41 one on another SSP's; 50 with the kind a
notice whose URL was altered, 60 a loss beside a win or billing notice of the same bid. Of a
campaign, `B`, `W`, `P`, `I`; and by SSP, `r168.202`: how often it has rejected the creative with
that mark, for that loss reason, and `q168`: how many bids it got of it since it first did.
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
    """The counters of a day in a segment, which are one hash in Redis."""

    segment: str
    day: datetime.date


class CounterField(NamedTuple):
    """A counter in its hash; `number` is that of its SSP or campaign.

    `reason` is a loss's, an anomaly's code, or the number of the SSP that has rejected a creative.
    """

    kind: str
    number: int
    reason: int


@lru_cache(64)
def parse_head(head: bytes) -> SegmentDay | None:
    """Where a counter is; None for what cannot be a place of the ledger's."""
    if not _WHERE.fullmatch(head):
        return None
    segment, _, day = head.decode().rpartition(" ")
    try:
        return SegmentDay(segment, datetime.date.fromisoformat(day))
    except ValueError:
        return None


@lru_cache(1 << 17)  # the same ones change again and again, in each shard
def parse_field(field: bytes) -> CounterField | None:
    """The parts of a field; None for what cannot be a counter of the ledger."""
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
    """The field of these parts."""
    kind, number, reason = field
    has_reason = kind[0] in "lnrq"
    return (f"{kind}:{number}:{reason}" if has_reason else f"{kind}:{number}").encode()


def join(segment: str, day: str, field: bytes) -> bytes:
    """The name of a counter; `day` is YYYY-MM-DD."""
    return f"{segment} {day} ".encode() + field
