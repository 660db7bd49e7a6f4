"""An SSP that keeps its own books: sends bids and notices, and knows what must be counted.

Every count has a lower and an upper bound. What was acknowledged is in both; what was sent and
never answered (the connection ended) may count or not, and is in the upper one alone. Without
faults the two are equal.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, NamedTuple

import asyncpg

from snapbid.warehouse import campaigns, registry
from support.lanes import Lane, Reply

SSPS: Final = {
    "acme": "acme",
    "acme-eu": "acme",
    "acme-video": "acme",
    "nova": "nova",
    "nova-tv": "nova",
}
# A size has one campaign of its own, so that who bids, and for how much, is known beforehand.
CAMPAIGNS: Final = {
    (300, 250): ("books-a", 1_250_000),
    (728, 90): ("books-b", 2_345_679),
    (160, 600): ("books-c", 1),
    (320, 50): ("books-d", 49_999_999),
    (970, 250): ("books-e", 333_333),
}
NOBODY: Final = (1, 1)
REASONS: Final = ("1", "2", "102", "${AUCTION_LOSS}", "9999", "x")
WIN, BILL, LOSS = "nurl", "burl", "lurl"
PLANS: Final = ((WIN, BILL), (WIN, BILL), (WIN, BILL), (WIN,), (BILL,), (LOSS,), (LOSS,), (),
                (WIN, BILL, LOSS))  # fmt: skip

Key = tuple[str | int, ...]
BASE_URL: Final = "http://127.0.0.1:8000"


async def set_up(dsn: str) -> None:
    """Register the SSPs and import the campaigns."""
    connection = await asyncpg.connect(dsn)
    try:
        for descriptor, canonical in SSPS.items():
            await registry.add(connection, descriptor, canonical)
        documents = []
        for (w, h), (name, cpm) in CAMPAIGNS.items():
            creative = {"id": "c", "media": "banner", "w": w, "h": h, "adm": "<p></p>"}
            document = {"id": name, "advertiser": "shop.example", "cpm": cpm / 1_000_000}
            documents.append((name, json.dumps({**document, "creatives": [creative]})))
        await campaigns.replace_many(connection, documents)
    finally:
        await connection.close()


async def tables(dsn: str) -> Counter[Key]:
    """What the warehouse has counted, over all days, as the books name it."""
    found: Counter[Key] = Counter()
    connection = await asyncpg.connect(dsn)
    try:
        for row in await connection.fetch("select * from bid_daily"):
            found["bids", row["descriptor"]] += row["bids"]
            found["wins", row["descriptor"]] += row["wins"]
            found["cpm", row["descriptor"]] += row["win_cpm_micros"]
        for row in await connection.fetch("select * from impression_daily"):
            found["imps", row["ssp"]] += row["imps"]
        for row in await connection.fetch("select * from loss_daily"):
            found["losses", row["descriptor"], row["reason"]] += row["losses"]
        for row in await connection.fetch("select * from campaign_daily"):
            name = row["campaign"]
            found["campaign bids", name] += row["bids"]
            found["campaign wins", name] += row["wins"]
            found["campaign imps", name] += row["imps"]
            found["campaign cpm", name] += row["win_cpm_micros"]
            assert row["spend_micros"] == round(Fraction(row["win_cpm_micros"], 1000))
    finally:
        await connection.close()
    return +found


class Notice(NamedTuple):
    """One notice to fire: what it must count, and where it goes."""

    name: tuple[str, str, str]  # auction, impression, kind
    target: str
    counts: tuple[tuple[Key, int], ...]


@dataclass
class Books:
    """What this client knows of its own doings."""

    rng: random.Random
    refused_may_count: bool = False  # a worker killed with Redis cannot take back what it refused
    lower: Counter[Key] = field(default_factory=Counter)
    upper: Counter[Key] = field(default_factory=Counter)
    statuses: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    pending: list[Notice] = field(default_factory=list)
    slowest_s: float = 0.0
    auctions: int = 0
    wrong: list[str] = field(default_factory=list)
    _fired: set[tuple[str, str, str]] = field(default_factory=set)
    _acknowledged: set[tuple[str, str, str]] = field(default_factory=set)

    # -- bids --------------------------------------------------------------------------------

    async def bid(
        self, lane: Lane, tmax: int | None = None, *, wanted: bool = False
    ) -> Reply | None:
        """One auction, `wanted` by some campaign or by chance none; notices become pending."""
        self.auctions += 1
        auction = f"{self.auctions}-{self.rng.choice(('plain', 'a b+c', 'é/&=%00', chr(34)))}"
        descriptor = self.rng.choice(list(SSPS))
        sizes = self.rng.choices([*CAMPAIGNS, NOBODY], k=self.rng.choice((1, 1, 1, 2, 3)))
        if wanted:
            sizes[0] = next(iter(CAMPAIGNS))
        imps = {str(number): size for number, size in enumerate(sizes, 1)}
        body = _request(auction, imps, tmax)
        reply = await lane.post(f"/api/v1/openrtb2/{descriptor}/bid", body)
        self.statuses["bid", reply.status if reply else None] += 1
        bidding = {imp: CAMPAIGNS[size] for imp, size in imps.items() if size != NOBODY}
        counts: list[tuple[Key, int]] = [(("bids", descriptor), 1)] if bidding else []
        counts += [(("campaign bids", name), 1) for name, _ in bidding.values()]
        if reply is None:
            _add(self.upper, counts)
            return None
        self.slowest_s = max(self.slowest_s, reply.seconds)
        if reply.status == 200:
            _add(self.upper, counts)
            _add(self.lower, counts)
            self._plan(auction, descriptor, bidding, json.loads(reply.body))
        elif reply.status == 204:
            if self.refused_may_count:
                _add(self.upper, counts)
        else:
            self.wrong.append(f"{reply.status} to a bid request: {reply.body!r}")
        return reply

    def _plan(
        self, auction: str, descriptor: str, bidding: dict[str, tuple[str, int]], answer: Any
    ) -> None:
        bids = {bid["impid"]: bid for seat in answer["seatbid"] for bid in seat["bid"]}
        named = {imp: (bid["cid"], round(bid["price"] * 1_000_000)) for imp, bid in bids.items()}
        if named != bidding:
            self.wrong.append(f"bids {named} instead of {bidding}")
        for imp, bid in bids.items():
            reason = self.rng.choice(REASONS)
            for kind in self.rng.choice(PLANS):
                target = bid[kind].removeprefix(BASE_URL).replace("${AUCTION_LOSS}", reason)
                counts = _counts(kind, descriptor, bidding[imp], reason)
                notice = Notice((auction, imp, kind), target, counts)
                self.pending += [notice] * self.rng.choice((1, 1, 2, 3))

    # -- notices -----------------------------------------------------------------------------

    def draw(self) -> Notice:
        """Some pending notice."""
        place = self.rng.randrange(len(self.pending))
        self.pending[place], self.pending[-1] = self.pending[-1], self.pending[place]
        return self.pending.pop()

    async def fire(self, lane: Lane, notice: Notice) -> Reply | None:
        reply = await lane.get(notice.target)
        self.statuses["notice", reply.status if reply else None] += 1
        if reply is not None and reply.status == 503:
            return reply
        if notice.name not in self._fired:
            self._fired.add(notice.name)
            _add(self.upper, notice.counts)
        if reply is None:
            return None
        if reply.status != 200:
            self.wrong.append(f"{reply.status} to a notice: {reply.body!r}")
        elif notice.name not in self._acknowledged:
            self._acknowledged.add(notice.name)
            _add(self.lower, notice.counts)
        return reply

    # -- comparing ---------------------------------------------------------------------------

    def contradictions(self, found: Counter[Key]) -> list[str]:
        """Where what was counted lies outside of the bounds, in words."""
        return [
            f"{key}: {found[key]} counted, {self.lower[key]} to {self.upper[key]} expected"
            for key in sorted({*found, *self.upper}, key=str)
            if not self.lower[key] <= found[key] <= self.upper[key]
        ]


async def trade(
    books: Books, port: int, *, auctions: int, lanes: int = 16, stop: asyncio.Event | None = None
) -> None:
    """Bids from so many connections, notices shuffled among them; none is left pending."""
    last = books.auctions + auctions

    async def work(lane: Lane) -> None:
        try:
            while True:
                more = books.auctions < last and not (stop is not None and stop.is_set())
                if books.pending and (not more or books.rng.random() < 0.7):
                    await books.fire(lane, books.draw())
                elif more:
                    await books.bid(lane)
                else:
                    return
        finally:
            lane.close()

    await asyncio.gather(*(work(Lane(port)) for _ in range(lanes)))
    while books.pending:  # of answers that came after the other lanes had ended
        await work(Lane(port))


async def agreed(books: Books, dsn: str, patience_s: float = 20.0) -> list[str]:
    """Wait until the warehouse agrees with the books; the contradictions that remain."""
    deadline = asyncio.get_running_loop().time() + patience_s
    while wrong := books.contradictions(await tables(dsn)):
        if asyncio.get_running_loop().time() > deadline:
            return wrong
        await asyncio.sleep(0.1)
    return []


def _add(counter: Counter[Key], counts: Sequence[tuple[Key, int]]) -> None:
    for key, number in counts:
        counter[key] += number


def _counts(
    kind: str, descriptor: str, bid: tuple[str, int], reason: str
) -> tuple[tuple[Key, int], ...]:
    name, cpm = bid
    if kind == WIN:
        return (
            (("wins", descriptor), 1),
            (("cpm", descriptor), cpm),
            (("campaign wins", name), 1),
            (("campaign cpm", name), cpm),
        )
    if kind == BILL:
        return ((("imps", SSPS[descriptor]), 1), (("campaign imps", name), 1))
    return ((("losses", descriptor, int(reason) if reason.isdigit() else -1), 1),)


def _request(auction: str, imps: dict[str, tuple[int, int]], tmax: int | None) -> bytes:
    document: dict[str, Any] = {
        "id": auction,
        "imp": [{"id": imp, "banner": {"w": w, "h": h}} for imp, (w, h) in imps.items()],
        "site": {"domain": "news.example"},
        "device": {"ua": "Mozilla/5.0", "ip": "192.0.2.1", "geo": {"country": "USA"}},
    }
    return json.dumps(document if tmax is None else {**document, "tmax": tmax}).encode()
