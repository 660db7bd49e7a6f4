"""Renders the tables of PRODUCTION.md's section on sizing from the committed results."""

import math
from pathlib import Path
from typing import Any, Final

from bench.sections.parts import table

PAGE: Final = Path(__file__).parent.parent / "src" / "snapbid" / "server" / "PRODUCTION.md"
BEGIN: Final = "<!-- from bench/results by `python -m bench.render` -->\n"
END: Final = "<!-- to here -->\n"
STEPS: Final = {
    "bid": "a bid",
    "bid-limited": "a bid with a budget and a cap",
    "no-bid": "a request without a bid",
    "win": "a notice",
}
TRAFFICS: Final = (5_000, 20_000, 100_000, 1_000_000)  # requests a second
BID_SHARE: Final = 0.3
WON_SHARE: Final = 0.08  # of the bids; each has a win and a billing notice
REMEMBERED_S: Final = 7_200  # the default of SNAPBID_BID_TTL
HALF: Final = 0.5  # of its capacity that a core is planned with

TRAFFIC_TEXT: Final = """
The table assumes that {bids:.0%} of the requests, of {request_bytes:,} bytes, get a bid with a
budget and a cap, that {won:.0%} of the bids are won and billed, that every core is half loaded,
and that bids are remembered for two hours. Each replica takes as much memory again.

"""


def render(results: dict[str, dict[str, Any]]) -> str:
    """The tables as Markdown: the cost of each step, and what some traffics need."""
    socket, ledger = results["socket"], results["ledger"]
    costs = {name: _cost(socket, name) for name in STEPS}
    steps = [
        (label, *(f"{us:.1f}" for us in costs[name]), f"{HALF * 1e6 / costs[name][0]:,.0f}")
        for name, label in STEPS.items()
    ]
    request_bytes = socket["method"]["request_bytes_median"]["bid-today"]
    bid_bytes = ledger["figures"]["filled"]["bytes"]
    traffics = [_traffic(qps, costs, request_bytes, bid_bytes) for qps in TRAFFICS]
    return (
        table(("", "worker, µs", "Redis, µs", "a second, for half a worker's core"), steps)
        + TRAFFIC_TEXT.format(bids=BID_SHARE, won=WON_SHARE, request_bytes=request_bytes)
        + table(("requests/s", "Gbit/s in", "workers", "Redis primaries", "GB in Redis"), traffics)
    )


def write(results: dict[str, dict[str, Any]]) -> None:
    """Replace the tables on the page."""
    page = PAGE.read_text()
    before, after = page.index(BEGIN) + len(BEGIN), page.index(END)
    PAGE.write_text(page[:before] + render(results) + page[after:])


def _cost(socket: dict[str, Any], name: str) -> tuple[float, float]:
    """The processor time of a saturated worker, and of Redis when workers are half loaded.

    Redis' is greater there than under saturated workers, since batches are smaller.
    """
    worker = socket["figures"][name]["processor_us"]["median"]
    return worker, socket["half"][name]["redis_us"]["median"]


def _traffic(
    qps: int, costs: dict[str, tuple[float, float]], request_bytes: int, bid_bytes: float
) -> tuple[str, ...]:
    bids = qps * BID_SHARE
    counts = {"bid-limited": bids, "no-bid": qps - bids, "win": 2 * WON_SHARE * bids}
    worker, redis = (
        sum(count * costs[name][part] for name, count in counts.items()) / 1e6 for part in (0, 1)
    )
    return (
        f"{qps:,}",
        f"{8 * qps * request_bytes / 1e9:.2f}",
        f"{math.ceil(worker / HALF):,}",
        f"{math.ceil(redis / HALF):,}",
        f"{bids * REMEMBERED_S * bid_bytes / 1e9:,.1f}",
    )
