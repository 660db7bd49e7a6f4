"""Turns a snapshot into series of the metrics page (`metrics.WATCHED`)."""

from collections import Counter
from collections.abc import Sequence
from time import time

from snapbid.base.risks import NAMES
from snapbid.metrics import Samples
from snapbid.operations.dashboard.guard import SspStanding
from snapbid.operations.dashboard.ledger import Standing, is_foreign
from snapbid.operations.dashboard.snapshot import OpsSnapshot
from snapbid.operations.spending import Spending

NANO = 1_000_000_000  # turns micro-USD per thousand impressions into USD per impression


def gauges(snapshot: OpsSnapshot) -> dict[str, Samples]:
    """Return series by metric, omitting unknown values."""
    now = time()
    series: dict[str, Samples] = {
        "snapbid_store_up": [
            ({"store": name}, float(up))
            for name, up in (("redis", snapshot.redis), ("warehouse", snapshot.warehouse))
            if up is not None
        ],
        "snapbid_store_risk": [
            ({"store": store, "risk": name}, float(any(risk.name == name for risk in risks)))
            for store, risks in snapshot.risks.items()
            for name in NAMES[store]
        ],
        "snapbid_clock_difference_seconds": [
            ({"clock": ", ".join(of.names)}, of.ahead_s) for of in snapshot.differences
        ],
        "snapbid_disk_full": [
            ({"setting": disk.setting}, float(disk.is_full)) for disk in snapshot.disks
        ],
        "snapbid_port_up": [({}, float(snapshot.answers))] if snapshot.answers is not None else [],
        "snapbid_ready": [({}, float(not snapshot.missing))] if snapshot.answers else [],
        "snapbid_spool_bytes": [({}, snapshot.spool_bytes)],
        "snapbid_auction_log_spool_bytes": [({}, snapshot.auction_log_bytes or 0)],
        **_catalog(snapshot, now),
        **_audit(snapshot, now),
        **_guard(snapshot.standings),
    }
    if snapshot.waiting is not None:
        counters, behind_s, entries, oldest_s, shards, silent = snapshot.waiting
        states = Counter(_state_of_shard(shard, snapshot.identity) for shard in shards)
        series["snapbid_ledger_shards"] = [
            ({"state": name}, states[name])
            for name in ("confirmed", "waiting", "foreign", "unavailable")
        ]
        series["snapbid_ledger_shard_up"] = [
            ({"shard": str(number)}, float(shard is not None))
            for number, shard in enumerate(shards)
        ]
        series["snapbid_ledger_shard_unreplicated"] = [
            ({"shard": str(number)}, float(shard is not None and shard.is_unreplicated))
            for number, shard in enumerate(shards)
        ]
        series["snapbid_silent_processes"] = [({}, silent.processes)]
        series["snapbid_silent_processes_left_seconds"] = [({}, silent.left_s)]
        series["snapbid_drain_waiting"] = [({}, counters)]
        series["snapbid_event_queue_length"] = [({}, entries)]
        series["snapbid_event_queue_age_seconds"] = [({}, oldest_s)]
        if behind_s is not None:
            series["snapbid_drain_behind_seconds"] = [({}, behind_s)]
    if snapshot.ssps is not None:
        totals = {name: ssp.since for name, ssp in snapshot.ssps.items()}
        for metric, values in (
            ("bids_total", {name: of.bids for name, of in totals.items()}),
            ("wins_total", {name: of.wins for name, of in totals.items()}),
            ("impressions_total", {name: of.imps for name, of in totals.items()}),
            ("spend_usd_total", {name: of.cpm_micros / NANO for name, of in totals.items()}),
        ):
            series[f"snapbid_ssp_{metric}"] = [({"ssp": name}, n) for name, n in values.items()]
    if snapshot.money is not None:
        series |= _money(snapshot.money)
    return series


def _state_of_shard(shard: Standing | None, warehouse: str | None) -> str:
    if shard is None:
        return "unavailable"
    if is_foreign(shard, warehouse):
        return "foreign"
    return "confirmed" if shard.is_confirmed else "waiting"


def _money(campaigns: Sequence[Spending]) -> dict[str, Samples]:
    spent, held, budgets = [], [], []
    states = Counter({"open": 0, "paced": 0, "spent": 0, "scheduled": 0, "ended": 0})
    for figures in campaigns:
        name = {"campaign": figures.id}
        states[figures.state] += 1
        held.append((name, figures.held))
        for window, used, budget in (
            ("day", figures.spent_today, figures.daily),
            ("total", figures.spent, figures.total),
        ):
            spent.append(({**name, "window": window}, used))
            if budget is not None:
                budgets.append(({**name, "window": window}, budget))
    return {
        "snapbid_campaign_spent_usd": spent,
        "snapbid_campaign_held_usd": held,
        "snapbid_campaign_budget_usd": budgets,
        "snapbid_budget_state": [({"state": name}, n) for name, n in states.items()],
    }


def _audit(snapshot: OpsSnapshot, now: float) -> dict[str, Samples]:
    counts = {} if snapshot.audit is None else snapshot.audit.counts
    age_s = snapshot.audit_age_s(now)
    return {
        "snapbid_audit_difference": [({"comparison": name}, n) for name, n in counts.items()],
        "snapbid_audit_age_seconds": [] if age_s is None else [({}, age_s)],
    }


def _catalog(snapshot: OpsSnapshot, now: float) -> dict[str, Samples]:
    series: dict[str, Samples] = {
        "snapbid_catalog_checked_seconds": [({}, snapshot.unchecked_s(now))],
        "snapbid_catalog_bases_total": [
            ({"source": source}, count) for source, count in snapshot.bases.items()
        ],
    }
    if snapshot.campaigns is not None:
        series["snapbid_catalog_campaigns"] = [({}, snapshot.campaigns)]
    if snapshot.published_at is not None:
        series["snapbid_catalog_age_seconds"] = [({}, max(now - snapshot.published_at, 0.0))]
    return series


def _guard(standings: Sequence[SspStanding]) -> dict[str, Samples]:
    shares: Samples = [
        ({"kind": kind, "ssp": of.ssp, "window": window}, count / answers.requests)
        for of in standings
        for window, answers in of.answers.items()
        if answers.are_enough
        for kind, count in (("late", answers.late), ("failed", answers.failed))
    ]
    return {
        "snapbid_ssp_answers_share": shares,
        "snapbid_ssp_guard": [({"ssp": of.ssp}, of.level) for of in standings],
    }
