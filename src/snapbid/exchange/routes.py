"""The path of the bid endpoint (document 2)."""

from typing import Final

BID_PREFIX: Final = "/api/v1/openrtb2/"
BID_SUFFIX: Final = "/bid"


def bid_path(ssp: str) -> str:
    """The path of an SSP's bid endpoint."""
    return f"{BID_PREFIX}{ssp}{BID_SUFFIX}"


def ssp_of(path: str) -> str | None:
    """The SSP id in the path of a bid endpoint, registered or not; None for any other path."""
    if not path.startswith(BID_PREFIX) or not path.endswith(BID_SUFFIX):
        return None
    ssp = path[len(BID_PREFIX) : -len(BID_SUFFIX)]
    return ssp if ssp and "/" not in ssp else None
