"""What the auction log says of one SSP: bids, and the notices of all, as plain tuples."""

from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from snapbid.ledger.records import bid_digest

READ: Final = (
    "time", "kind", "verdict", "ssp", "auction_id", "imp_id", "price_micros", "cost_nanos",
    "sent_micros", "currency", "test", "notice_key", "missing", "since",
)  # fmt: skip
BATCH: Final = 20_000


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
    """A notice, of whichever SSP; `pair` is its digest where it was replayed from a spool."""

    kind: str
    auction: str | None
    imp: str
    time_ms: int
    verdict: str
    pair: bytes | None


class LogGap(NamedTuple):
    """Rows that are missing, at most so many; None: unknown."""

    since_ms: int
    until_ms: int
    missing: int | None


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


def read(paths: list[Path], ssp: str) -> Iterator[OwnBid | OwnNotice | LogGap]:
    """Yield the SSP's bids, all notices, and gaps."""
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH, columns=list(READ)):
                of_others = pc.not_equal(pc.fill_null(batch["ssp"], ssp), ssp)
                mine = batch.filter(pc.invert(of_others))
                yield from _rows(mine)


def _rows(batch: pa.RecordBatch) -> Iterator[OwnBid | OwnNotice | LogGap]:
    columns = []
    for name in READ:
        column = batch[name]
        if name in ("time", "since"):
            column = column.cast(pa.int64())
        columns.append(column.to_pylist())
    for (
        time_ms, kind, verdict, _, auction, imp, price, cost, sent, currency, test, key, missing,
        since,
    ) in zip(*columns, strict=True):  # fmt: skip
        if kind == "bid":
            yield OwnBid(auction, imp, time_ms, price, cost, sent, currency, test)
        elif kind == "gap":
            yield LogGap(since, time_ms, missing)
        else:
            yield OwnNotice(kind, auction, imp or "", time_ms, verdict, key)


def digest(bid: OwnBid) -> bytes:
    """What a replayed notice names the bid by."""
    return bid_digest(bid.auction.encode(), bid.imp.encode())
