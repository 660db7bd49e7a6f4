"""Traffic that buys until budgets are used up; users who visit until they are at their cap."""

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from redis.exceptions import RedisError

from snapbid.ledger.budgets.budgets import Budgets
from snapbid.redisclient.connection import connect
from support.lanes import Lane
from support.spending import bid_request
from support.stack import fetch

BASE_URL = "http://127.0.0.1:8000"
LANES = 256
LOSSES = 0.2  # of the bids
QUIET_S = 2.0
SPENT_S = 240.0


def campaign(number: int, cpm: int, budget: int, width: int) -> dict[str, Any]:
    """A campaign for banners of a width; amounts in micro-USD."""
    return {
        "id": f"c{number}",
        "advertiser": "shop.example",
        "cpm": cpm / 1_000_000,
        "budget": {("daily", "total")[number % 2]: budget / 1_000_000},
        "creatives": [{"id": "c", "media": "banner", "w": width, "h": 50, "adm": "<p></p>"}],
    }


def capped(number: int, impressions: int, width: int) -> dict[str, Any]:
    """A campaign for banners of a width that a user may see so often a day."""
    cap = {"impressions": impressions, "seconds": 86_400}
    unlimited = campaign(number, 1_000_000, 0, width) | {"frequency_caps": [cap]}
    return {name: value for name, value in unlimited.items() if name != "budget"}


class Buyer:
    """Sends bids and fires their notices; knows what each campaign has spent for certain.

    Each user comes `visits` times at once. `unanswered`: by width the requests without an answer,
    whose bids may count or be held. `seen`: by user the wins that were sent, answered or not.
    """

    def __init__(
        self,
        ports: Sequence[int],
        widths: Sequence[int],
        rng: random.Random,
        prefix: object,
        visits: int = 1,
    ) -> None:
        self._ports = ports
        self._widths = itertools.cycle(widths)
        self._rng = rng
        self._users = (f"{prefix}-{number // visits}" for number in itertools.count())
        self.wins = Counter[str]()
        self.seen = Counter[str]()
        self.unanswered = Counter[int]()
        self.statuses = Counter[int | None]()

    async def run(self, done: Callable[[], bool], lanes: int = LANES) -> None:
        await self._work(itertools.takewhile(lambda _: not done(), self._users), lanes)

    async def visit_again(self, users: Iterable[str], lanes: int) -> None:
        """Let each of these visit once more."""
        await self._work(iter(users), lanes)

    async def _work(self, users: Iterator[str], lanes: int) -> None:
        async def work(port: int) -> None:
            lane = Lane(port)
            for user in users:
                await self._auction(lane, user)
            lane.close()

        await asyncio.gather(*(work(self._ports[n % len(self._ports)]) for n in range(lanes)))

    async def _auction(self, lane: Lane, user: str) -> None:
        width, auction = next(self._widths), f"{user}-{self._rng.randrange(10**12)}"
        request = bid_request(auction, [(width, 50)], tmax=2000, user={"id": user})
        reply = await lane.post("/api/v1/openrtb2/acme/bid", json.dumps(request).encode())
        self.statuses[reply.status if reply else None] += 1
        self.unanswered[width] += reply is None
        if reply is None or reply.status != 200:
            return
        bid = json.loads(reply.body)["seatbid"][0]["bid"][0]
        is_lost = self._rng.random() < LOSSES
        self.seen[user] += not is_lost
        is_settled = False
        for kind in ("lurl",) if is_lost else ("nurl", "burl", "nurl"):
            reply = await lane.get(bid[kind].removeprefix(BASE_URL).replace("${AUCTION_LOSS}", "1"))
            is_settled |= kind != "burl" and reply is not None and reply.status == 200
        self.unanswered[width] += not is_settled
        self.wins[bid["cid"]] += is_settled and not is_lost


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
