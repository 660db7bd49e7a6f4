"""`serve` and the drain through a move of the ledger, as the page on production has it."""

import asyncio
import json
from collections.abc import Callable
from urllib.parse import urlsplit

from support.campaigns import put
from support.client import JSON_HEADERS
from support.http import ask
from support.moved import books
from support.processes import eventually
from support.spending import bid_request
from support.stack import Stack, run

BIDS = 6
CAMPAIGN = {
    "id": "c-1",
    "advertiser": "brand.example",
    "cpm": 2,
    "budget": {"total": 0.002 * BIDS},
    "creatives": [{"id": "k", "media": "banner", "w": 300, "h": 250, "adm": "x"}],
}


def bid(stack: Stack, auction: str) -> str:
    """The path of the win notice, "" without a bid."""
    body = json.dumps(bid_request(auction)).encode()
    reply = ask(stack.port, "POST", "/api/v1/openrtb2/acme/bid", body, JSON_HEADERS)
    if reply.status == 204:
        return ""
    assert reply.status == 200, reply.body
    of = urlsplit(reply.json()["seatbid"][0]["bid"][0]["nurl"])
    return f"{of.path}?{of.query.replace('${AUCTION_PRICE}', '1.5')}"


def status(stack: Stack) -> str:
    return run(stack.environ, "status").stdout


def test_wins_before_during_and_after_a_move_count_once(
    database: str, fresh_redis: str, start_stack: Callable[..., Stack]
) -> None:
    asyncio.run(put(database, CAMPAIGN, ssp="acme"))
    old = start_stack(SNAPBID_WORKERS="2")
    drain = Stack({**old.environ}, "drain")
    drain.launch()
    try:
        eventually(lambda: bool(bid(old, "first")), "a bid")
        wins = [bid(old, f"auction-{number}") for number in range(BIDS - 1)]
        assert all(wins)
        assert bid(old, "too much") == ""
        assert old.get(wins[0])[0] == 200
        to = f"{fresh_redis}?db=1"
        done = run(old.environ, "ledger", "move", "--to", to, "--shards", "3")
        assert done.returncode == 0, done.stderr
        assert [old.get(win)[0] for win in wins[:2]] == [200, 200]
        assert bid(old, "meanwhile") == ""
        eventually(lambda: old.get("/readyz")[0] == 503, "not ready")
        eventually(lambda: "is closed, moved to" in status(old), "the cause")
        assert "(database 1, 3 shards)" in status(old)
        assert "Redis does not answer" not in status(old)
        is_closed = "unavailable: CLOSED the ledger is being moved"
        eventually(lambda: f"ledger shard 0 {is_closed}" in old.output, "the move in the log")
        of_drain = "paused draining events: Redis is unavailable (CLOSED the ledger is being moved"
        eventually(lambda: of_drain in drain.output, "the move in the drain's log")
        assert "WRONGTYPE" not in old.output + drain.output
        assert old.stop() == 0
        assert drain.stop() == 0
    finally:
        drain.close()
    new = start_stack(SNAPBID_WORKERS="2", SNAPBID_REDIS_URL=to)
    drain = Stack({**new.environ}, "drain")
    drain.launch()
    try:
        assert [new.get(win)[0] for win in wins[1:3]] == [200, 200]
        eventually(lambda: asyncio.run(books(database)).get("c-1", (0, 0))[1] == 3, "three wins")
        assert bid(new, "beyond the budget") == "", "3 are won, 3 are held"
        eventually(lambda: f"{BIDS} bids, 3 wins, " in status(new), "the whole day's figures")
        assert "Traceback" not in old.output + new.output + drain.output
        assert asyncio.run(books(database))["c-1"][:2] == (BIDS, 3)
    finally:
        drain.close()
