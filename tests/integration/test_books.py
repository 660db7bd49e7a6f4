"""Bids and notices over HTTP, against the client's own books: equal to the unit (contract 5).

BOOKS_AUCTIONS says how many auctions, BOOKS_SEED repeats a run.
"""

import asyncio
import contextlib
import json
import os
import random
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import pytest
import redis
from support import books
from support.books import SSPS, Books, agreed, set_up, tables, trade
from support.lanes import Lane
from support.machine import is_quiet
from support.stack import JWT_SECRET, Stack, draining
from support.wire import Wire

from snapbid.report import tokens

AUCTIONS = int(os.environ.get("BOOKS_AUCTIONS") or 5_000)
SEED = int(os.environ.get("BOOKS_SEED") or random.SystemRandom().randrange(10**9))

MULTIPLIERS = (None, None, None, 14.2, 0.5, 3, "12.5", 0.0001, 0, -2)


@pytest.fixture
def stack(database: str, start_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """Two workers and a drain."""
    asyncio.run(set_up(database))
    served = start_stack(SNAPBID_WORKERS="2", SNAPBID_BASE_URL=books.BASE_URL)
    with draining(served):
        yield served


def test_the_warehouse_and_the_report_agree_with_the_books(
    stack: Stack, database: str, fresh_redis: str, tmp_path: Path
) -> None:
    print(f"BOOKS_SEED={SEED} BOOKS_AUCTIONS={AUCTIONS}")
    own = Books(random.Random(SEED), multipliers=MULTIPLIERS)
    first_day = datetime.now(UTC).date()
    asyncio.run(trade(own, stack.port, auctions=AUCTIONS, lanes=32))
    assert not own.wrong, own.wrong[:5]
    assert own.statuses["bid", None] == own.statuses["notice", None] == 0
    assert own.statuses["bid", 200] > AUCTIONS / 2
    assert own.lower == own.upper
    quiet = partial(is_quiet, fresh_redis, tmp_path)
    contradictions = asyncio.run(agreed(own, database, is_quiet=quiet))
    assert not contradictions, contradictions
    assert asyncio.run(tables(database)) == +own.lower
    for canonical in ("acme", "nova"):
        report = read_report(stack, canonical, first_day)
        family = [descriptor for descriptor, of in SSPS.items() if of == canonical]
        days = report["days"]
        assert sum(day["bids"] for day in days) == sum(own.lower["bids", d] for d in family)
        assert sum(day["wins"] for day in days) == sum(own.lower["wins", d] for d in family)
        assert sum(day["imps"] for day in days) == own.lower["imps", canonical]
        money = sum(own.lower["cpm", d] for d in family)
        if len([day for day in days if day["bids"]]) == 1:
            exact = Decimal(money) / 10**9
            assert sum(day["totalCpmUsd"] for day in days) == exact.quantize(Decimal("1e-6"))


def read_report(stack: Stack, canonical: str, first_day: date) -> dict[str, list[dict[str, int]]]:
    """The report from a day to today; numbers with decimals as Decimal."""
    token = tokens.issue(canonical, JWT_SECRET.encode(), "snapbid")
    today = datetime.now(UTC).date()
    target = f"/api/v1/ssp/{canonical}/report?from={first_day}&to={today}"
    with Wire(stack.port) as wire:
        reply = wire.ask("GET", target, {"authorization": f"Bearer {token}"})
    assert reply.status == 200, reply
    report: dict[str, list[dict[str, int]]] = json.loads(reply.body, parse_float=Decimal)
    return report


def test_a_test_bid_is_never_counted(stack: Stack, database: str, fresh_redis: str) -> None:
    document = {
        "id": "t",
        "test": 1,
        "imp": [{"id": "1", "banner": {"w": 300, "h": 250}}],
        "device": {"ua": "x", "geo": {"country": "USA"}},
    }

    async def send() -> None:
        lane = Lane(stack.port)
        reply = await lane.post("/api/v1/openrtb2/acme/bid", json.dumps(document).encode())
        assert reply
        assert reply.status == 200
        (bid,) = json.loads(reply.body)["seatbid"][0]["bid"]
        for kind in ("nurl", "burl", "lurl"):
            answer = await lane.get(bid[kind].removeprefix(books.BASE_URL))
            assert answer
            assert answer.status == 200
        lane.close()

    asyncio.run(send())
    with contextlib.closing(redis.Redis.from_url(fresh_redis)) as client:
        assert not list(client.scan_iter("{sb*}:c:*"))
        assert not list(client.scan_iter("{sb*}:r:*"))
    assert not asyncio.run(tables(database))


def test_knowing_anothers_ids_gains_nothing(
    stack: Stack, database: str, fresh_redis: str, tmp_path: Path
) -> None:
    """Notices of unknown auctions, of other impressions, and odd ones, count nothing."""
    own = Books(random.Random(SEED))

    async def send() -> None:
        lane = Lane(stack.port)
        while not own.pending:
            await own.bid(lane)
        auction, imp, _ = own.pending[0].name
        own.pending.clear()
        pairs = [("nobody", "1"), (auction, "99"), (auction + imp, "1"), (auction + "\0", imp),
                 (auction, imp + "\0"), (imp, auction), (auction.upper() + " ", imp)]  # fmt: skip
        for path in ("win", "bill", "loss"):
            for id, imp_id in pairs:
                target = f"/rtb/{path}?{urlencode({'id': id, 'impId': imp_id, 'nbr': 1})}"
                reply = await lane.get(target)
                assert reply
                assert reply.status == 200
        lane.close()

    asyncio.run(send())
    quiet = partial(is_quiet, fresh_redis, tmp_path)
    assert not asyncio.run(agreed(own, database, is_quiet=quiet))
