"""The section on the cost of budgets and caps, and on pacing (`bench/limits_run.py`)."""

from collections.abc import Iterator
from typing import Any, Final

from bench.sections.parts import Figure, about, table

PLOT: Final = "pacing.svg"
WIDTH, HEIGHT, LEFT, BOTTOM = 900, 420, 60, 40
COLOURS: Final = ("#1b6ca8", "#c8553d", "#4a7c59")

TEXT: Final = """
## Budgets and caps

`python -m bench.limits_run`: the additional cost of a bid if every campaign has a budget or
frequency caps, in microseconds of processor time of a worker (decode, decide, pack for Redis,
encode; without waiting and sockets) and of Redis; medians of the differences within a round, and
their quartiles, unless it has too few rounds.
"""

BATCHES: Final = """
{lanes} requests at the same time form batches of {bids_a_batch} bids, in which a bid without limits
costs Redis {plain[redis_us_a_bid]} µs.
"""

REFUSED: Final = """
Redis' load, in per cent of a core, while campaigns that were refused for want of budget wait: the
heartbeats of the workers, and the one reader that learns for all of them which campaigns have
headroom again. No bids arrive meanwhile.

"""

PACING: Final = """
Two simulated days of uneven traffic with a daily budget of {budget_usd} USD, checked every
{step_s} s. The spend never exceeded the allowance (dashed) by more than {most_over_allowed_usd}
USD.

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
        rows.append((title, *(_text(*us) for us in added)))
    batches = BATCHES.format(plain=cost["kinds"]["plain"], **cost)
    costs = table(("", *WHERE), rows)
    refused = _refused(result["refused"])
    return TEXT + about(result) + costs + batches + refused + PACING.format(**result["pacing"])


def _text(us: float, *quartiles: float) -> str:
    """Format a figure and its quartiles; a figure of only a few rounds has none."""
    own = " to ".join(f"{quartile:.1f}" for quartile in quartiles)
    return f"{us:.1f} ({own})" if own else f"{us:.1f}"


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


# -- the plot -------------------------------------------------------------------------------------


def plot(pacing: dict[str, Any]) -> str:
    """Render the spend (solid) and the allowance (dashed) over two days as SVG."""
    budget = pacing["budget_usd"]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *_axes(budget),
    ]
    for number, (name, curve) in enumerate(pacing["used_usd"].items()):
        colour = COLOURS[number]
        allowed = pacing["allowed_usd"][name]
        if name != "asap":
            parts.append(_line(allowed, budget, colour, 'stroke-dasharray="4 3" opacity="0.6"'))
        parts.append(_line(curve, budget, colour, ""))
        parts.append(f'<text x="{LEFT + 12}" y="{24 + 16 * number}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _axes(budget: float) -> Iterator[str]:
    for hour in range(0, 49, 6):
        x = LEFT + hour / 48 * (WIDTH - LEFT - 20)
        yield f'<line x1="{x:.1f}" y1="10" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#ddd"/>'
        yield (f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
               f"{hour % 24:02d}:00</text>")  # fmt: skip
    for part in range(5):
        y = _y(budget * part / 4, budget)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - 20}" y2="{y:.1f}" stroke="#ddd"/>'
        yield (f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
               f"{budget * part / 4:.2f}</text>")  # fmt: skip


def _y(value: float, budget: float) -> float:
    return HEIGHT - BOTTOM - value / budget * (HEIGHT - BOTTOM - 10)


def _line(curve: list[float], budget: float, colour: str, more: str) -> str:
    wide = (WIDTH - LEFT - 20) / (len(curve) - 1)
    points = " ".join(
        f"{LEFT + place * wide:.1f},{_y(value, budget):.1f}" for place, value in enumerate(curve)
    )
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" {more}/>'
