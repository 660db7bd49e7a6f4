"""Looks for the dearest bid request: `make fuzz TARGET=cost`.

A request is a random one (`random_requests.py`) to which genes are applied: what stands in a list,
a text or an unknown field, and how much of it. Hill climbing changes the genes of the dearest
requests so far. The cost is the processor time of the bid endpoint, from the body to the answer,
all but the socket and Redis, over large snapshots; the body stays below the limit of the endpoint.
"""

import argparse
import gc
import json
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from snapbid.base.errors import Problem
from snapbid.base.http import HeaderList
from snapbid.bidding.endpoint import Bidding, BidEndpoint
from snapbid.bidding.request_stats import RequestStats
from snapbid.bidding.response import response_writer
from snapbid.metrics import Metrics
from snapbid.server.process import GC_THRESHOLD
from support import pools
from support.choices import Choices
from support.large import large_snapshot
from support.oracle import Document
from support.random_requests import request_of
from workload.campaigns import documents

OUTPUT: Final = Path("build/fuzz")
WORST_MS: Final = 10.0
SNAPSHOTS: Final = (100_000, 20_000)
MAX_BYTES: Final = 262_144
KEPT: Final = 12  # dearest requests that are changed further
ROUNDS: Final = 5  # of which the quickest counts: the machine may be busy
AGAIN: Final = 15  # times that the dearest are measured again

Gene = tuple[str, str, int]  # where, what, how many
Genome = dict[str, Any]  # {"seed": int, "genes": [Gene, …]}


@cache
def known(dimension: str) -> list[Any]:
    """The values of a dimension that campaigns of the snapshot target."""
    values: dict[Any, None] = {}
    for document in documents(2_000):
        own: Any = document.get(dimension) or document.get("targeting", {}).get(dimension, {})
        lists = own.values() if isinstance(own, dict) else [own if isinstance(own, list) else [own]]
        for each in lists:
            values.update(dict.fromkeys(each))
    return list(values) or ["x"]


FILLS: Final[dict[str, Callable[[int, list[Any]], Any]]] = {
    "known": lambda n, own: own[n % len(own)],
    "one": lambda n, own: own[0],
    "numbers": lambda n, own: n,
    "digit": lambda n, own: 7,
    "large numbers": lambda n, own: 10**30 + n,
    "fractions": lambda n, own: 1.5,
    "whole floats": lambda n, own: 2.0,
    "unknown": lambda n, own: f"x{n}",
    "short": lambda n, own: "a",
    "empty": lambda n, own: "",
    "null": lambda n, own: None,
    "accents": lambda n, own: "\u00e9",
    "dotted": lambda n, own: "\u0130stanbul",
    "long": lambda n, own: "a" * 513,
    "just": lambda n, own: "A." * 256,
    "flags": lambda n, own: True,
    "objects": lambda n, own: {},
    "lists": lambda n, own: [],
}
TEXTS: Final = (
    "a", "a.", "\u00e9", "\u0130", "a@", "@:", "a-", "~", "A~", "1.", "//",
    "Mozilla/5.0 (", " ", "%",
)  # fmt: skip
LISTS: Final[dict[str, tuple[str, str]]] = {
    "bcat": ("", "categories"), "badv": ("", "advertiser"), "bapp": ("", "bundle"),
    "bseat": ("", "seat"), "wseat": ("", "seat"), "cur": ("", "x"), "acat": ("", "categories"),
    "cat": ("site", "category"), "sectioncat": ("app", "category"), "pagecat": ("site", "category"),
    "gpp_sid": ("regs", "x"), "wlang": ("", "language"),
}  # fmt: skip
FIELDS: Final = {
    "id": "", "domain": "site", "page": "site", "ua": "device", "os": "device", "ip": "device",
    "carrier": "device", "language": "device", "bundle": "app", "consent": "user", "gpp": "regs",
    "us_privacy": "regs", "country": "geo", "region": "geo", "city": "geo", "zip": "geo",
    "buyeruid": "user", "ifa": "device",
}  # fmt: skip
IMPRESSION: Final = (*("battr", "mimes", "protocols", "api", "btype"), *("rqddurs", "delivery"))
DEALS: Final = {"deal's wseat": ("wseat", "seat"), "deal's wadomain": ("wadomain", "advertiser")}
PLACES: Final = (
    *LISTS, *FIELDS, *IMPRESSION, *DEALS, "imp", "media", "format", "deals", "segment", "data",
    "eids", "unknown", "tolerance", "floor", "pod",
)  # fmt: skip


def mutated(rng: random.Random, genome: Genome) -> Genome:
    """Change a gene or two."""
    genes = list(genome["genes"])
    for _ in range(rng.choice((1, 1, 2, 3))):
        how = rng.randrange(5)
        if how == 0 or not genes:
            genes.append((rng.choice(PLACES), rng.choice((*FILLS, *TEXTS)), 1 << rng.randrange(18)))
        elif how == 1:
            genes.pop(rng.randrange(len(genes)))
        else:
            at = rng.randrange(len(genes))
            place, fill, count = genes[at]
            if how == 2:
                fill = rng.choice((*FILLS, *TEXTS))
            count = max(1, int(count * rng.choice((0.5, 0.9, 1.1, 1.5, 2))))
            genes[at] = (place, fill, count)
    seed = rng.randrange(10**6) if rng.random() < 0.1 else genome["seed"]
    return {"seed": seed, "genes": genes}


class TooLarge(Exception):
    """A request whose values are more than the bytes of any body."""


def request_from(genome: Genome) -> Document:
    """The request of a genome. Raises TooLarge before that fills the memory."""
    rng = random.Random(genome["seed"])
    request = request_of(Choices(rng.randint))
    for place, fill, count in genome["genes"]:
        _apply(request, place, fill, min(count, MAX_BYTES))
    return request


def _apply(request: Document, place: str, fill: str, count: int) -> None:
    make = FILLS.get(fill, FILLS["short"])

    def values(name: str) -> list[Any]:
        own = known(name)
        return [make(number, own) for number in range(count)]

    if place in LISTS:
        owner, name = LISTS[place]
        _at(request, owner)[place] = values(name)
    elif place in FIELDS:
        _at(request, FIELDS[place])[place] = (fill if fill in TEXTS else "a") * count
    elif place == "imp":
        made = request["imp"]
        request["imp"] = [{**made[n % len(made)], "id": str(n)} for n in range(count)]
    elif place == "segment":
        request["user"] = {"data": [{"segment": [{"id": id} for id in values("segment")]}]}
    elif place == "data":
        request["user"] = {"data": [{"segment": [{"id": id}]} for id in values("segment")]}
    elif place == "eids":
        _at(request, "user")["eids"] = [{"uids": [{"id": id}]} for id in values("x")]
    elif place == "unknown":
        request["unknown"] = values("x")
    elif place == "tolerance":
        request["dooh"] = {"publisher": []}
        request["regs"] = {"coppa": [0]}
    else:
        imps = request["imp"]
        deals = sum(len((imp.get("pmp") or {}).get("deals") or ()) for imp in imps)
        if max(len(imps), deals if place in DEALS else 0) * count > MAX_BYTES:
            raise TooLarge
        for imp in imps:
            _apply_to(imp, place, values)


def _apply_to(imp: Document, place: str, values: Callable[[str], list[Any]]) -> None:
    """The genes of an impression."""
    banner = imp.get("banner")
    if place == "media":
        w, h = pools.SIZES[len(values("x")) % len(pools.SIZES)]
        imp.update(banner={"w": w, "h": h}, video={"mimes": ["video/mp4"]})
    elif place == "format":
        sizes = [{"w": 300, "h": 250}, {"w": 728, "h": 90}, {"w": 9, "h": 9}]
        imp["banner"] = {"format": [sizes[n % 3] for n in range(len(values("x")))]}
    elif place == "deals":
        imp["pmp"] = {"deals": [{"id": id} for id in values("deal")]}
    elif place == "floor":
        imp.update(bidfloor=0.1, bidfloorcur="EUR")
        for deal in (imp.get("pmp") or {}).get("deals") or []:
            deal.update(bidfloor=0.1, bidfloorcur="EUR")
    elif place == "pod":
        imp.update(podid=1, secure=1)
    elif place in DEALS:
        name, dimension = DEALS[place]
        for deal in (imp.get("pmp") or {}).get("deals") or []:
            deal[name] = values(dimension)
    elif isinstance(banner, dict):
        banner[place] = values("x")
    elif isinstance(imp.get("video"), dict):
        imp["video"][place] = values("x")


def _at(request: Document, owner: str) -> Document:
    if not owner:
        return request
    parent = _at(request, "device") if owner == "geo" else request
    if not isinstance(parent.get(owner), dict):
        parent[owner] = {}
    child: Document = parent[owner]
    return child


class _Ledger:
    """A ledger that keeps every bid at once."""

    def remember(
        self, auction_id: bytes, ssp: int, bids: list[Any], *_: object
    ) -> Awaitable[str] | None:
        return self.look(auction_id, bids)

    async def look(self, auction_id: bytes, bids: list[Any], *_: object) -> str:
        return "k" * len(bids)

    def shard_of(self, auction_id: bytes) -> int:
        return 0


@contextmanager
def endpoint(campaigns: int) -> Iterator[BidEndpoint]:
    """A bid endpoint over a snapshot of so many campaigns."""
    gc.set_threshold(*GC_THRESHOLD)  # as in a worker
    with tempfile.TemporaryDirectory() as folder:
        metrics = Metrics(Path(folder))
        ledger: Any = _Ledger()
        writer = response_writer("http://bid.example")
        bidding = Bidding(writer, ledger, metrics, max_bytes=MAX_BYTES, tmax_ms=100)
        yield BidEndpoint("acme", large_snapshot(campaigns), bidding, RequestStats())
        metrics.close()


def cost_ms(of: BidEndpoint, body: bytes) -> float:
    """The processor time of a request, and of an answer that is compressed."""
    headers: HeaderList = [(b"content-type", b"application/json"), (b"accept-encoding", b"gzip")]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    times = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        call: Any = of(headers, receive).__await__()
        try:
            while True:
                next(call)
        except (StopIteration, Problem):
            times.append(time.thread_time() - began)
    return min(times) * 1000


class Climber:
    """Keeps the dearest requests of a snapshot, and changes them."""

    def __init__(self, of: BidEndpoint, seed: int, per_byte: bool) -> None:
        self._of = of
        self._rng = random.Random(seed)
        self._per_byte = per_byte
        self._best: list[tuple[float, Genome]] = [(0.0, {"seed": seed, "genes": []})]
        self.worst: tuple[float, Genome] = (0.0, {})
        self.tried = 0

    def step(self) -> None:
        """Try a change of one of the dearest."""
        genome = mutated(self._rng, self._rng.choice(self._best)[1])
        body = body_of(genome)
        if body is None:
            return
        self.tried += 1
        cost = cost_ms(self._of, body)
        if cost > self.worst[0]:
            self.worst = (cost, genome)
        fitness = cost / (len(body) + 500) if self._per_byte else cost
        self._best.append((fitness, genome))
        self._best.sort(key=lambda kept: -kept[0])
        del self._best[KEPT:]


def again(of: BidEndpoint, worst: tuple[float, Genome]) -> tuple[float, Genome]:
    """Measure a request over some seconds: on a shared processor, single runs may take longer."""
    cost, genome = worst
    body = body_of(genome) if genome else None
    for _ in range(AGAIN if body else 0):
        time.sleep(0.2)
        cost = min(cost, cost_ms(of, body or b""))
    return cost, genome


def body_of(genome: Genome) -> bytes | None:
    """The request's body; None if it is beyond the limit of the endpoint."""
    if sum(count for _, _, count in genome["genes"]) > 2 * MAX_BYTES:
        return None
    try:
        request = request_from(genome)
    except TooLarge:
        return None
    if len(request["imp"]) * len(genome["genes"]) > 20_000:
        return None
    body = json.dumps(request, separators=(",", ":"), ensure_ascii=False)
    encoded = body.encode(errors="replace")
    return encoded if len(encoded) <= MAX_BYTES else None


def main() -> int:
    """Search, print what was dearest, and write it to build/fuzz/cost.json; 1 if it is too dear."""
    parser = argparse.ArgumentParser(prog="support.fuzz.cost")
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    options = parser.parse_args()
    worst: list[tuple[float, Genome, int]] = []
    for campaigns in SNAPSHOTS:
        with endpoint(campaigns) as of:
            climbers = [Climber(of, options.seed + n, n % 2 == 1) for n in range(4)]
            until = time.monotonic() + options.minutes * 60 / len(SNAPSHOTS)
            while time.monotonic() < until:
                for climber in climbers:
                    climber.step()
            tried = sum(climber.tried for climber in climbers)
            worst += [(*again(of, climber.worst), campaigns) for climber in climbers]
        print(f"{campaigns} campaigns: {tried} requests tried", flush=True)
    worst.sort(key=lambda each: -each[0])
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for cost, genome, campaigns in worst:
        print(f"{cost:.2f} ms over {campaigns} campaigns: {json.dumps(genome)[:300]}")
    (OUTPUT / "cost.json").write_text(json.dumps(worst, indent=1))
    print(f"the worst request took {worst[0][0]:.2f} ms, at most {WORST_MS} are allowed")
    return worst[0][0] > WORST_MS


if __name__ == "__main__":
    sys.exit(main())
