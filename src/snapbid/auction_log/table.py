"""The columns of the log, and rows made into them. Only the writer and its readers import this."""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from snapbid.auction_log.layout import BID, GAP, REPLAYED, TEST, LoggedRow
from snapbid.ledger.records import BILLING, LOSS, WIN, NoticeVerdict, bid_digest

VERSION: Final = "1"
KINDS: Final = {BID: "bid", WIN: "win", BILLING: "billing", LOSS: "loss", GAP: "gap"}
KILLED: Final = "k"
UNWRITTEN: Final = "w"
STOPPED: Final = "m"
VERDICTS: Final = {
    **{verdict.value: verdict.name.lower() for verdict in NoticeVerdict},
    KILLED: "killed",
    UNWRITTEN: "unwritten",
    STOPPED: "machine_stopped",
}
UNKNOWN: Final = -1  # how many rows are missing

_TIME: Final = pa.timestamp("ms", tz="UTC")
SCHEMA: Final = pa.schema(
    [
        ("time", _TIME),
        ("kind", pa.string()),
        ("verdict", pa.string()),
        ("descriptor", pa.string()),
        ("ssp", pa.string()),
        ("auction_id", pa.string()),
        ("imp_id", pa.string()),
        ("campaign_id", pa.string()),
        ("creative_id", pa.string()),
        ("deal_id", pa.string()),
        ("price_micros", pa.int64()),
        ("cost_nanos", pa.int64()),
        ("sent_micros", pa.int64()),
        ("currency", pa.string()),
        ("loss_reason", pa.int16()),
        ("test", pa.bool_()),
        ("notice_key", pa.binary()),
        ("missing", pa.int64()),
        ("since", _TIME),
        ("machine", pa.string()),
        ("worker", pa.string()),
        ("sequence", pa.int64()),
    ]
)
_NOTHING: Final = (None,) * 8


def record_batch(rows: Sequence[LoggedRow], machine: str, worker: str) -> pa.RecordBatch:
    """Make rows of one worker into columns."""
    values = [_values(row) for row in rows]
    columns: list[Any] = [list(column) for column in zip(*values, strict=True)]
    columns[-1:-1] = [[machine] * len(rows), [worker] * len(rows)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA)


def _values(row: LoggedRow) -> tuple[object, ...]:
    kind, letter, flags, reason, sequence, time_ms, price, cost, sent, strings = row
    verdict = VERDICTS[letter] if letter else None
    if kind == BID:
        descriptor, ssp, auction, imp, campaign, creative, deal, currency = map(_text, strings)
        names = descriptor, ssp, auction, imp, campaign, creative, deal or None
        money = price, cost, sent, currency, None
        return (
            time_ms, "bid", None, *names, *money, bool(flags & TEST), None, None, None, sequence,
        )  # fmt: skip
    if kind == GAP:
        missing = None if cost == UNKNOWN else cost
        return time_ms, "gap", verdict, *_NOTHING, *_NOTHING[:6], missing, price, sequence
    auction_id, imp_id = strings[2], strings[3]
    ids: tuple[str | None, ...] = _text(auction_id), _text(imp_id)
    key = None
    if flags & REPLAYED:
        ids, key = (None, None), auction_id
    elif letter == NoticeVerdict.SPOOLED:
        key = bid_digest(auction_id, imp_id)
    code = reason if kind == LOSS else None
    return (
        time_ms, KINDS[kind], verdict, None, None, *ids, *_NOTHING[:7], code, None, key, None, None,
        sequence,
    )  # fmt: skip


def _text(text: bytes) -> str:
    return str(text, "utf-8", "replace")
