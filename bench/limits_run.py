"""Measures what budgets and caps cost a bid, and how pacing follows the day.

    python -m bench.limits_run [--rounds N] [--output FILE]

A worker's processor time covers everything between the body and the answer (decode, decide, pack
for Redis, encode), without waiting and sockets. That of a real Redis is measured separately.
"""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Awaitable, Generator
from functools import partial
from itertools import islice
from math import cos, pi
from pathlib import Path
from random import Random
from statistics import median
from time import process_time
from typing import Any, Final

import click
import redis as redis_client
import uvloop

from bench import redis_time, refused
from bench.client import as_new_auctions
from bench.command import command, scratch
from bench.contenders import LIMITS
from bench.snapshot import SSP, Document, snapshot
from bench.spread import spread
from snapbid.bidding.endpoint import Bidding, BidEndpoint
from snapbid.bidding.request_stats import RequestStats
from snapbid.bidding.response import ResponseWriter, response_writer
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.embedded import Home, Redis
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import WIN, AnswerBids, BidVerdict, LedgerBid, counters
from snapbid.ledger.budgets.limits import Limits
from snapbid.metrics import Metrics
from workload import requests
from workload.serving import confirm_budgets

CAMPAIGNS: Final = 10_000
LANES: Final = 128  # which form batches of 64 on average: the first 32, all others, and so on
TURN: Final = 1000  # bids of a snapshot before the turn of the next
ALONE: Final = 200  # bids that are sent one at a time
DAY_S: Final = 86_400
KINDS: Final[dict[str, Document]] = {
    "plain": {},
    "budget": {"budget": {"daily": 10**6, "total": 10**7}},
    "even budget": {"budget": {"daily": 10**6, "pacing": "even"}},
    "capped": {"frequency_caps": [{"impressions": 10**6, "seconds": 3600}]},
    "budget and capped": LIMITS,
}


@contextlib.asynccontextmanager
async def ledger_over(redis: Redis, folder: Path, **more: Any) -> AsyncIterator[Ledger]:
    ledger = Ledger(
        redis.url, folder / "spool", shards=1, ttl_s=7200, spool_max_bytes=1 << 20, **more
    )
    await ledger.open()
    while not ledger.connected:
        await asyncio.sleep(0.001)
    confirm_budgets(redis.url)
    try:
        yield ledger
    finally:
        await ledger.close()


# -- what it costs ------------------------------------------------------------------------------


class Kept(Awaitable[Any]):
    """A verdict of the ledger that is available as soon as it is awaited."""

    def __init__(self, value: str) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, None, Any]:
        yield from ()
        return self._value


class Batches:
    """A ledger without Redis that accepts every bid at once, and packs batches of 32."""

    SIZE: Final = 32

    def __init__(self) -> None:
        self._waiting: list[AnswerBids] = []
        self._kept = Kept(BidVerdict.KEPT.value)

    def remember(
        self,
        auction_id: bytes,
        ssp: int,
        bids: list[LedgerBid],
        user: str | None,
        within_s: float,
        counted: bool = False,
    ) -> Kept:
        answer = len(self._waiting)
        self._waiting.append(
            AnswerBids(auction_id, ssp, bids, user, (START, 0), answer, counted, _NOBODY, 0.0)
        )
        if len(self._waiting) == self.SIZE:
            b"".join([answer.entries for answer in self._waiting])
            counters(self._waiting)
            self._waiting.clear()
        return self._kept if len(bids) == 1 else Kept(BidVerdict.KEPT * len(bids))

    async def look(
        self, auction_id: bytes, bids: list[LedgerBid], user: str | None, within_s: float
    ) -> str:
        return "k" * len(bids)

    def shard_of(self, auction_id: bytes) -> int:
        return 0


_NOBODY: Any = None  # the future of a request, which is not used here


def _with(more: Document, document: Document) -> Document:
    return document | more


async def measure(redis: Redis, folder: Path, rounds: int) -> dict[str, Any]:
    """Measure the processor time per bid by kind of campaign; each round has a turn of each."""
    bodies = requests.encode(requests.make(2000))
    metrics = Metrics(folder / "metrics")
    writer = response_writer("http://127.0.0.1:8000")
    own: dict[str, list[float]] = {kind: [] for kind in KINDS}
    redis_own: dict[str, list[float]] = {kind: [] for kind in KINDS}
    redis_alone: dict[str, list[float]] = {kind: [] for kind in KINDS}
    batches = turns = 0
    sent: list[float] = []
    async with ledger_over(redis, folder, observe=lambda *batch: sent.append(batch[2])) as ledger:
        snapshots = {
            kind: snapshot(CAMPAIGNS, partial(_with, more)) for kind, more in KINDS.items()
        }
        packing = {k: _endpoint(made, writer, Batches(), metrics) for k, made in snapshots.items()}
        sending = {k: _endpoint(made, writer, ledger, metrics) for k, made in snapshots.items()}
        answered = [body for body in bodies if await _bids(packing, body)]
        with contextlib.closing(redis_client.Redis.from_url(redis.url)) as client:
            for _ in range(rounds):
                for kind in KINDS:
                    own[kind].append(await _worker_turn(packing[kind], answered))
                    before = len(sent)
                    spent = await _redis_turn(sending[kind], answered, client, LANES, TURN)
                    redis_own[kind].append(spent)
                    batches, turns = batches + len(sent) - before, turns + 1
                    spent = await _redis_turn(sending[kind], answered, client, 1, ALONE)
                    redis_alone[kind].append(spent)
    metrics.close()
    figures = {
        kind: {
            "us_a_bid": round(median(own[kind]), 2),
            "redis_us_a_bid": round(median(redis_own[kind]), 2),
            "redis_us_a_bid_alone": round(median(redis_alone[kind]), 2),
        }
        for kind in KINDS
    }
    added = {
        kind: {
            "us_a_bid": _added(own[kind], own["plain"]),
            "redis_us_a_bid": _added(redis_own[kind], redis_own["plain"]),
            "redis_us_a_bid_alone": _added(redis_alone[kind], redis_alone["plain"]),
        }
        for kind in KINDS
        if kind != "plain"
    }
    return {
        "kinds": figures,
        "added": added,
        "rounds": rounds,
        "lanes": LANES,
        "turn": TURN,
        "bids_a_batch": round(turns * TURN / batches, 1),
    }


def _added(values: list[float], plain: list[float]) -> list[float]:
    """Return median and quartiles of the differences to the plain turns of the same rounds."""
    own = spread([value - base for value, base in zip(values, plain, strict=True)], 2)
    return [own["median"], own["q1"], own["q3"]]


def _endpoint(
    made: CatalogSnapshot, writer: ResponseWriter, ledger: Any, metrics: Metrics
) -> BidEndpoint:
    bidding = Bidding(writer, ledger, metrics, max_bytes=262_144, tmax_ms=10_000)
    return BidEndpoint(SSP, made, bidding, RequestStats())


async def _bids(endpoints: dict[str, BidEndpoint], body: bytes) -> bool:
    """Return whether all endpoints bid on a request; otherwise they would not do the same work."""
    return all([await _answers(endpoint, body) for endpoint in endpoints.values()])


async def _answers(endpoint: BidEndpoint, body: bytes) -> bool:
    """Return whether an endpoint bids on a request."""
    message = {"type": "http.request", "body": body, "more_body": False}

    async def receive() -> dict[str, Any]:
        return message

    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    return bool((await endpoint(headers, receive)).start["status"] == 200)


async def _worker_turn(endpoint: BidEndpoint, bodies: list[bytes]) -> float:
    """Return this process's processor time (µs) per bid, without garbage collections."""
    gc.collect()
    gc.disable()
    try:
        before = process_time()
        for number in range(TURN):
            await _answers(endpoint, bodies[number % len(bodies)])
        return (process_time() - before) / TURN * 1e6
    finally:
        gc.enable()


async def _redis_turn(
    endpoint: BidEndpoint, bodies: list[bytes], client: Any, lanes: int, bids: int
) -> float:
    """Return Redis' processor time (µs) per bid, in batches formed by `lanes` concurrent bids."""
    left = islice(as_new_auctions(bodies), bids)

    async def lane() -> None:
        for body in left:
            assert await _answers(endpoint, body)

    before = redis_time.processor_s(client.info("cpu"))
    await asyncio.gather(*(lane() for _ in range(lanes)))
    return (redis_time.processor_s(client.info("cpu")) - before) / bids * 1e6


# -- pacing -------------------------------------------------------------------------------------

STEP_S: Final = 60
BUDGET: Final = 1000 * 1000  # micro-USD, 1,000 bids at 1 USD
START: Final = 1_907_712_000 // DAY_S * DAY_S  # a future midnight: keys expire by Redis' clock


class Clock:
    """A simulated clock."""

    now = float(START)

    def __call__(self) -> float:
        return self.now


async def pace(redis: Redis, folder: Path) -> dict[str, Any]:
    """Measure each campaign's spend by minute over two days of uneven traffic, mostly won."""
    random, clock = Random(7), Clock()
    born = {"even": 0, "even, created at noon": DAY_S // 2, "asap": 0}
    campaigns = {
        name: Limits(number, BUDGET, None, (START + at) * 1000 if "even" in name else None)
        for number, (name, at) in enumerate(born.items(), 1)
    }
    curves: dict[str, list[float]] = {name: [] for name in campaigns}
    ideal: dict[str, list[float]] = {name: [] for name in campaigns}
    worst = 0.0
    async with ledger_over(redis, folder, clock=clock) as ledger:
        auctions = 0
        for step in range(2 * DAY_S // STEP_S):
            clock.now = START + step * STEP_S
            now = int(clock.now)
            for name, limits in campaigns.items():
                for _ in range(demand(step * STEP_S, random) if now >= START + born[name] else 0):
                    auctions += 1
                    await _buy(ledger, auctions, limits, random)
            states = await ledger.budgets.states([budget.campaign for budget in campaigns.values()])
            for name, limits in campaigns.items():
                used = states[limits.campaign].used_today / 1e9
                allowed = limits.day_nano(now) if now >= START + born[name] else 0
                assert allowed is not None
                worst = max(worst, used - allowed / 1e9)
                curves[name].append(round(used, 4))
                ideal[name].append(round(allowed / 1e9, 4))
    ends = {name: [curve[len(curve) // 2 - 1], curve[-1]] for name, curve in curves.items()}
    return {
        "budget_usd": BUDGET / 1e6,
        "step_s": STEP_S,
        "spend_at_midnight_usd": ends,
        "most_over_allowed_usd": round(max(worst, 0), 6),
        "used_usd": {name: curve[::15] for name, curve in curves.items()},
        "allowed_usd": {name: curve[::15] for name, curve in ideal.items()},
    }


def demand(second: int, random: Random) -> int:
    """Return the number of auctions in a minute, with busy evenings, a pause and a burst."""
    hour = second % DAY_S / 3600
    if 14 <= hour < 15:
        return 0
    rate = 3 * (1 - cos((hour - 4) / 24 * 2 * pi)) + (20 if 9 <= hour < 9.5 else 0)
    return int(rate) + (random.random() < rate % 1)


async def _buy(ledger: Ledger, number: int, limits: Limits, random: Random) -> None:
    auction = b"%d" % number
    done = ledger.remember(auction, 1, [(b"1", limits.campaign, 1_000_000, limits)], None, 10.0)
    assert done is not None
    if await done == "k" and random.random() < 0.7:  # the other holds expire
        await ledger.settle(WIN, auction, b"1")


@command("limits")
@click.option("--rounds", default=80)
def main(rounds: int) -> dict[str, Any]:
    """Measure what budgets and caps cost a bid, and how pacing follows the day."""
    with scratch() as folder, Home(folder / "home") as home:
        redis = Redis(home)
        redis.start()
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return {
                    "cost": runner.run(measure(redis, folder, rounds)),
                    "refused": runner.run(refused.measure(redis, folder)),
                    "pacing": runner.run(pace(redis, folder)),
                }
        finally:
            redis.stop()


if __name__ == "__main__":
    main()
