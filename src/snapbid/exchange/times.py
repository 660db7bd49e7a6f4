"""How long bids take: the whole of each, and of one request in 16 the steps, which so cost nearly
nothing.
"""

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


class Times:
    """A worker's measurements; `whole` takes seconds."""

    def __init__(self, metrics: Metrics) -> None:
        self.whole = metrics.histogram("snapbid_bid_seconds", WHOLE_S).observe
        self._steps = {
            step: metrics.histogram("snapbid_bid_step_seconds", STEP_S, step=step)
            for step in ("decode", "match", "commit")
        }
        self._requests = 0

    def begin(self) -> "Steps | None":
        """What measures this request's steps; None where they are not measured."""
        self._requests = requests = self._requests + 1
        return None if requests % ONE_IN else Steps(self)

    def observe(self, step: str, seconds: float) -> None:
        self._steps[step].observe(seconds)


class Steps:
    """One request's."""

    __slots__ = ("_since", "_times")

    def __init__(self, times: Times) -> None:
        self._times = times
        self._since = perf_counter()

    def end(self, step: str) -> None:
        """The step that began where the one before ended is done."""
        now = perf_counter()
        self._times.observe(step, now - self._since)
        self._since = now
