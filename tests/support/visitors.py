"""Users who are shown a capped campaign: each comes several times at once, to several machines."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

from support.lanes import Lane
from support.spending import bid_request

BASE_URL = "http://127.0.0.1:8000"
AT_ONCE = 8  # visits of a user


def campaign(name: str, impressions: int, width: int) -> dict[str, Any]:
    """A campaign for banners of a width that a user may see so often a day."""
    creative = {"id": "c", "media": "banner", "w": width, "h": 50, "adm": "<p></p>"}
    cap = {"impressions": impressions, "seconds": 86_400}
    return {
        "id": name,
        "advertiser": "shop.example",
        "cpm": 1,
        "frequency_caps": [cap],
        "creatives": [creative],
    }


class Visitors:
    """Sends bids for users and fires their notices; knows what each user can have seen.

    `seen`: wins that were sent, answered or not.
    """

    def __init__(self, ports: Sequence[int], width: int, rng: random.Random) -> None:
        self._ports = ports
        self._width = width
        self._rng = rng
        self._visits = count()
        self.seen = Counter[str]()
        self.statuses = Counter[int | None]()

    async def run(self, done: Callable[[], bool], lanes: int) -> None:
        """Let ever new users visit."""
        await self._work(lanes, lambda: None if done() else f"user-{next(self._visits) // AT_ONCE}")

    async def visit_again(self, users: Iterable[str], lanes: int) -> None:
        """Let each of these visit once more."""
        left = iter(users)
        await self._work(lanes, lambda: next(left, None))

    async def _work(self, lanes: int, next_user: Callable[[], str | None]) -> None:
        async def work(port: int) -> None:
            lane = Lane(port)
            while (user := next_user()) is not None:
                await self._visit(lane, user)
            lane.close()

        await asyncio.gather(*(work(self._ports[n % len(self._ports)]) for n in range(lanes)))

    async def _visit(self, lane: Lane, user: str) -> None:
        auction = f"{user}-{self._rng.randrange(10**12)}"
        request = bid_request(auction, [(self._width, 50)], tmax=2000, user={"id": user})
        reply = await lane.post("/api/v1/openrtb2/acme/bid", json.dumps(request).encode())
        self.statuses[reply.status if reply else None] += 1
        if reply is None or reply.status != 200:
            return
        bid = json.loads(reply.body)["seatbid"][0]["bid"][0]
        if self._rng.random() < 0.2:
            await lane.get(_path(bid["lurl"]))
            return
        self.seen[user] += 1
        for kind in ("nurl", "burl", "nurl"):
            await lane.get(_path(bid[kind]))


def _path(url: str) -> str:
    return url.removeprefix(BASE_URL).replace("${AUCTION_LOSS}", "1")
