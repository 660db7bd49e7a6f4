"""What metrics there are: names, labels and help texts."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["counter", "histogram"]

OVERFLOW = "snapbid_metrics_overflow_total"


class Definition(msgspec.Struct, frozen=True):
    """What a metric is called and means. `resolution`: parts per unit in a histogram's sum."""

    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    resolution: int = 1_000_000


DEFINITIONS: dict[str, Definition] = {
    "snapbid_http_requests_total": Definition(
        "counter", "HTTP requests answered, by route and status.", ("route", "status")
    ),
    "snapbid_bid_requests_total": Definition(
        "counter",
        "Bid requests answered, by SSP and outcome: bid, or why there was none.",
        ("outcome", "ssp"),
    ),
    "snapbid_notices_total": Definition(
        "counter",
        "Win, billing and loss notices, by what became of them.",
        ("kind", "outcome"),
    ),
    "snapbid_bids_total": Definition(
        "counter", "Bids in the answers, by media type of the creative.", ("media",)
    ),
    "snapbid_user_data_withheld_total": Definition(
        "counter", "Bid requests decided without user data, as their privacy signals ask."
    ),
    "snapbid_bid_seconds": Definition(
        "histogram", "Time from a bid request's arrival to its answer, in seconds."
    ),
    "snapbid_catalog_swaps_total": Definition(
        "counter", "Campaign snapshots taken up by workers, by result.", ("result",)
    ),
    "snapbid_catalog_build_seconds": Definition(
        "histogram", "Time to build a campaign snapshot, in seconds."
    ),
    "snapbid_event_requests_total": Definition(
        "counter",
        "Requests of the server events endpoints, by endpoint and status.",
        ("endpoint", "status"),
    ),
    "snapbid_events_accepted_total": Definition("counter", "Events accepted with a 202."),
    "snapbid_events_stored_total": Definition(
        "counter", "Events that the drain stored, repeats not counted."
    ),
    "snapbid_event_conflicts_total": Definition(
        "counter", "Other payloads under the id of an event that was stored before."
    ),
    "snapbid_event_dead_letters_total": Definition("counter", "Events that cannot be stored."),
    "snapbid_event_lag_seconds": Definition(
        "histogram", "Time from an event's acceptance to its storing."
    ),
    "snapbid_drain_rounds_total": Definition("counter", "Rounds of the drain that carried."),
    "snapbid_drain_counters_total": Definition("counter", "Changed counters that it carried."),
    "snapbid_drain_lag_seconds": Definition(
        "histogram", "Age of the oldest count in such a round when it was in the warehouse."
    ),
    OVERFLOW: Definition("counter", "Increments of metrics beyond the limit of entries."),
}


def definition_of(kind: Kind, name: str, labels: Mapping[str, object]) -> Definition:
    """Give the definition; raises ValueError for a name or labels that `DEFINITIONS` lacks."""
    definition = DEFINITIONS.get(name)
    if definition is None or definition.kind != kind:
        raise ValueError(f"{name}: no such {kind} in DEFINITIONS")
    if labels.keys() != set(definition.labels):
        raise ValueError(f"{name}: the labels are {definition.labels}, not {tuple(labels)}")
    return definition
