"""Measures the matcher by itself, with up to a million campaigns, beside alternatives in Python.

    python -m bench.match_run [--most N] [--peers N] [--output FILE]

Campaigns have one of two shapes. Figures are processor times, medians of rounds over all requests
on one core; with cold caches they are wall-clock times, one search at a time. A busy machine shows
in these, since other programs empty the caches. Indexes are kept in build/bench/indexes, since a
million campaigns take minutes to generate.
"""

import gc
import hashlib
import json
import mmap
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median, quantiles
from time import thread_time_ns
from typing import Any, Final

import click

from bench import measured
from bench.about import ROOT
from bench.command import command
from bench.processes import cores, pinned
from bench.snapshot import NOW_MS, SSP
from bench.spread import spread
from snapbid.bidding.lookups import Lookups
from snapbid.bidding.request import BidRequest, Imp, decode
from snapbid.campaigns.document import parse_json
from snapbid.catalog._index import Index, Query
from snapbid.catalog.payload import Builder, put
from snapbid.reference import agents, rates
from snapbid.reference.geo import GeoDatabase
from workload import campaigns, pools, requests

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
REQUESTS: Final = 512
ROUNDS: Final = 200
COLD_ROUNDS: Final = 2
WALKS: Final = 10
COUNTED: Final = ("a walk", "a row of a block", "a candidate", "a verified one")
NEAR: Final = 24  # requests that stay in the caches from one call to the next
PEER_REQUESTS: Final = 40  # of the plain scan at 100,000 campaigns each takes a tenth of a second
FLUSH_BYTES: Final = 64 << 20  # twice the last level of the processor's caches
KEPT: Final = ROOT / "build" / "bench" / "indexes"


@dataclass(frozen=True)
class Subject:
    """An index, its sizes, and the requests to match with it."""

    index: Index
    buffers: tuple[Any, ...]  # of the index, and of its overlay if it has one
    bytes: int  # without payloads
    payload_bytes: int
    lookups: Lookups
    asked: list[tuple[BidRequest, Imp]]

    def query(self, request: BidRequest, imp: Imp) -> Query:
        found = self.index.query(self.lookups, request, SSP, pools.REGISTRY[SSP], NOW_MS)
        found.impression(imp)
        return found

    def measured(self) -> list[Query]:
        """Return a query for each request, to be measured step by step."""
        return measured.queries(self.buffers, self.lookups, self.asked)


def subject(shape: str, count: int) -> Subject:
    """Return the subject for a shape and number of campaigns; use its stored index if any."""
    path = KEPT / f"{shape}-{count}-{_version()}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _make(path, shape, count)
    sizes = json.loads(path.with_suffix(".json").read_text())
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    agents.load()
    lookups = Lookups(GeoDatabase(), rates.load())
    made = [decode(body) for body in requests.encode(requests.make(REQUESTS))]
    asked = [(request, imp) for request in made for imp in request.imp or ()]
    sizes_of = sizes["index"], sizes["payload"]
    return Subject(Index(mapped), (mapped,), *sizes_of, lookups, asked)


def _make(path: Path, shape: str, count: int) -> None:
    gc.disable()  # a large import leaves no garbage
    with tempfile.TemporaryFile(dir=path.parent) as payloads:
        builder = Builder(payloads)
        for number, document in enumerate(campaigns.documents(count, shape=shape), 1):
            put(builder, parse_json(json.dumps(document).encode()), number)
        index = builder.build()
        payloads.seek(0)
        beside = path.with_suffix(".new")
        with beside.open("wb") as file:
            file.write(index)
            while block := payloads.read(1 << 20):
                file.write(block)
        sizes = {"index": len(index), "payload": payloads.tell()}
    path.with_suffix(".json").write_text(json.dumps(sizes))
    beside.replace(path)
    gc.enable()


def _version() -> str:
    """Return a digest of the sources that determine an index."""
    generator = ("workload/campaigns.py", "workload/pools.py")
    pools = ("src/snapbid/loadtest/pools.py", "src/snapbid/loadtest/traffic.py")
    sources = ("native/layout.h", "native/snapbid/catalog/_builder.pyx", *generator, *pools)
    text = b"".join((ROOT / source).read_bytes() for source in sources)
    return hashlib.sha256(text).hexdigest()[:12]


def figures(subject: Subject, rounds: int) -> dict[str, Any]:
    """Measure one size and shape; times are in ns."""
    queries = subject.measured()
    flush = bytearray(FLUSH_BYTES)
    hot = {step: _hot(queries, step, rounds) for step in measured.STEPS}
    alone, after = (
        [
            ns
            for _ in range(COLD_ROUNDS)
            for ns in measured.measure_cold(queries, "walk", flush, after=after)
        ]
        for after in (False, True)
    )
    near = replace(subject, asked=subject.asked[:NEAR])
    return {
        "eligible": _eligible(subject),
        "bytes_a_campaign": round(subject.bytes / len(subject.index), 1),
        "payload_bytes_a_campaign": round(subject.payload_bytes / len(subject.index), 1),
        "hot_ns": hot,
        "walk_ns": _steps(subject),
        "cold_walk_ns": _percentiles(alone),
        "cold_walk_after_ns": _percentiles(after),
        "call_ns": spread([call_ns(subject) for _ in range(rounds)], 0),
        "near_call_ns": spread([call_ns(near) for _ in range(4 * rounds)], 0),
    }


def _percentiles(times: Sequence[float]) -> dict[str, float]:
    return {"p50": round(median(times), 1), "p99": round(quantiles(times, n=100)[98], 1)}


def _steps(subject: Subject) -> dict[str, Any]:
    """Measure each walk separately: its time, its steps, and the time of a step.

    The time of a step is a least-squares fit over all walks but the slowest hundredth.
    """
    import numpy as np  # here, since --help needs no package of the peers

    steps, times, postings = [], [], []
    for walked in subject.measured():
        walked.next()
        own = walked.counts
        rows = own["blocks"] * (own["rows"] + own["flats"])
        steps.append((1, rows, own["candidates"], own["verified"]))
        postings.append(own["postings"])
        times.append(min(measured.measure([walked] * WALKS, "walk") for _ in range(WALKS)))
    found = _percentiles(times)
    usual = np.array(times) <= found["p99"]
    each, *_ = np.linalg.lstsq(np.array(steps, float)[usual], np.array(times)[usual])
    return found | {
        "postings": round(mean(postings), 1),
        "steps": {
            name: {"mean": round(float(count), 1), "ns": round(float(ns), 1)}
            for name, count, ns in zip(COUNTED, np.mean(steps, axis=0), each, strict=True)
        },
    }


def _hot(queries: list[Query], step: str, rounds: int) -> dict[str, float]:
    return spread([measured.measure(queries, step) for _ in range(rounds)], 1)


def call_ns(subject: Subject) -> float:
    """Return the time (ns) of a call from Python, from the decoded request to the best campaign."""
    index, lookups = subject.index, subject.lookups
    canonical = pools.REGISTRY[SSP]
    start = thread_time_ns()
    for request, imp in subject.asked:
        query = index.query(lookups, request, SSP, canonical, NOW_MS)
        query.impression(imp)
        query.next()
    return (thread_time_ns() - start) / len(subject.asked)


def _eligible(subject: Subject) -> float:
    """Return the share of campaigns that may bid on a request, averaged over some requests."""
    some = subject.asked[:100]
    found = sum(len(list(_all(subject.query(*one)))) for one in some)
    return round(found / len(some) / len(subject.index), 5)


def _all(query: Query) -> Iterator[int]:
    while (found := query.next()) is not None:
        yield found[0]


def peers(subject: Subject, shape: str, count: int) -> dict[str, Any]:
    """Measure the alternatives (µs) on the same requests; best prices must agree with ours."""
    from bench.scans import SCANS, best, carried, end_of, in_order

    index = subject.index
    prices = [index.price(rank) for rank in range(count)]
    ranked = in_order(count, shape)
    asked = []
    for request, imp in subject.asked[:PEER_REQUESTS]:
        query = subject.query(request, imp)
        lowest = 0 if imp.pmp is not None else subject.lookups.floor_micros(
            imp.bidfloor, imp.bidfloorcur
        )  # fmt: skip
        found = query.next()
        price = None if found is None else index.price(found[0])
        asked.append((carried(query, imp), end_of(prices, lowest), query, price))
    taken = {}
    for name, make in SCANS.items():
        scan = make(ranked)
        times = []
        for values, end, query, price in asked:
            start = thread_time_ns()
            rank = best(scan, values, end, query)
            times.append((thread_time_ns() - start) / 1000)
            if price != (None if rank is None else index.price(rank)):
                raise AssertionError(f"{name} disagrees at {count} campaigns ({shape})")
        taken[name] = {"median": round(median(times), 1)}
    return {"requests": len(asked), "us": taken}


@command("match")
@click.option("--most", default=SIZES[-1], help="Campaigns.")
@click.option("--peers", "compared", default=10_000, help="Beside the others up to so many.")
@click.option("--rounds", default=ROUNDS)
def main(most: int, compared: int, rounds: int) -> dict[str, Any]:
    """Measure the matcher by itself, and beside what a Python user would use instead."""
    found: dict[str, Any] = {}
    with pinned(cores()[0]):
        for shape in campaigns.SHAPES:
            for count in SIZES:
                if count > most:
                    continue
                made = subject(shape, count)
                own = figures(made, rounds)
                if count <= compared:
                    own["peers"] = peers(made, shape, count)
                found[f"{shape} {count:,}"] = own
                click.echo(f"{shape} {count:,}: {json.dumps(own)}", err=True)
    method = {
        "requests": REQUESTS,
        "near": NEAR,
        "rounds": rounds,
        "flush_mib": FLUSH_BYTES >> 20,
    }
    return {"method": method, "figures": found}


if __name__ == "__main__":
    main()
