"""All metrics: names, labels and help texts."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["counter", "histogram", "gauge"]

OVERFLOW = "snapbid_metrics_overflow_total"


class Definition(msgspec.Struct, frozen=True):
    """A metric; a histogram's sum is stored in units of 1/`resolution`."""

    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    resolution: int = 1_000_000


# Metrics that no process counts: the server of the private port reads them every few seconds from
# Redis, the warehouse and files, and omits any it cannot read. Where several machines share the
# stores, each reports the totals of all, so take the maximum over instances.
WATCHED: dict[str, Definition] = {
    "snapbid_store_up": Definition(
        "gauge", "Whether the store answered the last check: 1 or 0.", ("store",)
    ),
    "snapbid_store_risk": Definition(
        "gauge",
        "Whether the store is at risk of losing acknowledged writes, refuses writes, or is not one"
        " that Snapbid can work with: 1 or 0.",
        ("risk", "store"),
    ),
    "snapbid_audit_difference": Definition(
        "gauge",
        "Differences of figures that are kept twice, in the last self-audit: 0, or something is"
        " wrong.",
        ("comparison",),
    ),
    "snapbid_audit_age_seconds": Definition(
        "gauge",
        "Seconds since the last complete self-audit; since the start of serve if there is none,"
        " though drains run.",
    ),
    "snapbid_ssp_bids_total": Definition(
        "counter", "Responses with bids that the ledger counted, over all machines.", ("ssp",)
    ),
    "snapbid_ssp_wins_total": Definition(
        "counter", "Wins that the ledger counted, over all machines.", ("ssp",)
    ),
    "snapbid_ssp_impressions_total": Definition(
        "counter", "Billing notices that the ledger counted, over all machines.", ("ssp",)
    ),
    "snapbid_ssp_spend_usd_total": Definition(
        "counter", "Cost of wins in USD, over all machines.", ("ssp",)
    ),
    "snapbid_ssp_answers_share": Definition(
        "gauge",
        "Share of the SSP's requests (0 to 1) that this machine answered late or that failed"
        " (overload, store_down, internal), by kind and window (1m, 15m); none of fewer than 20"
        " requests.",
        ("kind", "ssp", "window"),
    ),
    "snapbid_ssp_guard": Definition(
        "gauge",
        "Whether late and failed requests of the SSP together approach the share at which exchanges"
        " throttle (15%), in either window: 1 from 5%, 2 from 10%, else 0.",
        ("ssp",),
    ),
    "snapbid_campaign_spent_usd": Definition(
        "gauge",
        "Spend in USD of the 200 active budgeted campaigns that spend most today, by window (day,"
        " total).",
        ("campaign", "window"),
    ),
    "snapbid_campaign_held_usd": Definition(
        "gauge", "Cost in USD of these campaigns' bids without an outcome yet.", ("campaign",)
    ),
    "snapbid_campaign_budget_usd": Definition(
        "gauge", "Budget in USD of these campaigns, by window (day, total).", ("campaign", "window")
    ),
    "snapbid_budget_state": Definition(
        "gauge",
        "The 200 active budgeted campaigns that spend most today, by state: open, paced (may bid"
        " again later today), spent, scheduled (before starts_at), ended.",
        ("state",),
    ),
    "snapbid_drain_waiting": Definition(
        "gauge", "Changed counters that the drain has yet to carry, over all shards."
    ),
    "snapbid_drain_behind_seconds": Definition(
        "gauge", "Age in seconds of the oldest count that may wait for the drain; 0 if none waits."
    ),
    "snapbid_ledger_shards": Definition(
        "gauge",
        "Shards of the ledger by state: confirmed; waiting (for the drain to restore budgets);"
        " foreign (another warehouse's: no bids); unavailable.",
        ("state",),
    ),
    "snapbid_ledger_shard_unreplicated": Definition(
        "gauge",
        "Whether a shard acknowledges writes without its required replica.",
        ("shard",),
    ),
    "snapbid_port_up": Definition(
        "gauge", "Whether a worker answered the last check of the public port: 1 or 0."
    ),
    "snapbid_ready": Definition(
        "gauge",
        "Whether the worker that answered this check has all it needs to bid (as in /readyz): 1 or"
        " 0.",
    ),
    "snapbid_silent_processes": Definition(
        "gauge",
        "Server processes without a heartbeat for 10 s that may have notices on disk: holds do not"
        " expire meanwhile.",
    ),
    "snapbid_silent_processes_left_seconds": Definition(
        "gauge", "Seconds until holds no longer wait for these processes; 0 if there are none."
    ),
    "snapbid_ledger_shard_up": Definition(
        "gauge", "Whether the shard of the ledger answered the last check: 1 or 0.", ("shard",)
    ),
    "snapbid_event_queue_length": Definition(
        "gauge", "Entries in the streams of accepted events, each of one or more requests."
    ),
    "snapbid_event_queue_age_seconds": Definition(
        "gauge", "Age in seconds of the oldest entry in these streams; 0 if they are empty."
    ),
    "snapbid_clock_difference_seconds": Definition(
        "gauge", "Seconds by which the clock is ahead of most others, from 2 s on.", ("clock",)
    ),
    "snapbid_disk_full": Definition(
        "gauge",
        "Whether the disk of this setting's directory has less free space than may be needed at"
        " once (by the spools of all workers, or the auction log), or under 100 files left: 1 or"
        " 0.",
        ("setting",),
    ),
    "snapbid_spool_bytes": Definition(
        "gauge", "Bytes of notices spooled on this machine while Redis is unavailable."
    ),
    "snapbid_auction_log_spool_bytes": Definition(
        "gauge",
        "Bytes of this machine's auction log chunks that workers have filled and the writer has yet"
        " to convert.",
    ),
    "snapbid_catalog_campaigns": Definition(
        "gauge", "Campaigns, active and paused, as last read from the warehouse."
    ),
    "snapbid_catalog_age_seconds": Definition("gauge", "Seconds since the catalog was published."),
    "snapbid_catalog_checked_seconds": Definition(
        "gauge",
        "Seconds since the catalog was last up to date with the warehouse, or since the start of"
        " serve if it was not.",
    ),
    "snapbid_catalog_bases_total": Definition(
        "counter", "Bases of large catalogs, by source: built here or fetched.", ("source",)
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
        "Connections that a worker ended, by reason: unanswered (a request had no answer for "
        "20 s), crowded (others needed the slot), held (unfinished requests took too much memory).",
        ("reason",),
    ),
    "snapbid_bid_requests_total": Definition(
        "counter",
        "Bid requests answered, by SSP and outcome: bid, the reason for no bid, or the error code.",
        ("outcome", "ssp"),
    ),
    "snapbid_bid_cut_short_total": Definition(
        "counter",
        "Impressions without a bid because the request ran out of time or the response was full.",
        ("ssp",),
    ),
    "snapbid_bid_seconds": Definition(
        "histogram",
        "Seconds from when a worker takes up a bid request, after any queueing, to its response,"
        " 200 or 204; without requests that were shed.",
    ),
    "snapbid_bid_step_seconds": Definition(
        "histogram",
        "Seconds spent in each step of a bid request, sampled from one in 16: decode; match "
        "(features and decision); commit (writing the bid, until Redis acknowledges it in time).",
        ("step",),
    ),
    "snapbid_commit_batch_size": Definition(
        "histogram",
        "Bid responses, or notices, that shared one round trip to Redis.",
        ("of",),
        resolution=1,
    ),
    "snapbid_commit_seconds": Definition(
        "histogram", "Seconds of a round trip to Redis with bids, notices or both."
    ),
    "snapbid_notices_total": Definition(
        "counter",
        "Win, billing and loss notices, by outcome: counted, late (counted on the day of the "
        "notice), duplicate, unknown (no such bid), unsigned (without a valid token), spooled "
        "(Redis unavailable).",
        ("kind", "outcome"),
    ),
    "snapbid_auction_log_lost_total": Definition(
        "counter",
        "Rows that the auction log dropped; gap rows in the log say when and how many.",
    ),
    "snapbid_restricted_requests_total": Definition(
        "counter", "Bid requests from persons to whom a product must not advertise."
    ),
    "snapbid_catalog_swaps_total": Definition(
        "counter", "Catalogs that workers put into service (taken_up) or refused.", ("result",)
    ),
    "snapbid_event_requests_total": Definition(
        "counter",
        "Requests to the server events endpoints, by endpoint and code: accepted, valid (test "
        "mode), or the error code.",
        ("code", "endpoint"),
    ),
    "snapbid_events_accepted_total": Definition("counter", "Events accepted with a 202."),
    "snapbid_events_stored_total": Definition(
        "counter", "Events that the drain stored, without duplicates."
    ),
    "snapbid_event_conflicts_total": Definition(
        "counter", "Different payloads received under the id of a stored event."
    ),
    "snapbid_event_dead_letters_total": Definition(
        "counter", "Events that could not be stored and were dead-lettered."
    ),
    "snapbid_event_lag_seconds": Definition(
        "histogram",
        "Seconds from acceptance to storage in the warehouse of the first event of each stored"
        " batch.",
    ),
    "snapbid_drain_rounds_total": Definition(
        "counter", "Rounds in which the drain carried counters to the warehouse."
    ),
    "snapbid_drain_counters_total": Definition(
        "counter", "Changed counters that the drain carried."
    ),
    "snapbid_drain_lag_seconds": Definition(
        "histogram", "Age in seconds of a round's oldest count once it is in the warehouse."
    ),
    OVERFLOW: Definition("counter", "Increments lost to the limit of series per process."),
    **WATCHED,
}


def definition_of(kind: Kind, name: str, labels: Mapping[str, object]) -> Definition:
    """Return a metric's definition.

    Raises ValueError for a name, kind or labels that are not in `DEFINITIONS`.
    """
    definition = DEFINITIONS.get(name)
    if definition is None or definition.kind != kind:
        raise ValueError(f"{name}: no such {kind} in DEFINITIONS")
    if labels.keys() != set(definition.labels):
        raise ValueError(f"{name}: the labels must be {definition.labels}, not {tuple(labels)}")
    return definition
