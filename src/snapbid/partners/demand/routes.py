"""The path of the demand signals, and the label of their metric."""

from typing import Final

from snapbid.report.routes import PREFIX, ssp_of

SUFFIX: Final = "/demand"

ROUTE: Final = "demand"
"""Value of the label `route` of `snapbid_http_requests_total`."""


def demand_path(ssp: str) -> str:
    """Return the path of an SSP's demand signals."""
    return f"{PREFIX}{ssp}{SUFFIX}"


def is_demand_path(path: str) -> bool:
    """Return whether `DemandEndpoint` answers this path."""
    return ssp_of(path, SUFFIX) is not None
