"""Traffic that buys from campaigns with budgets, until they are used up."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from redis.exceptions import RedisError

from snapbid.ledger.budgets.budgets import Budgets
from snapbid.redisclient.connection import connect
from support.lanes import Lane
from support.spending import bid_request
from support.stack import fetch

BASE_URL = "http://127.0.0.1:8000"
LANES = 256
QUIET_S = 2.0
SPENT_S = 240.0


def campaign(number: int, cpm: int, budget: int, width: int) -> dict[str, Any]:
    """A campaign for banners of a width; amounts in micro-USD."""
    creative = {"id": "c", "media": "banner", "w": width, "h": 50, "adm": "<p></p>"}
    return {
        "id": f"c{number}",
        "advertiser": "shop.example",
        "cpm": cpm / 1_000_000,
        "budget": {("daily", "total")[number % 2]: budget / 1_000_000},
        "creatives": [creative],
    }


class Buyer:
    """Sends bids and fires their notices; knows what each campaign has spent for certain.

    `unanswered`: by width the requests without an answer, whose bids may count or be held.
    """

    def __init__(self, port: int, widths: int, rng: random.Random, prefix: object) -> None:
        self._port = port
        self._widths = widths
        self._rng = rng
        self._prefix = prefix
        self._auctions = 0
        self.wins = Counter[str]()
        self.unanswered = Counter[int]()
        self.statuses = Counter[int | None]()

    async def run(self, done: Callable[[], bool], lanes: int = LANES, losses: float = 0.2) -> None:
        async def work() -> None:
            lane = Lane(self._port)
            while not done():
                await self._auction(lane, losses)
            lane.close()

        await asyncio.gather(*(work() for _ in range(lanes)))

    async def _auction(self, lane: Lane, losses: float) -> None:
        self._auctions += 1
        width = 1 + self._auctions % self._widths
        body = json.dumps(bid_request(f"{self._prefix}-{self._auctions}", [(width, 50)], tmax=2000))
        reply = await lane.post("/api/v1/openrtb2/acme/bid", body.encode())
        self.statuses[reply.status if reply else None] += 1
        self.unanswered[width] += reply is None
        if reply is None or reply.status != 200:
            return
        bid = json.loads(reply.body)["seatbid"][0]["bid"][0]
        lost = self._rng.random() < losses
        for kind in ("lurl",) if lost else ("nurl", "burl"):
            reply = await lane.get(bid[kind].removeprefix(BASE_URL).replace("${AUCTION_LOSS}", "1"))
            is_settled = reply is not None and reply.status == 200
            if kind != "burl" and not is_settled:
                self.unanswered[width] += 1
            elif kind == "nurl":
                self.wins[bid["cid"]] += 1


async def used_up(budgets: Budgets, most: dict[int, int]) -> bool:
    try:
        states = await budgets.states(list(most))
    except RedisError:  # just killed
        return False
    return all(state.used > most[number] for number, state in states.items())


async def sold_out(
    url: str, dsn: str, shards: int, buyers: list[Buyer], documents: list[dict[str, Any]]
) -> None:
    """Wait until no budget has room for another bid, and no campaign has bid for a while."""
    names = dict(await fetch(dsn, "select id, number from campaign_number"))
    most = {
        names[each["id"]]: round((sum(each["budget"].values()) - each["cpm"] / 1000) * 10**9)
        for each in documents
    }  # nano-USD that are used before the last bid
    redis = connect(url)
    budgets = Budgets(redis, shards, time.time)
    try:
        async with asyncio.timeout(SPENT_S):
            before = -1
            while before != (bids := sum(buyer.statuses[200] for buyer in buyers)) or not (
                await used_up(budgets, most)
            ):
                before = bids
                await asyncio.sleep(QUIET_S)
    finally:
        await redis.aclose()


def overspent(buyer: Buyer, documents: list[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """The campaigns whose acknowledged wins cost more than the budget: (spent, budget) in USD."""
    exceeded = {}
    for campaign in documents:
        (budget,) = campaign["budget"].values()
        spent = round(buyer.wins[campaign["id"]] * campaign["cpm"] * 1_000_000)  # nano-USD
        if spent > round(budget * 10**9):
            exceeded[campaign["id"]] = (spent / 10**9, budget)
    return exceeded
