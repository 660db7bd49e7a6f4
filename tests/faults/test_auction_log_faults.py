"""Kills under load: log, warehouse and the client's books agree but for what gaps admit."""

import asyncio
import os
import random
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from support import books, logged
from support.books import Books, agreed, set_up, tables, trade
from support.machine import is_quiet
from support.processes import log_writers_of, workers_of
from support.remembered import until
from support.stack import Stack, draining

from snapbid.embedded import Redis

AUCTIONS = 900


def test_kills_lose_only_what_gap_rows_admit(
    database: str, own_redis: Redis, start_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    """Workers and the writer are killed while an SSP trades.

    Redis is frozen when a worker is killed, so what is on its way counts and has no row.
    """
    directory = tmp_path / "auctions"
    asyncio.run(set_up(database))
    served = start_stack(
        SNAPBID_REDIS_URL=own_redis.url,
        SNAPBID_WORKERS="2",
        SNAPBID_BASE_URL=books.BASE_URL,
        SNAPBID_AUCTION_LOG=str(directory),
        SNAPBID_AUCTION_LOG_S="1",
    )
    own = Books(random.Random(11), refused_may_count=True)
    with draining(served):
        asyncio.run(_trade(own, served, own_redis, directory))
        assert not own.wrong, own.wrong[:5]
        quiet = partial(is_quiet, own_redis.url, tmp_path)
        contradictions = asyncio.run(agreed(own, database, is_quiet=quiet))
        assert not contradictions, contradictions
        warehouse = asyncio.run(tables(database))
    served.close()
    rows = logged.read(directory)
    assert len({row["worker"] for row in rows}) > 2  # those that were killed have successors
    assert logged.missing(rows)
    assert not list(directory.rglob("*.rows"))
    assert not logged.contradiction(rows, warehouse)
    honest = [row for row in rows if row["kind"] != "gap"]
    assert logged.contradiction(honest, warehouse), "nothing was lost: the gaps were not needed"


async def _trade(own: Books, served: Stack, redis: Redis, directory: Path) -> None:
    for _ in range(3):
        trading = asyncio.create_task(trade(own, served.port, auctions=AUCTIONS // 3))
        await until(lambda: own.auctions % (AUCTIONS // 3) >= 50)
        assert served.process is not None
        assert redis.process is not None
        redis.process.send_signal(signal.SIGSTOP)
        await until(lambda: logged.awaited(directory))
        for pid in [*workers_of(served.process.pid), *log_writers_of(served.process.pid)]:
            os.kill(pid, signal.SIGKILL)
        redis.process.send_signal(signal.SIGCONT)
        await trading
