"""Timings of bid requests: the total of each, and the steps of a sample."""

from typing import Final

from snapbid.metrics import Metrics

WHOLE_S: Final = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1,
    0.25, 1,
)  # fmt: skip
STEP_S: Final = (
    0.000002, 0.000005, 0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005,
    0.01, 0.02, 0.05, 0.1,
)  # fmt: skip


class BidTimings:
    """A worker's histograms: `whole` has the seconds of every request, `steps` (decoding, matching,
    committing) those of one request in 16, so that measuring costs next to nothing.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.whole = metrics.histogram("snapbid_bid_seconds", WHOLE_S)
        self.steps = tuple(
            metrics.histogram("snapbid_bid_step_seconds", STEP_S, step=step)
            for step in ("decode", "match", "commit")
        )
