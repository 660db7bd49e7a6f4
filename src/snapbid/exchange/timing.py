"""How long bid requests take: every request as a whole, and the steps of one request in 16, so that
measuring costs next to nothing.
"""

from itertools import cycle
from time import perf_counter
from typing import Final

from snapbid.metrics import Metrics

ONE_IN: Final = 16
WHOLE_S: Final = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1,
    0.25, 1,
)  # fmt: skip
STEP_S: Final = (
    0.000002, 0.000005, 0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005,
    0.01, 0.02, 0.05, 0.1,
)  # fmt: skip


class BidTimings:
    """A worker's measurements; `whole` is of all requests' seconds.

    `is_timed` tells, once for each request, whether its steps are measured.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.whole = metrics.histogram("snapbid_bid_seconds", WHOLE_S)
        self.is_timed = cycle((*(ONE_IN - 1) * (False,), True)).__next__
        self._steps = {
            step: metrics.histogram("snapbid_bid_step_seconds", STEP_S, step=step)
            for step in ("decode", "match", "commit")
        }

    def observe(self, step: str, seconds: float) -> None:
        self._steps[step].observe(seconds)


class StepTimer:
    """Times the steps of one request."""

    __slots__ = ("_since", "_timings")

    def __init__(self, timings: BidTimings) -> None:
        self._timings = timings
        self._since = perf_counter()

    def end(self, step: str) -> None:
        """End a step, which began where the one before ended."""
        now = perf_counter()
        self._timings.observe(step, now - self._since)
        self._since = now
