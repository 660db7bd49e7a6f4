"""The paths at which the API is described, and the name under which their requests are counted."""

from typing import Final

START: Final = "/"
"""Leads to DOCS."""
DOCUMENT: Final = "/openapi.json"
DOCS: Final = "/docs"
BIDDING: Final = f"{DOCS}/bidding"
REPORTS: Final = f"{DOCS}/reports"
EVENTS: Final = f"{DOCS}/events"
ATTRIBUTES: Final = f"{DOCS}/attributes"
SEARCH: Final = f"{DOCS}/search.json"

ROUTE: Final = "docs"
"""Value of the label `route` of `snapbid_http_requests_total`, for the pages' assets, too."""

ROUTES: Final = dict.fromkeys(
    (START, DOCUMENT, DOCS, BIDDING, REPORTS, EVENTS, ATTRIBUTES, SEARCH), ROUTE
)
"""Path -> that value."""
