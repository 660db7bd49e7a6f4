"""The auction log of a serving machine, against the client's own books."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from support import books, logged
from support.books import Books, set_up, trade
from support.commands import invoke
from support.ops import data
from support.processes import eventually
from support.stack import Stack

AUCTIONS = 600


def test_the_log_agrees_with_the_books(
    database: str, start_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    """Each bid and each notice that counts has a row; repeats have theirs."""
    directory = tmp_path / "auctions"
    asyncio.run(set_up(database))
    served = start_stack(
        SNAPBID_WORKERS="2",
        SNAPBID_BASE_URL=books.BASE_URL,
        SNAPBID_AUCTION_LOG=str(directory),
        SNAPBID_AUCTION_LOG_S="1",
    )
    own = Books(random.Random(5), multipliers=(None, None, 14.2, 0.5))
    asyncio.run(trade(own, served.port, auctions=AUCTIONS))
    assert not own.wrong, own.wrong[:5]
    assert own.lower == own.upper
    eventually(lambda: data(served)["auction_log_bytes"] == 0, "no chunk to wait for the writer")
    assert data(served)["auction_log_lost"] == 0
    told = invoke(served.environ, "status").stdout
    assert "MiB before the auction log's writer, 0 rows lost in the last minute" in told
    served.close()
    rows = logged.read(directory)
    assert logged.counts(rows) == +own.lower
    assert not [row for row in rows if row["kind"] == "gap"]
    notices = [row for row in rows if row["kind"] in ("win", "billing", "loss")]
    came = [row for row in notices if row["auction_id"] is not None]  # not from a spool
    assert len(came) == own.statuses["notice", 200]
    assert not list(directory.rglob("*.rows"))
