"""The objectives of a run: `p99=50ms`, `errors=0.1%`, `bid-rate=20%`."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from snapbid.loadtest.result import ObjectiveResult, PhaseResult

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
    """A bound: a maximum in ms or percent, or for the bid rate a minimum in percent."""

    name: str
    bound: float
    text: str

    def judge(self, result: PhaseResult) -> ObjectiveResult:
        value = _value(self.name, result)
        met = value >= self.bound if self.name == "bid-rate" else value <= self.bound
        return ObjectiveResult(self.text, round(value, 4), met and result.offered > 0, result.name)


def parse(text: str) -> Objective:
    """Parse an objective. Raises ValueError, naming the rule."""
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
    """Return an objective that requires later phases to stay near the first phase's bid rate.

    None if the objectives already bound the bid rate. A bidder that sheds load answers 204 in time,
    which no other objective detects.
    """
    if any(objective.name == "bid-rate" for objective in objectives):
        return None
    bound = round(STEADY * first.bid_percent, 3)
    return Objective("bid-rate", bound, f"bid-rate={bound:g}% ({STEADY:.0%} of {first.name}'s)")


def _value(name: str, result: PhaseResult) -> float:
    if name == "errors":
        return result.error_percent
    if name == "dropped":
        return 100 * result.kinds.get("dropped", 0) / max(1, result.offered)
    if name == "bid-rate":
        return result.bid_percent
    return result.latency_ms[name]
