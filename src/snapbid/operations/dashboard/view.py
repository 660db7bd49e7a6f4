"""The figures of the dashboard as one JSON document (`/ops/data`).

Shares are 0 to 1, times in seconds, money in USD; null is unknown. Rates and shares cover the last
minute unless the name says otherwise. The stores' figures cover all machines, the workers' figures
only this one.
"""

import platform
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import reduce
from time import time
from typing import Final

from msgspec import Struct

from snapbid.base.risks import Risk
from snapbid.base.version import version
from snapbid.campaigns.suspensions import REASONS, CreativeSuspension
from snapbid.ledger.admin.drains import DrainReport
from snapbid.operations.dashboard.counts import BIDS, NOTICES, WHOLE, CountWindow
from snapbid.operations.dashboard.gauges import NANO
from snapbid.operations.dashboard.guard import SspStanding
from snapbid.operations.dashboard.ledger import NOTHING, SspTraffic, Traffic
from snapbid.operations.dashboard.trends import SPANS, Rates, TrendPoint
from snapbid.operations.dashboard.verdict import ServingVerdict
from snapbid.operations.dashboard.watch import Watch
from snapbid.operations.spending import Spending
from snapbid.warehouse.watching import CampaignConversions, CampaignDay, Conversions

EXPLAIN: Final = "snapbid explain SSP FILE names the first rule that refuses each campaign"
CAPACITY: Final = (
    "add workers, use a faster Redis, or ask for a longer tmax; the latency shows where time goes"
)
SENDER: Final = "the answer names the field: inform the SSP; snapbid golive SSP sums up"

MEANINGS: Final[dict[str, tuple[str, str]]] = {
    "no_campaign": ("no campaign matches the request", EXPLAIN),
    "limited": (
        "campaigns match, but their budgets or caps allow no bid",
        "see the budgets below, or snapbid campaign list --budgets",
    ),
    "currency": (
        "the request takes only currencies without an exchange rate",
        "ask the SSP for USD, or give the currency a rate: snapbid rates import FILE",
    ),
    "floor_currency": (
        "floors are in a currency without an exchange rate",
        "ask the SSP for USD, or give the currency a rate: snapbid rates import FILE",
    ),
    "quantity": (
        "the qty.multiplier of an impression is over the limit",
        "SNAPBID_MAX_QUANTITY sets the limit",
    ),
    "private_auction": ("a private auction, and no campaign targets its deals", EXPLAIN),
    "no_media": ("no impression asks for a readable banner, video, native or audio", SENDER),
    "taken": (
        "another SSP has a bid on an auction and impression with the same ids",
        "ids are not unique, or somebody is trying to take over auctions: ask the SSP",
    ),
    "long_id": ("the id is over 512 bytes, which notices could not carry", SENDER),
    "cut_short": (
        "the request ran out of time before an impression was decided",
        "SNAPBID_BID_CPU_MS and tmax limit it",
    ),
    "late": ("the answer would have come after tmax", CAPACITY),
    "overload": ("more requests than the workers complete", CAPACITY),
    "rate": ("more requests a second than the SSP may send", "snapbid ssp set SSP --qps N"),
    "store_down": ("Redis did not acknowledge the bid", "check Redis and its log"),
    "bad_request": ("the request cannot be read", SENDER),
    "too_large": ("the body is over SNAPBID_BID_MAX_BYTES", SENDER),
    "unsupported_media_type": ("the body's media type or encoding is not supported", SENDER),
    "request_timeout": ("the body did not arrive in time", SENDER),
    "forbidden": (
        "the SSP's requests come from an address that is not allowed",
        "snapbid ssp set SSP --allow CIDR; behind a proxy, SNAPBID_TRUSTED_PROXIES",
    ),
    "internal": ("an error in the bidder", "check the log of serve"),
}
"""Outcome -> its meaning and remedy."""

STATES: Final[dict[str, str]] = {
    "open": "Its budget allows bids. Where it does not bid, its targeting, caps or creatives "
    "refuse the requests",
    "paced": "Today's share of its budget is used up for now; even pacing frees more as the day "
    "goes on",
    "spent": "Its budget has less headroom than one bid: a daily budget bids again tomorrow (UTC), "
    "a total budget after an import that raises it",
    "scheduled": "It does not bid before its starts_at",
    "ended": "Its ends_at has passed: it bids again after an import with a later one",
}
"""State of a campaign's budget -> its meaning, and when it changes."""


QUANTILES: Final = (0.5, 0.9, 0.99, 0.999)
STEPS: Final = ("decode", "match", "commit")
NOW_S: Final = 10.0  # window of the "now" averages
MOST: Final = 50  # rows of a table


class Latency(Struct):
    """Latency of whole requests, of one step, or of round trips to Redis, at `Page.quantiles`.

    A value beyond the last bucket (100 ms for a step, otherwise 1 s) is null. `seconds` is null if
    nothing was counted.
    """

    step: str
    seconds: list[float | None] | None


class SspRow(Struct):
    """An SSP's figures: today's from both stores, the others from this machine's counters."""

    ssp: str
    requests: int
    outcomes: dict[str, int]
    bids_today: int | None = None
    wins_today: int | None = None
    imps_today: int | None = None
    spend_today: float | None = None
    unanswered: tuple[float, float] = (0.0, 0.0)  # share late or failed in the last 1 and 15 min
    guard: int = 0  # `SspStanding.level`


class BudgetRow(Struct):
    campaign: str
    state: str
    pacing: str
    spent_today: float
    daily: float | None
    spent: float
    total: float | None
    held: float


class SuspensionRow(Struct):
    """A creative suspended at an SSP until `until` (epoch s), and the reason for its last loss."""

    campaign: str
    creative: str
    ssp: str
    reason: int
    means: str
    losses: int
    until: int


class About(Struct):
    """The server: machine name, version, start (epoch s), workers and port."""

    machine: str
    version: str
    started_at: float
    workers: int
    port: int


class Page(Struct):
    """All figures of the dashboard.

    Traffic and money include the last known figures of unavailable shards; the drain's backlog and
    the event queue leave these shards out.
    """

    at: float
    about: About
    verdict: ServingVerdict
    errors: int
    window_s: float | None
    redis: bool | None
    warehouse: bool | None
    shards: int
    unavailable: list[int]  # shards
    risks: list[Risk]
    now: Rates | None  # over NOW_S
    quantiles: tuple[float, ...]
    latency: list[Latency]
    spans: dict[str, float]  # lengths of the trends (s)
    trends: dict[str, list[TrendPoint]]  # by span
    meanings: dict[str, tuple[str, str]]  # by outcome of a request
    states: dict[str, str]  # meanings of the states of a budget
    ssps: list[SspRow]
    ssps_known: int | None
    notices: dict[str, dict[str, int]]
    event_codes: dict[str, int]
    drains: Sequence[DrainReport]  # of all machines, as reported recently
    audit_differences: int | None  # of the last self-audit
    audit_age_s: float | None  # of the last complete audit; null if there is none
    drain_waiting: int | None
    drain_behind_s: float | None
    event_queue: int | None
    event_queue_age_s: float | None
    spool_bytes: int
    auction_log_bytes: int | None  # of chunks that wait; None without an auction log
    auction_log_lost: int  # rows, in the last minute
    budgets: list[BudgetRow] | None
    budgeted: int | None
    unlimited: Sequence[CampaignDay] | None
    converted: Sequence[CampaignConversions] | None
    converted_today: Conversions | None
    bids_today: int | None
    wins_today: int | None
    imps_today: int | None
    spent_today: float | None
    held: float | None
    campaigns: int | None
    suspensions: list[SuspensionRow] | None
    suspended: int | None
    catalog_age_s: float | None
    catalog_checked_s: float | None


def page(watch: Watch) -> Page:
    at, snapshot = time(), watch.snapshot
    window, waiting, money = snapshot.window, snapshot.waiting, snapshot.money
    rows = [
        row
        for row in _ssps(window, snapshot.ssps, snapshot.standings)
        if snapshot.registered is None or row.ssp in snapshot.registered
    ]
    today = _of_all(snapshot.ssps)
    return Page(
        at=at,
        about=_about(watch),
        verdict=watch.judge.verdict,
        errors=0 if window is None else window.errors(),
        window_s=None if window is None else window.seconds,
        redis=snapshot.redis,
        warehouse=snapshot.warehouse,
        shards=watch.settings.shards,
        unavailable=[] if waiting is None else waiting.unavailable,
        risks=snapshot.all_risks(),
        now=watch.trends.rates(NOW_S),
        quantiles=QUANTILES,
        latency=_latency(window),
        spans={name: every_s * count for name, (every_s, count) in SPANS.items()},
        trends=watch.trends.points(at),
        meanings=MEANINGS,
        states=STATES,
        ssps=rows[:MOST],
        ssps_known=None if snapshot.registered is None else len(snapshot.registered),
        notices=_table(window, NOTICES, "kind", "outcome"),
        event_codes=_table(window, "snapbid_event_requests_total", "all", "code").get("", {}),
        drains=snapshot.drains,
        audit_differences=None if snapshot.audit is None else sum(snapshot.audit.counts.values()),
        audit_age_s=None if snapshot.audit is None else snapshot.audit_age_s(at),
        drain_waiting=waiting and waiting.counters,
        drain_behind_s=waiting and waiting.behind_s,
        event_queue=waiting and waiting.entries,
        event_queue_age_s=waiting and waiting.oldest_s,
        spool_bytes=snapshot.spool_bytes,
        auction_log_bytes=snapshot.auction_log_bytes,
        auction_log_lost=0 if window is None else window.total("snapbid_auction_log_lost_total"),
        budgets=None if money is None else [_budget(of) for of in money[:MOST]],
        budgeted=snapshot.budgeted,
        unlimited=snapshot.unlimited,
        converted=snapshot.converted and snapshot.converted.most,
        converted_today=snapshot.converted and snapshot.converted.total,
        bids_today=today and today.bids,
        wins_today=today and today.wins,
        imps_today=today and today.imps,
        spent_today=today and today.cpm_micros / NANO,
        held=None if money is None else sum(of.held for of in money),
        campaigns=snapshot.campaigns,
        suspensions=None
        if snapshot.suspensions is None
        else [_suspension(each) for each in snapshot.suspensions[:MOST]],
        suspended=None if snapshot.suspensions is None else len(snapshot.suspensions),
        catalog_age_s=_age(at, snapshot.published_at),
        catalog_checked_s=_age(at, snapshot.checked_at),
    )


def _about(watch: Watch) -> About:
    settings = watch.settings
    return About(platform.node(), version(), watch.started_at, settings.workers, settings.port)


def _age(at: float, moment: float | None) -> float | None:
    return None if moment is None else max(at - moment, 0.0)


def _latency(window: CountWindow | None) -> list[Latency]:
    if window is None:
        return []
    whole = Latency("whole", window.quantiles(WHOLE, QUANTILES))
    steps = [
        Latency(step, window.quantiles("snapbid_bid_step_seconds", QUANTILES, step=step))
        for step in STEPS
    ]
    batches = Latency("round trip to Redis", window.quantiles("snapbid_commit_seconds", QUANTILES))
    return [whole, *steps, batches]


def _ssps(
    window: CountWindow | None,
    known: Mapping[str, SspTraffic] | None,
    standings: Sequence[SspStanding],
) -> list[SspRow]:
    """Return a row for each SSP, the SSPs with the most requests first."""
    rows = {}
    for name, outcomes in _table(window, BIDS, "ssp", "outcome").items():
        rows[name] = SspRow(name, sum(outcomes.values()), outcomes)
    for name, figures in (known or {}).items():
        row = rows.setdefault(name, SspRow(name, 0, {}))
        row.bids_today, row.wins_today = figures.today.bids, figures.today.wins
        row.imps_today, row.spend_today = figures.today.imps, figures.today.cpm_micros / NANO
    for standing in standings:
        if standing.ssp in rows:
            minute, quarter = (standing.answers[name].share for name in ("1m", "15m"))
            rows[standing.ssp].unanswered = (minute, quarter)
            rows[standing.ssp].guard = standing.level
    return sorted(rows.values(), key=lambda row: (-row.requests, -(row.bids_today or 0), row.ssp))


def _of_all(known: Mapping[str, SspTraffic] | None) -> Traffic | None:
    """Sum today's figures over all SSPs, including those left out of the table."""
    if known is None:
        return None
    return reduce(Traffic.plus, (figures.today for figures in known.values()), NOTHING)


def _table(
    window: CountWindow | None, name: str, rows: str, columns: str
) -> dict[str, dict[str, int]]:
    """Return the growth of a counter by two labels, `rows` and `columns`.

    A missing label counts as "". The result is empty without a window.
    """
    table: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for labels, grown in window.of(name) if window else ():
        table[labels.get(rows, "")][labels.get(columns, "")] += grown
    return {row: dict(cells) for row, cells in table.items()}


def _budget(of: Spending) -> BudgetRow:
    return BudgetRow(
        of.id,
        of.state,
        of.pacing,
        of.spent_today,
        of.daily,
        of.spent,
        of.total,
        of.held,
    )


def _suspension(of: CreativeSuspension) -> SuspensionRow:
    means = REASONS.get(of.reason, "")
    return SuspensionRow(of.campaign, of.creative, of.ssp, of.reason, means, of.losses, of.until)
