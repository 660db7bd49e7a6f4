"""What a run must reach: `p99=50ms`, `errors=0.1%`, `bid-rate=20%`."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from snapbid.load.result import Judged, PhaseResult

DEFAULTS: Final = ("p99=100ms", "errors=0.1%")
STEADY: Final = 0.9  # of the first phase's bid rate
_UNITS: Final = {"us": 0.001, "ms": 1.0, "s": 1000.0}
_LATENCY: Final = re.compile(r"(p50|p90|p99|p99\.9|p99\.99|max)=([0-9.]+)(us|ms|s)", re.ASCII)
_SHARE: Final = re.compile(r"(errors|dropped|bid-rate)=([0-9.]+)%", re.ASCII)
RULE: Final = (
    "must be p50, p90, p99, p99.9, p99.99 or max with a time (p99=50ms), or errors, dropped or "
    "bid-rate with a percentage (errors=0.1%)"
)


class Objective(NamedTuple):
    """A bound: times in ms and shares in percent are at most it, the bid rate is at least it."""

    name: str
    bound: float
    text: str

    def judge(self, result: PhaseResult) -> Judged:
        found = _found(self.name, result)
        met = found >= self.bound if self.name == "bid-rate" else found <= self.bound
        return Judged(self.text, round(found, 4), met and result.offered > 0, result.name)


def parse(text: str) -> Objective:
    """Raises ValueError, saying the rule."""
    latency = _LATENCY.fullmatch(text)
    share = _SHARE.fullmatch(text)
    try:
        if latency:
            name, value, unit = latency.groups()
            return Objective(name, float(value) * _UNITS[unit], text)
        if share and float(share[2]) <= 100:
            return Objective(share[1], float(share[2]), text)
    except ValueError:
        pass
    raise ValueError(f"{RULE}, found {text!r}")


def steady(objectives: Sequence[Objective], first: PhaseResult) -> Objective | None:
    """That later phases bid as often as the first, nearly; None where a bid rate is asked for.

    A bidder that sheds load answers 204 in time, which no other objective sees.
    """
    if any(one.name == "bid-rate" for one in objectives):
        return None
    bound = round(STEADY * first.bid_percent, 3)
    return Objective("bid-rate", bound, f"bid-rate={bound:g}% ({STEADY:.0%} of {first.name}'s)")


def _found(name: str, result: PhaseResult) -> float:
    if name == "errors":
        return result.error_percent
    if name == "dropped":
        return 100 * result.kinds.get("dropped", 0) / max(1, result.offered)
    if name == "bid-rate":
        return result.bid_percent
    return result.latency_ms[name]
