"""The section on bids beside event batches (`bench/together_run.py`)."""

from collections.abc import Iterator
from typing import Any, Final

from bench.sections.parts import Figure, about, spread_figure, table
from bench.socket_run import MOST_LATE

TEXT: Final = """
## Bids beside event batches

One worker pinned to a core, with {campaigns:,} campaigns. {bids_a_second:.0f} bid requests a second
leave on schedule for {seconds:g} s, and latency counts from the scheduled time; meanwhile each
sender sends batches of 600 events back to back to the same worker. {rounds} rounds, medians. Redis,
PostgreSQL and the client share the other core. "Late" is the share of bids that were answered 204
because their time had run out; above {most_late:.0%} the run ends.
"""
QUANTILES: Final = ("p50_ms", "p99_ms", "p999_ms")


def render(result: dict[str, Any]) -> str:
    rows = [
        (
            name,
            f"{own['events_a_second']['median']:,.0f}",
            *(f"{own[f'bid_{quantile}']['median']:.1f}" for quantile in QUANTILES),
            f"{own['late']['median']:.2%}" if "late" in own else "",
        )
        for name, own in result["figures"].items()
    ]
    heading = ("", "events/s", "bid p50 ms", "p99 ms", "p99.9 ms", "late")
    return (
        TEXT.format(most_late=MOST_LATE, **result["method"]) + about(result) + table(heading, rows)
    )


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    for name, own in result["figures"].items():
        yield spread_figure(f"{name}, bid p99 ms", own["bid_p99_ms"])
        if own["events_a_second"]["median"]:
            yield spread_figure(f"{name}, events/s", own["events_a_second"], less_is_better=False)
