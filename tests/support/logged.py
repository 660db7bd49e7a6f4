"""What an auction log says: its rows, and what they count."""

from collections import Counter
from datetime import UTC
from pathlib import Path
from typing import Any

import duckdb

from snapbid.auctionlog.chunks import open_all, spool_of
from snapbid.auctionlog.layout import ChunkState
from snapbid.ledger.bids.records import bid_digest
from support.books import Key

COUNTED = {"counted", "late", "duplicate"}  # a repeat says that it was counted
READ = """
FROM read_parquet($1)
SELECT * REPLACE (time AT TIME ZONE 'UTC' AS time, since AT TIME ZONE 'UTC' AS since)
"""  # as times without a zone, for which Python needs no further package
ROWS = {"campaign bids", "wins", "imps", "losses"}  # of what has a row each


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("date=*/*.parquet"))


def read(directory: Path) -> list[dict[str, Any]]:
    """All rows, by worker and sequence."""
    rows: list[dict[str, Any]] = []
    with duckdb.connect() as database:
        for path in files(directory):
            found = database.execute(READ, [str(path)])
            names = [column[0] for column in found.description]
            of_file = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
            for row in of_file:
                row["time"] = row["time"].replace(tzinfo=UTC)
                row["since"] = row["since"] and row["since"].replace(tzinfo=UTC)
            found = database.execute("FROM parquet_kv_metadata($1)", [str(path)])
            metadata = {key: int(value) for _, key, value in found.fetchall()}
            assert metadata[b"snapbid.rows"] == len(of_file)
            assert metadata[b"snapbid.gaps"] == sum(row["kind"] == "gap" for row in of_file)
            rows += of_file
    rows.sort(key=lambda row: (row["worker"], row["sequence"]))
    numbers = [(row["worker"], row["sequence"]) for row in rows]
    assert len(set(numbers)) == len(numbers), "a row is there twice"
    return rows


def missing(rows: list[dict[str, Any]]) -> int:
    """How many rows the gaps admit to be missing."""
    return sum(row["missing"] for row in rows if row["kind"] == "gap")


def awaited(directory: Path) -> int:
    """How many bids and notices live workers have on their way to the ledger."""
    total = 0
    for chunk in open_all(spool_of(directory), set()):
        if not chunk.is_abandoned():
            total += ChunkState.read(chunk.mapped).in_flight
        chunk.close()
    return total


def contradiction(rows: list[dict[str, Any]], warehouse: Counter[Key]) -> str:
    """How rows differ from the warehouse by more than the gaps admit; "" if they do not."""
    counted, admitted = counts(rows), missing(rows)
    differing = {key for key in {*warehouse, *counted} if warehouse[key] != counted[key]}
    left_out = sum(abs(warehouse[key] - counted[key]) for key in differing if key[0] in ROWS)
    if left_out > admitted or (differing and not admitted):
        details = [f"{key}: {warehouse[key]}, not {counted[key]}" for key in differing]
        return f"the auction log lacks {left_out} rows and admits {admitted}: {sorted(details)}"
    return ""


def counts(rows: list[dict[str, Any]]) -> Counter[Key]:
    """What the rows count, under the keys of the books, test bids left out.

    A notice counts once, for the newest bid of its pair; one from the spool by what became of it
    later.
    """
    counted: Counter[Key] = Counter()
    bids: dict[tuple[str, str], dict[str, Any]] = {}
    pairs: dict[bytes, tuple[str, str]] = {}
    answers, settled = set(), set()
    for row in rows:
        if row["kind"] == "bid" and not row["test"]:
            pair = row["auction_id"], row["imp_id"]
            bids[pair] = row
            pairs[bid_digest(pair[0].encode(), pair[1].encode())] = pair
            counted["campaign bids", row["campaign_id"]] += 1
            answers.add((row["descriptor"], row["auction_id"]))
    for descriptor, _ in answers:
        counted["bids", descriptor] += 1
    for row in rows:
        if row["kind"] in ("bid", "gap") or row["verdict"] not in COUNTED:
            continue
        key = row["notice_key"]
        pair = pairs[key] if key in pairs else (row["auction_id"], row["imp_id"])
        if (row["kind"], pair) in settled:
            continue
        settled.add((row["kind"], pair))
        bid = bids.get(pair)
        if bid is None:
            counted[("notices without a bid",)] += 1
            continue
        descriptor, campaign = bid["descriptor"], bid["campaign_id"]
        if row["kind"] == "win":
            counted["wins", descriptor] += 1
            counted["cpm", descriptor] += bid["cost_nanos"]
            counted["campaign wins", campaign] += 1
            counted["campaign cpm", campaign] += bid["cost_nanos"]
        elif row["kind"] == "billing":
            counted["imps", bid["ssp"]] += 1
            counted["campaign imps", campaign] += 1
        else:
            counted["losses", descriptor, row["loss_reason"]] += 1
    return counted
