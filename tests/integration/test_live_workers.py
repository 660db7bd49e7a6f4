"""Two workers over a base: changes reach both, and a worker that is killed is ready at once."""

import asyncio
import itertools
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import ops
from support.campaigns import document, put
from support.client import JSON_HEADERS
from support.commands import succeed
from support.http import ask
from support.processes import eventually, workers_of
from support.spending import bid_request
from support.stack import Stack, connected, execute

from snapbid.catalog.publisher.overlay import LEAST
from snapbid.warehouse import campaigns, registry

MANY = LEAST + 100
FILL = """
insert into campaign (id, document)
select 'c' || n, jsonb_build_object(
    'id', 'c' || n, 'advertiser', 'brand.example', 'cpm', 1, 'creatives', jsonb_build_array(
        jsonb_build_object('id', 'k', 'media', 'banner', 'w', 300, 'h', 250, 'adm', 'x')))
from generate_series(1, $1::int) n
"""


async def fill(dsn: str) -> None:
    async with connected(dsn) as connection:
        await registry.add(connection, "acme", None)
        await connection.execute(FILL, MANY)


async def set_status(dsn: str, id: str, status: Any) -> None:
    async with connected(dsn) as connection:
        await campaigns.set_status(connection, id, status)


@pytest.fixture
def stack(database: str, start_stack: Callable[..., Stack]) -> Stack:
    asyncio.run(fill(database))
    stack = start_stack(SNAPBID_WORKERS="2")
    eventually(lambda: f"since the base of {MANY}" in stack.output, "a base")
    return stack


def winner(stack: Stack) -> str:
    """The campaign that answers, or "", on a connection of its own, which any worker may take."""
    body = json.dumps(bid_request(os.urandom(4).hex()) | {"test": 1}).encode()
    reply = ask(stack.port, "POST", "/api/v1/openrtb2/acme/bid", body, JSON_HEADERS)
    return str(reply.json()["seatbid"][0]["bid"][0]["cid"]) if reply.status == 200 else ""


def all_answer(stack: Stack, campaign: str) -> None:
    """Waits until only this one answers, whichever worker is asked."""
    eventually(lambda: {winner(stack) for _ in range(20)} == {campaign}, f"{campaign} alone")


def test_changes_reach_every_worker(database: str, stack: Stack) -> None:
    asyncio.run(put(database, document("c7", cpm=3)))
    all_answer(stack, "c7")
    asyncio.run(put(database, document("new", cpm=4)))
    all_answer(stack, "new")
    asyncio.run(set_status(database, "new", "paused"))
    all_answer(stack, "c7")
    asyncio.run(set_status(database, "new", "active"))
    all_answer(stack, "new")
    asyncio.run(execute(database, "delete from campaign where id = 'new'"))
    all_answer(stack, "c7")
    asyncio.run(put(database, document("c7", cpm=0.5), document("c8", cpm=2, budget={"daily": 1})))
    all_answer(stack, "c8")
    asyncio.run(
        put(database, document("c8", cpm=2, budget={"daily": 0.000001}), document("c9", cpm=1.5))
    )
    all_answer(stack, "c9")


def test_a_restarted_worker_maps_the_existing_catalog(database: str, stack: Stack) -> None:
    asyncio.run(put(database, document("c7", cpm=3)))
    all_answer(stack, "c7")
    assert stack.process is not None
    server = stack.process.pid
    before = workers_of(server)
    asyncio.run(execute(database, "drop trigger campaign_4_announce on campaign"))
    victim = min(before)
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: len(workers_of(server) - {victim}) == 2, "another worker")
    eventually(lambda: stack.get("/readyz")[0] == 200, "that it is ready")
    all_answer(stack, "c7")


def cut(path: Path) -> None:
    os.truncate(path, 8192)


def damage(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(64)
        file.write(b"\xff" * 512)


@pytest.mark.parametrize("spoil", [cut, damage])
def test_a_damaged_base_ends_a_worker_only_once(
    database: str, stack: Stack, spoil: Callable[[Path], None]
) -> None:
    """Nobody can keep a mapped file from being cut short: who touches what is gone is killed. The
    next worker finds the base damaged and serves no bids, until the publisher has made another: at
    once where its length has changed, without waiting for a change of campaigns.
    """
    asyncio.run(put(database, document("c7", cpm=3)))
    all_answer(stack, "c7")
    (base,) = Path(stack.environ["SNAPBID_HOME"]).rglob("base-*")
    spoil(base)
    assert stack.process is not None
    for worker in workers_of(stack.process.pid):
        os.kill(worker, signal.SIGKILL)
    if spoil is damage:  # looks as whole as before: the next publisher reads all of it
        eventually(lambda: "refused catalog" in stack.output, "that the base is refused")
        stack.stop()
        stack.start()
    eventually(lambda: not base.exists(), "another base")
    eventually(lambda: stack.get("/readyz")[0] == 200, "that it is ready")
    all_answer(stack, "c7")
    assert stack.output.count("refused catalog") <= 8, "logged again and again"


def test_a_new_base_takes_the_place_of_the_old(database: str, stack: Stack) -> None:
    asyncio.run(put(database, document("c7", cpm=3)))
    all_answer(stack, "c7")
    asyncio.run(put(database, *(document(f"d{number}", cpm=0.5) for number in range(LEAST + 1))))
    eventually(lambda: f"since the base of {MANY + LEAST + 1}" in stack.output, "another base")
    all_answer(stack, "c7")
    asyncio.run(put(database, document("c7", cpm=0.1), document("d5", cpm=4)))
    all_answer(stack, "d5")


def test_bids_are_converted_at_imported_rates(
    database: str, start_stack: Callable[..., Stack]
) -> None:
    ops.prepare(database, {**document("shoes"), "cpm": 40.123457})
    stack = start_stack()
    environ = {"SNAPBID_DATABASE_URL": database}
    auctions = map(str, itertools.count())

    def price(currency: str) -> float | None:
        status, _, body = ops.bid(stack, next(auctions), cur=[currency])
        if status == 204:
            return None
        answer = json.loads(body)
        assert answer["cur"] == currency
        return float(answer["seatbid"][0]["bid"][0]["price"])

    eventually(lambda: price("USD") is not None, "the campaign")
    assert price("VND") is None
    assert price("EUR") not in (None, 20.061728)
    for currency, usd in (("VND", "0.00004"), ("USDT", "1"), ("EUR", "2")):
        rate = {"currency": currency, "date": "2026-01-01", "usd": usd}
        succeed(environ, "rates", "import", "-", input=json.dumps(rate))
    eventually(lambda: price("EUR") == 20.061728, "the rates")
    assert price("VND") == 1_003_086.425
    assert price("USDT") is None  # not a code of ISO 4217
    succeed(environ, "rates", "remove", "VND")
    eventually(lambda: price("VND") is None, "the removal")
