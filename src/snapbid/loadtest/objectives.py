"""The objectives of a run: `p99=50ms`, `errors=0.1%`, `bid-rate=20%`."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from snapbid.loadtest.result import ObjectiveResult, PhaseResult
from snapbid.loadtest.tally import BID, DROPPED, Tally

NO_ERRORS: Final = "errors=0.1%"
DEFAULTS: Final = ("p99=100ms", NO_ERRORS)
STEADY: Final = 0.9  # of the bid rate of the first phase that held
_MINIMA: Final = ("bids", "bid-rate")
_UNITS: Final = {"us": 0.001, "ms": 1.0, "s": 1000.0}
_LATENCY: Final = re.compile(r"(p50|p90|p99|p99\.9|p99\.99|max)=([0-9.]+)(us|ms|s)", re.ASCII)
_SHARE: Final = re.compile(r"(errors|dropped|bid-rate)=([0-9.]+)%", re.ASCII)
RULE: Final = (
    "must be p50, p90, p99, p99.9, p99.99 or max with a time (p99=50ms), or errors, dropped or "
    "bid-rate with a percentage (errors=0.1%)"
)


class Objective(NamedTuple):
    """A maximum (ms or percent), or a minimum for the number or the percentage of bids.

    A minimum does not apply to a phase in which all requests are faulty on purpose.
    """

    name: str
    bound: float
    text: str

    def judge(self, phase: str, tally: Tally) -> ObjectiveResult:
        value = _value(self.name, tally)
        if self.name in _MINIMA:
            met = value >= self.bound or not tally.intact
        else:
            met = value <= self.bound
        return ObjectiveResult(self.text, round(value, 4), met and tally.offered > 0, phase)


SOME_BID: Final = Objective("bids", 1, "at least one bid, since no bid-rate is given")


def parse(text: str) -> Objective:
    """Parse an objective. Raises ValueError, listing the allowed forms."""
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


def complete(objectives: Sequence[Objective]) -> list[Objective]:
    """Add defaults to the objectives: `NO_ERRORS` for errors, and `SOME_BID` for the bid rate.

    Without them, a bidder that refuses all requests at once would meet any bound on latency, and
    one that answers only 204 would meet all other objectives.
    """
    names = {objective.name for objective in objectives}
    errors = [] if "errors" in names else [parse(NO_ERRORS)]
    return [*objectives, *errors, *([] if "bid-rate" in names else [SOME_BID])]


def steady(objectives: Sequence[Objective], held: PhaseResult) -> list[Objective]:
    """Replace `SOME_BID` with a minimum relative to the bid rate of `held`, a phase that passed.

    A bidder that sheds load answers 204 in time, which no other objective detects.
    """
    bound = round(STEADY * held.bid_percent, 3)
    near = Objective("bid-rate", bound, f"bid-rate={bound:g}% ({STEADY:.0%} of {held.name}'s)")
    return [near if each == SOME_BID else each for each in objectives]


def judge(
    objectives: Sequence[Objective], phase: str, tally: Tally
) -> tuple[list[ObjectiveResult], str]:
    """Judge a phase by its counts; also return the missed objectives in words, "" if none."""
    judged = [objective.judge(phase, tally) for objective in objectives]
    missed = (f"{each.objective} (found {each.value:g})" for each in judged if not each.met)
    return judged, "; ".join(missed)


def _value(name: str, tally: Tally) -> float:
    if name == "errors":
        return tally.error_percent
    if name == "dropped":
        return 100 * tally.kinds[DROPPED] / max(1, tally.offered)
    if name == "bid-rate":
        return tally.bid_percent
    if name == "bids":
        return tally.kinds[BID]
    return tally.histogram.latencies_ms()[name]
