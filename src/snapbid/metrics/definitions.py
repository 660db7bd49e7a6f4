"""All metrics: names, labels and help texts."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["counter", "histogram", "gauge"]

OVERFLOW = "snapbid_metrics_overflow_total"


class Definition(msgspec.Struct, frozen=True):
    """A metric. `resolution`: parts per unit in a histogram's sum."""

    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    resolution: int = 1_000_000


# What no process counts: the private port's server reads it, every few seconds, from Redis, the
# warehouse and files. What it cannot read is left out of the page. With several machines on the
# same stores each tells of all, so take the maximum over instances.
WATCHED: dict[str, Definition] = {
    "snapbid_store_up": Definition(
        "gauge", "Whether a store answered when last looked at: 1 or 0.", ("store",)
    ),
    "snapbid_store_risk": Definition(
        "gauge",
        "Whether a store may lose in this way what it acknowledges, or takes no more: 1 or 0.",
        ("risk", "store"),
    ),
    "snapbid_ssp_bids_total": Definition(
        "counter", "Answers with bids as the ledger counts them, over all machines.", ("ssp",)
    ),
    "snapbid_ssp_wins_total": Definition(
        "counter", "Wins as the ledger counts them, over all machines.", ("ssp",)
    ),
    "snapbid_ssp_impressions_total": Definition(
        "counter", "Billing notices as the ledger counts them, over all machines.", ("ssp",)
    ),
    "snapbid_ssp_spend_usd_total": Definition(
        "counter", "Cost of the wins in USD, over all machines.", ("ssp",)
    ),
    "snapbid_ssp_answers_share": Definition(
        "gauge",
        "Share of an SSP's requests that this machine answered late, or that failed (overload,"
        " store_down, internal), by kind and window: 1m, 15m.",
        ("kind", "ssp", "window"),
    ),
    "snapbid_ssp_guard": Definition(
        "gauge",
        "Whether both shares of an SSP together are near what exchanges throttle for (15%), in"
        " either window: 1 from 5% on, 2 from 10% on, else 0.",
        ("ssp",),
    ),
    "snapbid_campaign_spent_usd": Definition(
        "gauge",
        "Spend of the 200 budgeted campaigns that spend most, in USD, by window: day, total.",
        ("campaign", "window"),
    ),
    "snapbid_campaign_held_usd": Definition(
        "gauge", "Cost in USD of their bids that are neither won nor lost yet.", ("campaign",)
    ),
    "snapbid_campaign_budget_usd": Definition(
        "gauge", "Their budgets in USD, by window: day, total.", ("campaign", "window")
    ),
    "snapbid_budget_state": Definition(
        "gauge",
        "How many of them are open, paced (waiting for the day to go on) or spent.",
        ("state",),
    ),
    "snapbid_drain_waiting": Definition(
        "gauge", "Changed counters that wait for the drain, over all shards."
    ),
    "snapbid_drain_behind_seconds": Definition(
        "gauge", "Age of the oldest count that may wait for the drain; 0 where none waits."
    ),
    "snapbid_ledger_shards": Definition(
        "gauge",
        "Shards of the ledger by state: confirmed; waiting (budgets, for the drain); foreign"
        " (another warehouse's: nobody bids); away.",
        ("state",),
    ),
    "snapbid_silent_processes": Definition(
        "gauge",
        "Server processes silent for 10 s that may have notices on disk: holds wait for them.",
    ),
    "snapbid_silent_processes_left_seconds": Definition(
        "gauge", "For how long holds wait for them at most; 0 where there is none."
    ),
    "snapbid_ledger_shard_up": Definition(
        "gauge", "Whether a shard of the ledger answered when last looked at: 1 or 0.", ("shard",)
    ),
    "snapbid_event_queue_length": Definition(
        "gauge", "Entries of the streams of accepted events, each of one or more requests."
    ),
    "snapbid_event_queue_age_seconds": Definition(
        "gauge", "Age of the oldest entry of these streams; 0 where they are empty."
    ),
    "snapbid_clock_difference_seconds": Definition(
        "gauge", "How far clocks are ahead of what most others show, from 2 s on.", ("clock",)
    ),
    "snapbid_disk_full": Definition(
        "gauge",
        "Whether the disk of that setting's directory lacks what may be needed at once: 1 or 0.",
        ("setting",),
    ),
    "snapbid_spool_bytes": Definition(
        "gauge", "Notices kept on this machine's disk while Redis is away."
    ),
    "snapbid_auction_log_spool_bytes": Definition(
        "gauge", "Size of this machine's segments of the auction log that wait for its writer."
    ),
    "snapbid_catalog_campaigns": Definition(
        "gauge", "Campaigns, active and paused, as the warehouse last told."
    ),
    "snapbid_catalog_age_seconds": Definition("gauge", "Time since the catalog was published."),
    "snapbid_catalog_checked_seconds": Definition(
        "gauge", "Time since the catalog was last compared with the warehouse."
    ),
    "snapbid_catalog_bases_total": Definition(
        "counter", "Bases of large catalogs: built here, or fetched.", ("source",)
    ),
}

DEFINITIONS: dict[str, Definition] = {
    "snapbid_http_requests_total": Definition(
        "counter",
        "Requests answered on the public port, by route (bid, win, billing, loss, report, "
        "diagnosis, demand, events_single, events_batch, health, docs; unknown paths are `other`) "
        "and status.",
        ("route", "status"),
    ),
    "snapbid_connections_ended_total": Definition(
        "counter",
        "Connections that a worker ended before their time, by reason: unanswered (a request has "
        "had no answer for 20 s), crowded (others needed the place), held (too much was sent by "
        "requests that are not finished).",
        ("reason",),
    ),
    "snapbid_bid_requests_total": Definition(
        "counter",
        "Bid requests answered, by SSP and outcome: bid, why there was none, or the error's code.",
        ("outcome", "ssp"),
    ),
    "snapbid_bid_cut_short_total": Definition(
        "counter",
        "Impressions without a bid because the request's time was over, or the answer full.",
        ("ssp",),
    ),
    "snapbid_bid_seconds": Definition(
        "histogram",
        "Time from the first sight of a bid request in a worker to its answer, 200 or 204.",
    ),
    "snapbid_bid_step_seconds": Definition(
        "histogram",
        "Time of the steps of bid requests, of one in 16: decode; match (features and decision); "
        "commit (until Redis has acknowledged the bid, its writing included).",
        ("step",),
    ),
    "snapbid_commit_batch_size": Definition(
        "histogram",
        "Answers with bids, and notices, that shared one round trip to Redis.",
        ("of",),
        resolution=1,
    ),
    "snapbid_commit_seconds": Definition(
        "histogram", "Time of a round trip to Redis with bids, notices or both."
    ),
    "snapbid_notices_total": Definition(
        "counter",
        "Win, billing and loss notices, by what became of them: counted, late (counted on the day "
        "of the notice), duplicate, unknown (no such bid), spooled (Redis away).",
        ("kind", "outcome"),
    ),
    "snapbid_auction_log_lost_total": Definition(
        "counter",
        "Rows that the auction log could not take; gap rows in the log tell when and how many.",
    ),
    "snapbid_catalog_swaps_total": Definition(
        "counter", "Catalogs taken up by workers, or refused by them.", ("result",)
    ),
    "snapbid_event_requests_total": Definition(
        "counter",
        "Requests of the server events endpoints, by endpoint and code: accepted, valid (test "
        "mode), or the error's.",
        ("code", "endpoint"),
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
    **WATCHED,
}


def definition_of(kind: Kind, name: str, labels: Mapping[str, object]) -> Definition:
    """Return the definition; raises ValueError for a name or labels that `DEFINITIONS` lacks."""
    definition = DEFINITIONS.get(name)
    if definition is None or definition.kind != kind:
        raise ValueError(f"{name}: no such {kind} in DEFINITIONS")
    if labels.keys() != set(definition.labels):
        raise ValueError(f"{name}: the labels are {definition.labels}, not {tuple(labels)}")
    return definition
