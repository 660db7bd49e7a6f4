"""The paths of the API documentation, and their label in metrics."""

from typing import Final

START: Final = "/"
"""The root path, which redirects to DOCS."""
DOCUMENT: Final = "/openapi.json"
DOCS: Final = "/docs"
ATTRIBUTES: Final = f"{DOCS}/attributes"
ATTRIBUTES_DOCUMENT: Final = f"{DOCS}/attributes.json"

ROUTE: Final = "docs"
"""The label `route` of `snapbid_http_requests_total`, also for the pages' assets."""

ROUTES: Final = dict.fromkeys((START, DOCUMENT, DOCS, ATTRIBUTES, ATTRIBUTES_DOCUMENT), ROUTE)
"""The label for each path."""
