"""The paths of the API documentation, and the label of their metric."""

from typing import Final

START: Final = "/"
"""Leads to DOCS."""
DOCUMENT: Final = "/openapi.json"
DOCS: Final = "/docs"
ATTRIBUTES: Final = f"{DOCS}/attributes"
ATTRIBUTES_DOCUMENT: Final = f"{DOCS}/attributes.json"

ROUTE: Final = "docs"
"""Value of the label `route` of `snapbid_http_requests_total`, for the pages' assets, too."""

ROUTES: Final = dict.fromkeys((START, DOCUMENT, DOCS, ATTRIBUTES, ATTRIBUTES_DOCUMENT), ROUTE)
"""Path -> that value."""
