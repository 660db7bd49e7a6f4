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
}
TRAFFICS: Final = (5_000, 20_000, 100_000, 1_000_000)  # requests a second
BID_SHARE: Final = 0.3
WON_SHARE: Final = 0.08  # of the bids; each has a win and a billing notice
TTL_S: Final = 7_200  # the default of SNAPBID_BID_TTL
TIME_BUCKET_S: Final = 1_800  # ledger/scripts/time_buckets.lua
APART_S: Final = 600  # ledger/scripts/heartbeat.lua
KEPT_S: Final = TTL_S + 2 * TIME_BUCKET_S + APART_S  # the longest life of a record
HOLD_S: Final = 60 + 900 + 60  # the longest life of a user's hold: ledger/scripts/caps.lua
IMPRESSION_S: Final = 3_600 + 60  # of a user's impressions, for a cap of an hour
LIMITS_BYTES: Final = 24  # more in a record with a budget and a cap: ledger/scripts/records.lua
USER_BYTES: Final = 250  # of a user's hold, or impression, of a campaign
HALF: Final = 0.5  # of its capacity that a core is planned with

TRAFFIC_TEXT: Final = """
The table assumes that {bids:.0%} of the requests, of {request_bytes:,} bytes, get a bid with a
budget and a cap, that {won:.0%} of the bids are won and billed, and that every core is half loaded.
Each notice counts as a bid with a budget and a cap.

With several primaries a bid costs Redis more, as the batches of each shrink:
{three:.1f} times as much with 3, {eight:.1f} times with 8
([measured](../../../bench/README.md#a-plain-redis-and-clusters) with as many bids at once). The
table takes the cost on one Redis, so more than one primary is a lower bound.

Memory is what is needed at most. Redis keeps a bid's record, of {record_bytes:.0f} bytes, for up to
{kept:,} s: {ttl:,} s (`SNAPBID_BID_TTL`), {bucket:,} s in which records that expire together are
collected, {bucket:,} s of reserve, and {apart} s over which expiries are spread. If each bid is for
another user, a capped user's hold takes {user_bytes:.0f} bytes for up to {hold:,} s, and the
impression of one that is won as much for {impression:,} s (a cap of an hour). Each replica takes as
much memory again.

"""


def render(results: dict[str, dict[str, Any]]) -> str:
    """Render the tables as Markdown: the cost of each step, and what some rates of traffic need."""
    socket = results["socket"]
    costs = {name: _cost(socket, name) for name in STEPS}
    steps = [
        (label, *(f"{us:.1f}" for us in costs[name]), f"{HALF * 1e6 / costs[name][0]:,.0f}")
        for name, label in STEPS.items()
    ]
    request_bytes = socket["method"]["request_bytes_median"]["bid-today"]
    record_bytes, user_bytes = _memory(results["ledger"]["figures"]["filled"])
    byte_s = record_bytes * KEPT_S + user_bytes * (HOLD_S + WON_SHARE * IMPRESSION_S)
    traffics = [_traffic(qps, costs, request_bytes, byte_s) for qps in TRAFFICS]
    text = TRAFFIC_TEXT.format(
        bids=BID_SHARE,
        won=WON_SHARE,
        request_bytes=request_bytes,
        record_bytes=record_bytes,
        user_bytes=user_bytes,
        kept=KEPT_S,
        ttl=TTL_S,
        bucket=TIME_BUCKET_S,
        apart=APART_S,
        hold=HOLD_S,
        impression=IMPRESSION_S,
        **_more_on_clusters(results["primaries"]),
    )
    return (
        table(("", "worker, µs", "Redis, µs", "a second, for half a worker's core"), steps)
        + text
        + table(
            ("requests/s", "Gbit/s in", "workers", "Redis primaries", "GB in Redis, at most"),
            traffics,
        )
    )


def _memory(filled: dict[str, float]) -> tuple[float, float]:
    """Return the bytes of a record with a budget and a cap, and of a user's hold.

    They are estimated from a plain record if the ledger's run did not measure them.
    """
    reckoned = filled["bytes"] + LIMITS_BYTES
    return filled.get("limited_bytes", reckoned), filled.get("hold_bytes", USER_BYTES)


def _more_on_clusters(primaries: dict[str, Any]) -> dict[str, float]:
    """Return a bid's cost in Redis on 3 and 8 primaries, as a multiple of that on one Redis."""
    own = primaries["figures"]["a bid with a budget"]
    us = {store: figure["redis_us"]["median"] for store, figure in own.items()}
    one = us["a plain Redis"]
    return {"three": us["a cluster of 3"] / one, "eight": us["a cluster of 8"] / one}


def write(results: dict[str, dict[str, Any]]) -> None:
    """Replace the tables on the page."""
    page = PAGE.read_text()
    before, after = page.index(BEGIN) + len(BEGIN), page.index(END)
    PAGE.write_text(page[:before] + render(results) + page[after:])


def _cost(socket: dict[str, Any], name: str) -> tuple[float, float]:
    """Return the processor times of a saturated worker, and of Redis with half-loaded workers.

    Redis uses more time per request with half-loaded workers, since batches are smaller.
    """
    worker = socket["figures"][name]["processor_us"]["median"]
    return worker, socket["half"][name]["redis_us"]["median"]


def _traffic(
    qps: int, costs: dict[str, tuple[float, float]], request_bytes: int, byte_s: float
) -> tuple[str, ...]:
    bids = qps * BID_SHARE
    counts = {"bid-limited": bids * (1 + 2 * WON_SHARE), "no-bid": qps - bids}
    worker, redis = (
        sum(count * costs[name][part] for name, count in counts.items()) / 1e6 for part in (0, 1)
    )
    primaries = math.ceil(redis / HALF)
    return (
        f"{qps:,}",
        f"{8 * qps * request_bytes / 1e9:.2f}",
        f"{math.ceil(worker / HALF):,}",
        f"at least {primaries:,}" if primaries > 1 else "1",
        f"{bids * byte_s / 1e9:,.1f}",
    )
