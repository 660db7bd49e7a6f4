"""Kills under load: log, warehouse and the client's books agree but for what gaps admit."""

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

from support import books, logged
from support.books import Books, agreed, set_up, tables, trade
from support.processes import log_writers_of, workers_of
from support.stack import Stack

AUCTIONS = 900


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
    assert len({row["worker"] for row in rows}) > 2  # those that were killed have successors
    assert not list(directory.rglob("*.rows"))
    assert not logged.contradiction(rows, warehouse)


async def _trade(own: Books, served: Stack) -> None:
    for _ in range(3):
        trading = asyncio.create_task(trade(own, served.port, auctions=AUCTIONS // 3))
        while own.auctions % (AUCTIONS // 3) < 50:
            await asyncio.sleep(0.005)
        assert served.process is not None
        for pid in [min(workers_of(served.process.pid)), *log_writers_of(served.process.pid)]:
            os.kill(pid, signal.SIGKILL)
        await trading
