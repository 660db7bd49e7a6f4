"""The paths of server events (document 3), and their names in metrics."""

from typing import Final

SINGLE_PATH: Final = "/v3/s2s/event"
BATCH_PATH: Final = "/v3/s2s/batch"
PREFIX: Final = "/v3/"

ROUTES: Final = {SINGLE_PATH: "events_single", BATCH_PATH: "events_batch"}
"""Path -> value of the label `route` of `snapbid_http_requests_total`."""


def is_event_path(path: str) -> bool:
    """Whether `EventEndpoints` answers this path; unknown paths below `/v3/` get a 404 there."""
    return path.startswith(PREFIX)


def route_of(path: str) -> str | None:
    """The name under which requests to a path are counted; None for other rooms' paths."""
    return ROUTES.get(path)
