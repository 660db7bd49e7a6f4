"""An SSP with its own accounts: sends bids and notices, and knows what must be counted.

Every count has a lower and an upper bound. Both include what was acknowledged; only the upper one
includes what was sent and never answered, which may or may not count. Without faults the two are
equal.
"""

import asyncio
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, NamedTuple

from snapbid.warehouse import campaigns, registry
from support.lanes import Lane, Reply
from support.stack import connected

SSPS: Final = {
    "acme": "acme",
    "acme-eu": "acme",
    "acme-video": "acme",
    "nova": "nova",
    "nova-tv": "nova",
}
# Each size has its own campaign, so that the bidder and the price are known in advance.
CAMPAIGNS: Final = {
    (300, 250): ("books-a", 1_250_000),
    (728, 90): ("books-b", 2_345_679),
    (160, 600): ("books-c", 1),
    (320, 50): ("books-d", 49_999_999),
    (970, 250): ("books-e", 333_333),
}
NOBODY: Final = (1, 1)
USERS: Final = 20
REASONS: Final = ("1", "2", "102", "${AUCTION_LOSS}", "9999", "x")
WIN, BILL, LOSS = "nurl", "burl", "lurl"
PLANS: Final = ((WIN, BILL), (WIN, BILL), (WIN, BILL), (WIN,), (BILL,), (LOSS,), (LOSS,), (),
                (WIN, BILL, LOSS))  # fmt: skip

DECIDED: Final = ((WIN, BILL), (WIN,), (LOSS,))  # each bid is decided, and only once

Key = tuple[str | int, ...]
Size = tuple[int, int]
BASE_URL: Final = "http://127.0.0.1:8000"


class Offer(NamedTuple):
    """The campaign that bids for a size, and its possible prices (CPM in micro-USD).

    A `fickle` one may not bid at all because of a budget, a cap or a pause; each of its bids is
    either won or lost. In its place one of `others` may bid, with its price.
    """

    campaign: str
    cpms: tuple[int, ...]
    fickle: bool = False
    others: tuple[tuple[str, int], ...] = ()

    @property
    def names(self) -> list[str]:
        return [self.campaign, *(name for name, _ in self.others)]


OFFERS: Final = {size: Offer(name, (cpm,)) for size, (name, cpm) in CAMPAIGNS.items()}


def document(name: str, size: Size, cpm: int, **more: Any) -> tuple[str, str]:
    """A campaign for banners of a size: id and JSON."""
    w, h = size
    creative = {"id": "c", "media": "banner", "w": w, "h": h, "adm": "<p></p>"}
    own = {"id": name, "advertiser": "shop.example", "cpm": cpm / 1_000_000}
    return name, json.dumps({**own, "creatives": [creative], **more})


async def set_up(dsn: str, *more: tuple[str, str]) -> None:
    """Register the SSPs and import the campaigns, plus `more`."""
    async with connected(dsn) as connection:
        for descriptor, canonical in SSPS.items():
            await registry.add(connection, descriptor, canonical)
        documents = [document(name, size, cpm) for size, (name, cpm) in CAMPAIGNS.items()]
        await campaigns.replace_many(connection, [*documents, *more])


async def tables(dsn: str) -> Counter[Key]:
    """The counts of the warehouse, over all days, under the keys of the books."""
    counts: Counter[Key] = Counter()
    async with connected(dsn) as connection:
        for row in await connection.fetch("select * from bid_daily"):
            counts["bids", row["descriptor"]] += row["bids"]
            counts["wins", row["descriptor"]] += row["wins"]
            counts["cpm", row["descriptor"]] += row["win_cpm_micros"]
        for row in await connection.fetch("select * from impression_daily"):
            counts["imps", row["ssp"]] += row["imps"]
        for row in await connection.fetch("select * from loss_daily"):
            counts["losses", row["descriptor"], row["reason"]] += row["losses"]
        for row in await connection.fetch("select * from campaign_daily"):
            name = row["campaign"]
            counts["campaign bids", name] += row["bids"]
            counts["campaign wins", name] += row["wins"]
            counts["campaign imps", name] += row["imps"]
            counts["campaign cpm", name] += row["win_cpm_micros"]
            assert row["spend_micros"] == round(Fraction(row["win_cpm_micros"], 1000))
    return +counts


class Notice(NamedTuple):
    """A notice to fire: its URL and what it must count."""

    name: tuple[str, str, str]  # auction, impression, kind
    target: str
    counts: tuple[tuple[Key, int], ...]
    viewer: tuple[str, str]  # campaign, user


@dataclass
class Books:
    """The client's own accounts."""

    rng: random.Random
    refused_may_count: bool = False  # a killed worker cannot take back the bids it refused
    offers: Mapping[Size, Offer] = field(default_factory=lambda: OFFERS)
    multipliers: Sequence[Any] = (None,)  # of impressions, `qty.multiplier`
    weights: Mapping[Size, int] = field(default_factory=dict)  # of sizes that are asked for more
    user_auctions: int = 0  # after how many one of the users goes and another comes
    lower: Counter[Key] = field(default_factory=Counter)
    upper: Counter[Key] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)  # requests that may have a bid, by SSP
    statuses: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    pending: list[Notice] = field(default_factory=list)
    slowest_s: float = 0.0
    auctions: int = 0
    wrong: list[str] = field(default_factory=list)
    seen: defaultdict[tuple[str, str], set[tuple[str, str]]] = field(
        default_factory=lambda: defaultdict(set)
    )  # (campaign, user) -> (auction, impression) of the impressions that were notified
    shown: defaultdict[tuple[str, str], set[tuple[str, str]]] = field(
        default_factory=lambda: defaultdict(set)
    )  # the same of those that were acknowledged
    settled: defaultdict[str, set[tuple[str, str]]] = field(
        default_factory=lambda: defaultdict(set)
    )  # campaign -> those of which any notice was acknowledged
    _fired: set[tuple[str, str, str]] = field(default_factory=set)
    _acknowledged: set[tuple[str, str, str]] = field(default_factory=set)

    # -- bids --------------------------------------------------------------------------------

    async def bid(
        self, lane: Lane, tmax: int | None = None, *, wanted: bool = False
    ) -> Reply | None:
        """Request bids; `wanted` ensures that a campaign bids. Its notices become pending."""
        self.auctions += 1
        auction = f"{self.auctions}-{self.rng.choice(('plain', 'a b+c', 'é/&=%00', chr(34)))}"
        descriptor = self.rng.choice(list(SSPS))
        known = [*self.offers, NOBODY]
        weights = [self.weights.get(size, 1) for size in known]
        sizes = self.rng.choices(known, weights, k=self.rng.choice((1, 1, 1, 2, 3)))
        if wanted:
            sizes[0] = next(iter(CAMPAIGNS))
        imps = {str(number): size for number, size in enumerate(sizes, 1)}
        gone = self.auctions // self.user_auctions if self.user_auctions else 0
        user = f"u{gone + self.rng.randrange(USERS)}"
        multipliers = {imp: self.rng.choice(self.multipliers) for imp in imps}
        body = _request(auction, imps, multipliers, tmax, user)
        bidding = {imp: self.offers[size] for imp, size in imps.items() if size != NOBODY}
        self.asked[descriptor] += bool(bidding)
        reply = await lane.post(f"/api/v1/openrtb2/{descriptor}/bid", body)
        self.statuses["bid", reply.status if reply else None] += 1
        most = _bid_counts(descriptor, [name for each in bidding.values() for name in each.names])
        if reply is None:
            _add(self.upper, most)
            return None
        self.slowest_s = max(self.slowest_s, reply.seconds)
        if reply.status == 200:
            bids = self._read(bidding, json.loads(reply.body))
            counts = _bid_counts(descriptor, [bid["cid"] for bid in bids])
            _add(self.upper, counts)
            _add(self.lower, counts)
            self._plan(auction, descriptor, user, bids, multipliers)
        elif reply.status == 204:
            if self.refused_may_count:
                _add(self.upper, most)
        else:
            self.wrong.append(f"{reply.status} to a bid request: {reply.body!r}")
        return reply

    def _read(self, bidding: dict[str, Offer], answer: Any) -> list[Any]:
        """The bids of an answer, checked against those expected."""
        bids = {bid["impid"]: bid for seat in answer["seatbid"] for bid in seat["bid"]}
        for imp, offer in bidding.items():
            bid = bids.get(imp)
            if bid is None and offer.fickle:
                continue
            named = bid and (bid["cid"], _micros(bid))
            if named not in [*((offer.campaign, cpm) for cpm in offer.cpms), *offer.others]:
                self.wrong.append(f"a bid {named} instead of {offer}")
        if bids.keys() - bidding.keys():
            self.wrong.append(f"bids for {bids.keys()} where {bidding.keys()} were wanted")
        return list(bids.values())

    def _plan(
        self,
        auction: str,
        descriptor: str,
        user: str,
        bids: list[Any],
        multipliers: Mapping[str, Any],
    ) -> None:
        fickle = {name for each in self.offers.values() if each.fickle for name in each.names}
        for bid in bids:
            reason = self.rng.choice(REASONS)
            campaign = bid["cid"]
            for kind in self.rng.choice(DECIDED if campaign in fickle else PLANS):
                target = bid[kind].removeprefix(BASE_URL).replace("${AUCTION_LOSS}", reason)
                cost = _cost(bid, multipliers[bid["impid"]])
                counts = _counts(kind, descriptor, (campaign, cost), reason)
                name = (auction, bid["impid"], kind)
                notice = Notice(name, target, counts, (campaign, user))
                self.pending += [notice] * self.rng.choice((1, 1, 2, 3))

    # -- notices -----------------------------------------------------------------------------

    def draw(self) -> Notice:
        """Remove and return a random pending notice."""
        index = self.rng.randrange(len(self.pending))
        self.pending[index], self.pending[-1] = self.pending[-1], self.pending[index]
        return self.pending.pop()

    async def fire(self, lane: Lane, notice: Notice) -> Reply | None:
        reply = await lane.get(notice.target)
        self.statuses["notice", reply.status if reply else None] += 1
        if reply is not None and reply.status == 503:
            return reply
        if notice.name not in self._fired:
            self._fired.add(notice.name)
            _add(self.upper, notice.counts)
            if notice.name[2] != LOSS:
                self.seen[notice.viewer].add(notice.name[:2])
        if reply is None:
            return None
        if reply.status != 200:
            self.wrong.append(f"{reply.status} to a notice: {reply.body!r}")
        elif notice.name not in self._acknowledged:
            self._acknowledged.add(notice.name)
            self.settled[notice.viewer[0]].add(notice.name[:2])
            if notice.name[2] != LOSS:
                self.shown[notice.viewer].add(notice.name[:2])
            _add(self.lower, notice.counts)
        return reply

    # -- comparing ---------------------------------------------------------------------------

    def contradictions(self, counted: Counter[Key]) -> list[str]:
        """The counts that lie outside of their bounds, in words."""
        return [
            f"{key}: {counted[key]} counted, {self.lower[key]} to {self.upper[key]} expected"
            for key in sorted({*counted, *self.upper}, key=str)
            if not self.lower[key] <= counted[key] <= self.upper[key]
        ]


async def trade(
    books: Books, port: int, *, auctions: int, lanes: int = 16, stop: asyncio.Event | None = None
) -> None:
    """Bid over several connections and fire all notices, in random order."""
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
    while books.pending:  # from answers that arrived after the other lanes had ended
        await work(Lane(port))


async def agreed(
    books: Books,
    dsn: str,
    patience_s: float = 60.0,
    is_quiet: Callable[[], bool] = lambda: True,
) -> list[str]:
    """Wait until the warehouse agrees with the books; returns the remaining contradictions.

    `is_quiet`: whether nothing more is to come. What is counted twice may come late, so agreement
    counts only from then on.
    """
    deadline = asyncio.get_running_loop().time() + patience_s
    while True:
        was_quiet = is_quiet()
        wrong = books.contradictions(await tables(dsn))
        if was_quiet and not wrong:
            return []
        if asyncio.get_running_loop().time() > deadline:
            return wrong or ["counts or notices are still pending"]
        await asyncio.sleep(0.1)


def _add(counter: Counter[Key], counts: Sequence[tuple[Key, int]]) -> None:
    for key, number in counts:
        counter[key] += number


def _micros(bid: dict[str, Any]) -> int:
    cpm: float = bid["price"]
    return round(cpm * 1_000_000)


def _cost(bid: dict[str, Any], multiplier: Any) -> int:
    """What a win costs in nano-USD: OpenRTB 2.6, 7.9.4; at least 1."""
    if multiplier is None or float(multiplier) <= 0:
        return _micros(bid)
    return max(round(_micros(bid) * Fraction(str(multiplier))), 1)


def _bid_counts(descriptor: str, names: Sequence[str]) -> list[tuple[Key, int]]:
    """The counts of an answer and its bids."""
    answer: list[tuple[Key, int]] = [(("bids", descriptor), 1)] if names else []
    return answer + [(("campaign bids", name), 1) for name in names]


def _counts(
    kind: str, descriptor: str, bid: tuple[str, int], reason: str
) -> tuple[tuple[Key, int], ...]:
    name, cost = bid
    if kind == WIN:
        return (
            (("wins", descriptor), 1),
            (("cpm", descriptor), cost),
            (("campaign wins", name), 1),
            (("campaign cpm", name), cost),
        )
    if kind == BILL:
        return ((("imps", SSPS[descriptor]), 1), (("campaign imps", name), 1))
    return ((("losses", descriptor, int(reason) if reason.isdigit() else -1), 1),)


def _request(
    auction: str, imps: dict[str, Size], multipliers: Mapping[str, Any], tmax: int | None, user: str
) -> bytes:
    quantities = {
        imp: {} if multiplier is None else {"qty": {"multiplier": multiplier, "sourcetype": 1}}
        for imp, multiplier in multipliers.items()
    }
    document: dict[str, Any] = {
        "id": auction,
        "imp": [
            {"id": imp, "banner": {"w": w, "h": h}, **quantities[imp]}
            for imp, (w, h) in imps.items()
        ],
        **({"dooh": {}} if any(quantities.values()) else {"site": {"domain": "news.example"}}),
        "device": {"ua": "Mozilla/5.0", "ip": "192.0.2.1", "geo": {"country": "USA"}},
        "user": {"buyeruid": user},
    }
    return json.dumps(document if tmax is None else {**document, "tmax": tmax}).encode()
