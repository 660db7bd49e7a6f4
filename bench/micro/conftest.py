"""Fixtures of the micro benchmarks, which run on the first core while the stores use the second.

In each round a benchmark calls a function once for each of `REQUESTS` different inputs, so that
caches behave as in production; figures are later divided by the number of calls.
"""

import gc
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bench import ready
from bench.about import about
from bench.processes import cores, pinned
from bench.snapshot import answer, clicked, snapshot
from snapbid.bidding._bid_path import NoBid
from snapbid.bidding.response import response_writer
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.server.process import GC_THRESHOLD
from workload import requests

REQUESTS = 400
CAMPAIGNS = 10_000

Each = Callable[[Callable[..., Any], Iterable[Any]], None]

ready.check()
ORIGIN = about()  # before the first benchmark, since its load counts
snapshot_of = cache(snapshot)


def pytest_configure() -> None:
    ready.catch_signals()


@pytest.fixture(scope="session")
def store_core() -> int:
    """Return the core for the stores, which is not measured."""
    return cores()[1]


@pytest.fixture(scope="session", autouse=True)
def _as_a_worker(store_core: int) -> Iterator[None]:
    """Run on one core, with the garbage collector set as in a worker."""
    gc.set_threshold(*GC_THRESHOLD)
    with pinned(cores()[0]):
        yield


@pytest.fixture
def each(benchmark: Any) -> Each:
    """Return a function that measures `function`, called once with each of the arguments."""

    def run(function: Callable[..., Any], arguments: Iterable[Any]) -> None:
        calls = [item if isinstance(item, tuple) else (item,) for item in arguments]
        assert calls

        def once() -> None:
            for call in calls:
                function(*call)

        benchmark.extra_info["calls"] = len(calls)
        benchmark(once)

    return run


@pytest.fixture(scope="session")
def ten_thousand() -> CatalogSnapshot:
    return snapshot_of(CAMPAIGNS)


@pytest.fixture(scope="session")
def clicked_campaigns() -> CatalogSnapshot:
    return snapshot(CAMPAIGNS, clicked)


@pytest.fixture(scope="session")
def bids(ten_thousand: CatalogSnapshot) -> list[bytes]:
    """Bodies of about 1 KB, each answered with a bid."""
    return answered(ten_thousand, requests.make(REQUESTS + 50), bid=True)


@pytest.fixture(scope="session")
def no_bids(ten_thousand: CatalogSnapshot) -> list[bytes]:
    """Bodies of about 1 KB on which no campaign bids."""
    return answered(ten_thousand, requests.no_bids(requests.make(REQUESTS + 50)), bid=False)


@pytest.fixture(scope="session")
def today(ten_thousand: CatalogSnapshot) -> list[bytes]:
    """Bodies with the sizes of today's traffic (median 2.2 KB), each answered with a bid."""
    made = requests.grown(requests.make(REQUESTS + 50))
    return answered(ten_thousand, made, bid=True)


def answered(snapshot: CatalogSnapshot, made: list[requests.Request], *, bid: bool) -> list[bytes]:
    """Return the first REQUESTS bodies with (or without) a bid; most must be of this kind."""
    writer = response_writer("http://127.0.0.1:8000")
    chosen = [
        body
        for body in requests.encode(made)
        if isinstance(answer(writer, body, snapshot), NoBid) is not bid
    ]
    assert len(chosen) >= REQUESTS, f"only {len(chosen)} of {len(made)}"
    return chosen[:REQUESTS]


def pytest_benchmark_update_json(benchmarks: Any, output_json: dict[str, Any]) -> None:
    """Reduce pytest-benchmark's file (`--benchmark-json`) to microseconds per call."""
    figures = {}
    for measured in benchmarks:
        calls = measured.extra_info["calls"]
        spread = {
            name: getattr(measured.stats, name) / calls * 1e6 for name in ("median", "q1", "q3")
        }
        figures[measured.name.removeprefix("test_")] = {
            f"{name}_us": round(value, 3) for name, value in spread.items()
        }
    output_json.clear()
    output_json |= {
        "kind": "micro",
        "about": ORIGIN,
        "method": {"inputs": REQUESTS, "campaigns": CAMPAIGNS},
        "figures": figures,
    }


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")
