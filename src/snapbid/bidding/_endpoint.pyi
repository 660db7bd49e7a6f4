from typing_extensions import disjoint_base

from snapbid.base.http import Answer
from snapbid.bidding._admission import SspShare
from snapbid.bidding._outcome import Outcome
from snapbid.bidding._request_stats import RequestCounts
from snapbid.bidding.bid import Reason
from snapbid.bidding.endpoint import Bidding
from snapbid.bidding.snapshot import CatalogSnapshot

@disjoint_base
class EndpointCore:
    """The state of a bid endpoint, as the bid path uses it.

    `number` is the SSP's in the ledger; `bid_made` counts answers with a bid, `no_bids` those
    without, by reason. The rare steps are methods of the subclass (`endpoint.BidEndpoint`).
    """

    def __init__(
        self,
        ssp: str,
        number: int,
        snapshot: CatalogSnapshot,
        bidding: Bidding,
        request_stats: RequestCounts,
        share: SspShare,
        bid_made: Outcome,
        no_bids: dict[Reason, Outcome],
    ) -> None: ...
    @property
    def snapshot(self) -> CatalogSnapshot: ...
    def use(self, snapshot: CatalogSnapshot) -> None:
        """Switch to a snapshot."""

    def no_bid(self, reason: Reason) -> Answer:
        """Count and return the answer to a request that was not admitted."""
