"""Paths of the bid and notice endpoints (document 2), and their names in metrics.

POST /api/v1/openrtb2/{sspId}/bid
GET  /rtb/win   /rtb/bill   /rtb/loss   and the same paths below /n/TOKEN (signing.py)
"""

from typing import Final

from snapbid.ledger.bids.records import BILLING, LOSS, WIN

BID_PREFIX: Final = "/api/v1/openrtb2/"
BID_SUFFIX: Final = "/bid"
BID_ROUTE: Final = "bid"

WIN_PATH: Final = "/rtb/win"
BILLING_PATH: Final = "/rtb/bill"
LOSS_PATH: Final = "/rtb/loss"
SIGNED_PREFIX: Final = "/n/"
NOTICE_KINDS: Final = {WIN_PATH: WIN, BILLING_PATH: BILLING, LOSS_PATH: LOSS}
"""The ledger's kind of notice for each path."""
NOTICE_NAMES: Final = {WIN: "win", BILLING: "billing", LOSS: "loss"}
"""The label `kind` in metrics for each kind of notice."""

ROUTES: Final = {path: NOTICE_NAMES[kind] for path, kind in NOTICE_KINDS.items()}
"""The label `route` in metrics for each path of a notice."""


def bid_path(ssp: str) -> str:
    """Return the path of an SSP's bid endpoint."""
    return f"{BID_PREFIX}{ssp}{BID_SUFFIX}"


def ssp_of(path: str) -> str | None:
    """Return the SSP id in a bid endpoint's path, registered or not; None for other paths."""
    if not path.startswith(BID_PREFIX) or not path.endswith(BID_SUFFIX):
        return None
    ssp = path[len(BID_PREFIX) : -len(BID_SUFFIX)]
    return ssp if ssp and "/" not in ssp else None
