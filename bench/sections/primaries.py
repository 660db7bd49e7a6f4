"""The section on bids and notices on a plain Redis and on clusters (`bench/primaries_run.py`)."""

from collections.abc import Iterator
from typing import Any, Final

from bench.sections.parts import Figure, about, spread_figure, table

TEXT: Final = """
## A plain Redis and clusters

`python -m bench.primaries_run`: processor time of the ledger's part of a worker, and of all Redis
nodes, per bid or notice, {lanes} at once in all; medians of {rounds} rounds of {turn:,}, with
quartiles. The ledger has a shard on each primary, so the batches of a shard shrink as primaries are
added. The nodes have no replicas and share a core.
"""


def render(result: dict[str, Any]) -> str:
    rows = [
        (f"{kind}, {store}", _text(own["worker_us"]), _text(own["redis_us"]))
        for kind, stores in result["figures"].items()
        for store, own in stores.items()
    ]
    heading = ("", "worker, µs", "Redis, µs")
    return TEXT.format(**result["method"]) + about(result) + table(heading, rows)


def _text(own: dict[str, float]) -> str:
    return f"{own['median']:.1f} ({own['q1']:.1f} to {own['q3']:.1f})"


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    for kind, stores in result["figures"].items():
        for store, own in stores.items():
            yield spread_figure(f"{kind}, {store}, worker µs", own["worker_us"])
            yield spread_figure(f"{kind}, {store}, Redis µs", own["redis_us"])
