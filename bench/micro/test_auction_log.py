"""The cost of the auction log for a bid in the worker: only the calls that the bid endpoint makes.

`test_asgi_bid_logged` is a whole call with the log, to compare with `test_asgi_bid`.
"""

from pathlib import Path

from bench.logged import ChunksOnly
from bench.micro.conftest import Each
from bench.snapshot import NOW_MS, SSP
from snapbid.bidding._bid_path import NoBid, propose
from snapbid.bidding.request import BidRequest, decode
from snapbid.bidding.response import Bid
from snapbid.bidding.snapshot import CatalogSnapshot


def test_logging_a_bid(
    each: Each, ten_thousand: CatalogSnapshot, bids: list[bytes], scratch: Path
) -> None:
    log = ChunksOnly(scratch / "rows")
    rows, source = log.rows, (SSP, "bench")
    answers = []
    for body in bids:
        request = decode(body)
        proposal = propose(request, SSP, ten_thousand, NOW_MS)
        assert not isinstance(proposal, NoBid)
        answers.append((request, proposal.bids))

    def write(request: BidRequest, own: list[Bid]) -> None:
        began_ms = rows.begin()
        rows.bids(began_ms, source, request, own, "USD", False)
        rows.end()

    each(write, answers)
    log.close()
    assert not rows.lost
