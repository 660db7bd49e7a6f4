"""Bids beside event batches (`bench/together_run.py`)."""

from collections.abc import Iterator
from typing import Any, Final

from bench.sections.parts import Figure, about, table

TEXT: Final = """
## Bids beside event batches

One worker pinned to one core, {campaigns:,} campaigns; {bids_a_second:.0f} bid requests a second
for {seconds:.0f} s on a schedule that waits for nobody, latencies from the scheduled moment; beside
them so many senders, each of which sends batches of 600 events one after the other on the same
worker. Redis, PostgreSQL and the client share the other core.
"""
QUANTILES: Final = ("p50", "p99", "p999")


def render(result: dict[str, Any]) -> str:
    rows = [
        (name, f"{own['events_a_second']:,}", *(f"{own[f'bid_{q}_ms']:.1f}" for q in QUANTILES))
        for name, own in result["figures"].items()
    ]
    heading = ("", "events/s", "bid p50 ms", "p99 ms", "p99.9 ms")
    return TEXT.format(**result["method"]) + about(result) + table(heading, rows)


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    for name, own in result["figures"].items():
        yield Figure(f"{name}, bid p99 ms", own["bid_p99_ms"])
