"""Kills under load: log, warehouse and the client's books agree but for what gaps admit."""

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

from support import books, logged
from support.books import Books, Key, agreed, set_up, tables, trade
from support.processes import workers_of
from support.stack import Stack

AUCTIONS = 900
COUNTED = {"campaign bids", "wins", "imps", "losses"}  # one row each


def test_kills_leave_no_more_out_than_the_gaps_admit(
    database: str, start_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    """Workers and the writer are killed while an SSP trades."""
    directory = tmp_path / "auctions"
    asyncio.run(set_up(database))
    served = start_stack(
        SNAPBID_WORKERS="2",
        SNAPBID_BASE_URL=books.BASE_URL,
        SNAPBID_AUCTION_LOG=str(directory),
        SNAPBID_AUCTION_LOG_S="1",
    )
    own = Books(random.Random(11), refused_may_count=True)
    drain = Stack(served.environ, "drain")
    with contextlib.closing(drain):
        drain.launch()
        asyncio.run(_trade(own, served))
        assert not own.wrong, own.wrong[:5]
        contradictions = asyncio.run(agreed(own, database))
        assert not contradictions, contradictions
        warehouse = asyncio.run(tables(database))
    served.close()
    rows = logged.read(directory)
    counted, admitted = logged.counts(rows), logged.missing(rows)
    assert len({row["worker"] for row in rows}) > 2  # those that were killed have successors
    assert not list(directory.rglob("*.rows"))
    left_out = sum(_difference(warehouse, counted, key) for key in {*warehouse, *counted})
    assert left_out <= admitted, (warehouse - counted, counted - warehouse, admitted)


def _difference(warehouse: dict[Key, int], counted: dict[Key, int], key: Key) -> int:
    """By how much they differ, of what has a row each."""
    return abs(warehouse[key] - counted[key]) if key[0] in COUNTED else 0


async def _trade(own: Books, served: Stack) -> None:
    for _ in range(3):
        trading = asyncio.create_task(trade(own, served.port, auctions=AUCTIONS // 3))
        while own.auctions % (AUCTIONS // 3) < 50:
            await asyncio.sleep(0.005)
        assert served.process is not None
        for pid in [min(workers_of(served.process.pid)), *_writers(served.process.pid)]:
            os.kill(pid, signal.SIGKILL)
        await trading


def _writers(parent: int) -> list[int]:
    """The process that makes Parquet files."""
    children = Path(f"/proc/{parent}/task").glob("*/children")
    pids = [int(pid) for path in children for pid in path.read_text().split()]
    return [
        pid for pid in pids if b"snapbid.auction_log" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
