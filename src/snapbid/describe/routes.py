"""The paths at which the API is described, and the name under which their requests are counted."""

from typing import Final

DOCUMENT: Final = "/openapi.json"
DOCS: Final = "/docs"

ROUTES: Final = {DOCUMENT: "docs", DOCS: "docs"}
"""Path -> value of the label `route` of `snapbid_http_requests_total`."""
