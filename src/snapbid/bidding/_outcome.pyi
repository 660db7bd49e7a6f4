from typing import final

from snapbid.bidding._admission import AdmissionControl, SspShare
from snapbid.bidding._request_stats import RequestCounts
from snapbid.metrics import Counter, Histogram

@final
class Outcome:
    """An outcome of an SSP's bid requests: a bid, or a reason for none, answered with `status`.

    `counter` counts them; `seconds` is the histogram of all bid requests.
    """

    def __init__(
        self,
        counter: Counter,
        request_stats: RequestCounts,
        status: int,
        admission: AdmissionControl,
        share: SspShare,
        seconds: Histogram,
    ) -> None: ...
    def count(self) -> None:
        """Count an answer to a request that was not admitted."""

    def end(self, seconds: float) -> None:
        """Count the answer to an admitted request that took `seconds`, and free its place in the
        share.
        """
