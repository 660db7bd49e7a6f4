from typing import final

from snapbid.bidding._admission import AdmissionControl, Lane
from snapbid.bidding._request_stats import RequestCounts
from snapbid.metrics import Counter, Histogram

@final
class Outcome:
    """What becomes of an SSP's bid requests: a bid, or a reason for none, answered with `status`.

    `counter` counts them; `seconds` is of all bid requests.
    """

    def __init__(
        self,
        counter: Counter,
        request_stats: RequestCounts,
        status: int,
        admission: AdmissionControl,
        lane: Lane,
        seconds: Histogram,
    ) -> None: ...
    def count(self) -> None:
        """Count an answer to a request that was not admitted."""

    def end(self, seconds: float) -> None:
        """Count the answer to an admitted request after so long, which leaves its lane."""
