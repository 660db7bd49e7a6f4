"""What budgets and caps cost, and pacing (`bench/limits_run.py`)."""

from collections.abc import Iterator
from typing import Any, Final

from bench.sections.parts import Figure, about, table

TEXT: Final = """
## Budgets and caps

`python -m bench.limits_run`: the additional cost of a bid if every campaign has a budget or
frequency caps, in microseconds of processor time of a worker (decode, decide, pack for Redis,
encode; without waiting and sockets) and of Redis; medians of the differences within a round, and
their quartiles.
"""

BATCHES: Final = """
{lanes} requests at the same time form batches of {bids_a_batch} bids, in which a bid without limits
costs Redis {plain[redis_us_a_bid]} µs.
"""

REFUSED: Final = """
What Redis takes while campaigns that were refused for want of budget wait, in per cent of a core:
with the heartbeats of so many workers, and the one reader that hears for them all which campaigns
have room again. No bids come meanwhile.

"""

PACING: Final = """
Two simulated days of uneven traffic with a daily budget of {budget_usd} USD, checked every
{step_s} s. Never was more used beyond the allowance (dashed) than {most_over_allowed_usd} USD.

![Spend of paced and unpaced campaigns over two days](results/pacing.svg)
"""

WHERE: Final = {
    "worker": "us_a_bid",
    "Redis": "redis_us_a_bid",
    "Redis, a bid alone": "redis_us_a_bid_alone",
}


def render(result: dict[str, Any]) -> str:
    rows = []
    cost = result["cost"]
    for title, own in cost["added"].items():
        added = (own[name] for name in WHERE.values())
        rows.append((title, *(f"{us:.1f} ({low:.1f} to {high:.1f})" for us, low, high in added)))
    batches = BATCHES.format(plain=cost["kinds"]["plain"], **cost)
    costs = table(("", *WHERE), rows)
    refused = _refused(result["refused"])
    return TEXT + about(result) + costs + batches + refused + PACING.format(**result["pacing"])


def _refused(measured: list[dict[str, Any]]) -> str:
    workers = sorted({each["workers"] for each in measured})
    rows: dict[int, list[str]] = {}
    for each in measured:
        rows.setdefault(each["campaigns"], []).append(f"{each['redis_percent']:.2f}")
    heads = ("refused campaigns", *(f"{n} worker{'s' if n > 1 else ''}" for n in workers))
    return REFUSED + table(heads, [(f"{many:,}", *own) for many, own in rows.items()])


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    for title, own in result["cost"]["added"].items():
        for where, name in WHERE.items():
            yield Figure(f"added by {title}, {where} µs", *own[name])
