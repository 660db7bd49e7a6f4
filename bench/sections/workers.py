"""The section on two workers beside one (`bench/workers_run.py`)."""

from collections.abc import Iterator
from typing import Any, Final

from bench.sections.parts import Figure, about, spread_figure, table

TEXT: Final = """
## Two workers

`python -m bench.workers_run`: a server with one worker and a server with two, both on the same
core, each with stores of its own, saturated with bids in turns over {connections} connections;
medians of {rounds} rounds of {seconds:g} s, with quartiles. Two are no faster than one here. The
last line shows their cost apart from needing a core each: their own processor time, and that of
Redis, whose batches get smaller.
"""
DIGITS: Final = {"bids_per_s": 0, "worker_us": 1, "redis_us": 1}
TIMES: Final = ("worker_us", "redis_us")


def render(result: dict[str, Any]) -> str:
    rows = [
        (f"workers: {workers}", *(_text(own[name], digits) for name, digits in DIGITS.items()))
        for workers, own in result["figures"].items()
    ]
    rows.append(("two to one", *(_text(result["ratios"][name], 2) for name in DIGITS)))
    heading = ("", "bids/s", "workers, µs a bid", "Redis, µs a bid")
    return TEXT.format(**result["method"]) + about(result) + table(heading, rows)


def _text(own: dict[str, float], digits: int) -> str:
    return f"{own['median']:,.{digits}f} ({own['q1']:,.{digits}f} to {own['q3']:,.{digits}f})"


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    for workers, own in result["figures"].items():
        for name in TIMES:
            yield spread_figure(f"{workers} workers, {name}", own[name])
    for name in TIMES:
        yield spread_figure(f"two workers to one, {name}", result["ratios"][name])
