"""The section on the drain while counters change all the time (`bench/drain_run.py`)."""

from collections.abc import Iterator
from typing import Any, Final

from bench.sections.parts import Figure, about, table

TEXT: Final = """
## The drain under a steady load

`python -m bench.drain_run`: {a_second:,} counters over {shards} shards change each second for
{seconds} s, either all counters or some in turn. One `snapbid drain` carries them, or two share
the shards. A lag is the time from a change to the commit that includes it. Processor time is per
changed counter: of the drains, of all of PostgreSQL, and of Redis including the changes. The
client that makes the changes runs on the same cores; if fewer counters changed than planned, it
got too little processor time.
"""


def render(result: dict[str, Any]) -> str:
    rows = [
        (
            name,
            f"{own['changed_a_second']:,}",
            *(f"{own[f'{lag}_lag_s']:.2f}" for lag in ("median", "greatest")),
            *(f"{own[f'{part}_us']:.1f}" for part in ("drain", "postgres", "redis")),
        )
        for name, own in result["figures"].items()
    ]
    own_heading = "changed a second", "median lag, s", "greatest, s"
    heading = ("", *own_heading, "drains, µs", "PostgreSQL, µs", "Redis, µs")
    return TEXT.format(**result["method"]) + about(result) + table(heading, rows)


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    for name, own in result["figures"].items():
        yield Figure(f"{name}, median lag, s", own["median_lag_s"])
        yield Figure(f"{name}, greatest lag, s", own["greatest_lag_s"])
        for part in ("drain", "postgres", "redis"):
            yield Figure(f"{name}, {part}, µs", own[f"{part}_us"])
