"""What is watched, as series of the metrics page (`metrics.WATCHED`)."""

from collections import Counter
from time import time

from snapbid.metrics import Samples
from snapbid.ops.watch import Money, Watch

NANO = 1_000_000_000  # CPM in micro-USD, to USD an impression


def gauges(watch: Watch) -> dict[str, Samples]:
    """Series by metric; what is unknown has none."""
    seen = watch.seen
    found: dict[str, Samples] = {
        "snapbid_store_up": [
            ({"store": name}, float(up))
            for name, up in (("redis", seen.redis), ("warehouse", seen.warehouse))
            if up is not None
        ],
        "snapbid_spool_bytes": [({}, watch.spool_bytes())],
        **_catalog(watch),
    }
    if seen.waiting is not None:
        counters, behind_s, entries, oldest_s = seen.waiting
        found["snapbid_drain_waiting"] = [({}, counters)]
        found["snapbid_event_queue_length"] = [({}, entries)]
        found["snapbid_event_queue_age_seconds"] = [({}, oldest_s)]
        if behind_s is not None:
            found["snapbid_drain_behind_seconds"] = [({}, behind_s)]
    if seen.ssps is not None:
        totals = {name: ssp.since for name, ssp in seen.ssps.items()}
        for metric, values in (
            ("bids_total", {name: of.bids for name, of in totals.items()}),
            ("wins_total", {name: of.wins for name, of in totals.items()}),
            ("impressions_total", {name: of.imps for name, of in totals.items()}),
            ("spend_usd_total", {name: of.cpm_micros / NANO for name, of in totals.items()}),
        ):
            found[f"snapbid_ssp_{metric}"] = [({"ssp": name}, n) for name, n in values.items()]
    if seen.money is not None:
        found |= _money(seen.money)
    return found


def state_of(money: Money) -> str:
    """Whether there is room for a bid: open, paced (later today) or spent (not today, or never)."""
    of, cost = money

    def lacks(left: float | None) -> bool:
        return left is not None and round(left - cost, 9) < 0

    of_day = None if of.daily is None else of.daily - of.spent_today - of.held
    if lacks(of.remaining) or lacks(of_day):
        return "spent"
    return "paced" if lacks(of.remaining_today) else "open"


def _money(campaigns: list[Money]) -> dict[str, Samples]:
    spent, held, budgets = [], [], []
    states = Counter({"open": 0, "paced": 0, "spent": 0})
    for money in campaigns:
        each = money.of
        name = {"campaign": each.id}
        states[state_of(money)] += 1
        held.append((name, each.held))
        for window, used, budget in (
            ("day", each.spent_today, each.daily),
            ("total", each.spent, each.total),
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


def _catalog(watch: Watch) -> dict[str, Samples]:
    publisher, now, campaigns = watch.publisher, time(), watch.seen.campaigns
    found: dict[str, Samples] = {}
    if campaigns is not None:
        found["snapbid_catalog_campaigns"] = [({}, campaigns)]
    if publisher.published_at is not None:
        found["snapbid_catalog_age_seconds"] = [({}, max(now - publisher.published_at, 0.0))]
    if publisher.checked_at is not None:
        found["snapbid_catalog_checked_seconds"] = [({}, max(now - publisher.checked_at, 0.0))]
    return found
