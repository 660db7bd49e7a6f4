"""The path of the report (document 1), and its name in metrics."""

from typing import Final

PREFIX: Final = "/api/v1/ssp/"
SUFFIX: Final = "/report"

ROUTE: Final = "report"
"""Value of the label `route` of `snapbid_http_requests_total`."""


def report_path(ssp: str) -> str:
    """The path of an SSP's report."""
    return f"{PREFIX}{ssp}{SUFFIX}"


def ssp_of(path: str, suffix: str = SUFFIX) -> str | None:
    """Extract the SSP id from a path with this suffix; None for any other path."""
    if not path.startswith(PREFIX) or not path.endswith(suffix):
        return None
    ssp = path[len(PREFIX) : -len(suffix)]
    return ssp if ssp and "/" not in ssp else None


def is_report_path(path: str) -> bool:
    """Whether `ReportEndpoint` answers this path."""
    return ssp_of(path) is not None


def route_of(path: str) -> str | None:
    """The name under which requests to a path are counted; None for other rooms' paths."""
    return ROUTE if path.startswith(PREFIX) else None
