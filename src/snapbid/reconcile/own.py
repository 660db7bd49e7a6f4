"""What the auction log says of one SSP: bids, and the notices of all, in columns."""

from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from snapbid.warehouse.registry import FamilySpan

BIDS: Final = pa.schema(
    [
        ("auction", pa.string()),
        ("imp", pa.string()),
        ("time_ms", pa.int64()),
        ("price", pa.int64()),
        ("cost", pa.int64()),
        ("sent", pa.int64()),
        ("currency", pa.string()),
        ("test", pa.bool_()),
    ]
)
NOTICES: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("auction", pa.string()),
        ("imp", pa.string()),
        ("time_ms", pa.int64()),
        ("verdict", pa.string()),
        ("key", pa.binary()),
    ]
)
BATCH: Final = 100_000
DAY_MS: Final = 86_400_000
EPOCH: Final = date(1970, 1, 1)
_BIDS: Final = (
    "auction_id", "imp_id", "time", "price_micros", "cost_nanos", "sent_micros", "currency", "test",
)  # fmt: skip
_NOTICES: Final = ("kind", "auction_id", "imp_id", "time", "verdict", "notice_key")
_READ: Final = list(dict.fromkeys((*_BIDS, *_NOTICES, "descriptor", "missing", "since")))


class OwnBid(NamedTuple):
    """A bid of the SSP; `price` is the CPM in micro-USD, `cost` that of a win in nano-USD."""

    auction: str
    imp: str
    time_ms: int
    price: int
    cost: int
    sent: int
    currency: str
    test: bool


class OwnNotice(NamedTuple):
    """A notice, of whichever SSP; `key` is its digest where it was spooled or replayed."""

    kind: str
    auction: str | None
    imp: str
    time_ms: int
    verdict: str
    key: bytes | None


class LogGap(NamedTuple):
    """Rows that are missing, at most so many; None: unknown."""

    since_ms: int
    until_ms: int
    missing: int | None


class OwnRows(NamedTuple):
    """Some rows: the SSP's bids (BIDS), all notices of some kinds (NOTICES), and gaps."""

    bids: pa.RecordBatch
    notices: pa.RecordBatch
    gaps: list[LogGap]


def files(directory: Path, first: date | None, last: date | None) -> list[Path]:
    """The files of some days, and of those beside them."""
    since = (first - timedelta(days=1)).isoformat() if first else ""
    until = (last + timedelta(days=1)).isoformat() if last else "9999-12-31"
    return [
        path
        for day in sorted(directory.glob("date=*"))
        if since <= day.name.removeprefix("date=") <= until
        for path in sorted(day.glob("*.parquet"))
    ]


def read(paths: list[Path], family: Sequence[FamilySpan], kinds: set[str]) -> Iterator[OwnRows]:
    """Yield what the files have of descriptors on their days, and of notices of some kinds."""
    of_kinds = pa.array(kinds, pa.string())
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH, columns=_READ):
                kind = batch["kind"]
                is_own = pc.and_(pc.equal(kind, "bid"), _of_family(batch, family))
                is_notice = pc.and_(pc.not_equal(kind, "bid"), pc.is_in(kind, value_set=of_kinds))
                gaps = batch.filter(pc.equal(kind, "gap"))
                yield OwnRows(
                    _chosen(batch.filter(is_own), _BIDS, BIDS),
                    _chosen(batch.filter(is_notice), _NOTICES, NOTICES),
                    [
                        LogGap(since, until, missing)
                        for since, until, missing in zip(
                            _as_int(gaps["since"]).to_pylist(),
                            _as_int(gaps["time"]).to_pylist(),
                            gaps["missing"].to_pylist(),
                            strict=True,
                        )
                    ],
                )


def bids(batch: pa.RecordBatch) -> Iterator[OwnBid]:
    """The bids of a batch, one by one."""
    return map(OwnBid._make, _rows(batch))


def notices(batch: pa.RecordBatch) -> Iterator[OwnNotice]:
    """The notices of a batch, one by one."""
    return map(OwnNotice._make, _rows(batch))


def _of_family(batch: pa.RecordBatch, family: Sequence[FamilySpan]) -> pa.Array:
    """Which rows are of a descriptor on a day on which it is reported for the family."""
    days = pc.divide(_as_int(batch["time"]), DAY_MS)
    found = pa.repeat(pa.scalar(False), len(batch))
    for descriptor, since, until in family:
        first, last = ((day - EPOCH).days for day in (since, until))
        inside = pc.and_(pc.greater_equal(days, first), pc.less_equal(days, last))
        found = pc.or_(found, pc.and_(pc.equal(batch["descriptor"], descriptor), inside))
    return found


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _chosen(batch: pa.RecordBatch, names: tuple[str, ...], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        _as_int(batch[name]) if name == "time" else batch[name].cast(field.type)
        for name, field in zip(names, schema, strict=True)
    ]
    return pa.record_batch(arrays, schema=schema)


def _as_int(times: pa.Array) -> pa.Array:
    return times.cast(pa.int64())
