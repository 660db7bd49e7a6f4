"""Who trades in a run: SSPs and campaigns, and what the warehouse has counted of them."""

import json
import random
from typing import Any, Final, NamedTuple

from snapbid.ledger.budgets.limits import Limits
from support.simulator.entries import DAY_S, Campaign, Figures, Ssp, with_totals
from support.simulator.servers import PostgresServer

SSPS: Final = (
    Ssp("acme", "acme"),
    Ssp("acme-eu", "acme"),
    Ssp("acme-video", "acme"),
    Ssp("nova", "nova"),
)
KINDS: Final = ("plain", "total", "daily", "capped", "both", "even")
CPMS: Final = {
    "plain": 1_250_000,
    "cheap": 333_333,
    "total": 1_000_000,
    "daily": 2_000_000,
    "capped": 700_001,
    "both": 3_000_000,
    "even": 1_500_000,
}
FIRST: Final = len(CPMS)  # campaigns that are there from the start, each of another kind
LIMITED: Final = (3, 4, 5, 6, 7)  # those with a budget or a cap


def campaign_of(name: str, kind: str, shards: int, bids: int) -> Campaign:
    """Budgets are for so many bids, twice as many over several shards; that of `both` for twice."""
    cpm, capped = CPMS[kind], (3, 10)
    budget = min(shards, 2) * bids * cpm // 1000  # micro-USD
    match kind:
        case "total":
            return Campaign(name, cpm, total=budget)
        case "daily":
            return Campaign(name, cpm, daily=budget)
        case "even":  # half of it by noon, when runs begin
            return Campaign(name, cpm, daily=budget * 2, is_even=True)
        case "capped":
            return Campaign(name, cpm, cap=capped)
        case "both":
            return Campaign(name, cpm, daily=budget, total=budget * 2, cap=capped)
        case _:
            return Campaign(name, cpm)


def campaigns(shards: int, bids: int) -> list[Campaign]:
    """Those of the start, numbered from 1 in scripts."""
    return [campaign_of(kind, kind, shards, bids) for kind in CPMS]


def limits_of(campaign: Campaign, number: int, shards: int, start_s: float) -> Limits | None:
    """As the ledger takes them; campaigns with pacing `even` were made a day before the start."""
    if campaign.daily is None and campaign.total is None and campaign.cap is None:
        return None
    caps = () if campaign.cap is None else (campaign.cap,)
    even_from_ms = int(start_s - DAY_S) * 1000 if campaign.is_even else None
    return Limits(number, campaign.daily, campaign.total, even_from_ms, caps, in_escrow=shards > 1)


class Catalog(NamedTuple):
    """What workers know of the warehouse: its id, numbers by name, and its own ledger."""

    warehouse: str
    campaigns: dict[str, int]
    ssps: dict[str, int]
    ledger: tuple[str, ...] = ()


def register(postgres: PostgresServer, names: list[str], rng: random.Random | None = None) -> None:
    """The SSPs and campaigns of these names into an empty warehouse; in any order, with `rng`."""

    ssps = list(SSPS)
    if rng is not None:
        rng.shuffle(ssps)
        ssps.sort(key=lambda ssp: ssp.descriptor != ssp.canonical)  # as keys demand
        rng.shuffle(names)
    postgres.run(postgres.admin.executemany("insert into ssp values ($1, $2)", ssps))
    add(postgres, *names)


def add(postgres: PostgresServer, *names: str) -> None:
    """More campaigns."""
    postgres.run(
        postgres.admin.executemany(
            "insert into campaign (id, document) values ($1, jsonb_build_object('id', $1::text))"
            " on conflict do nothing",
            [(name,) for name in names],
        )
    )


def catalog(postgres: PostgresServer) -> Catalog:
    """As the publisher reads it."""
    row = postgres.run(postgres.admin.fetchrow(_CATALOG))
    warehouse, campaigns, ssps, ledger = row
    return Catalog(warehouse, json.loads(campaigns), json.loads(ssps), tuple(ledger))


def has_former(postgres: PostgresServer, epochs: list[str]) -> bool:
    """Whether a ledger with these data sets is one that the warehouse had before."""
    found: Any = postgres.run(postgres.admin.fetchval(_FORMER, epochs))
    return bool(found)


def counted(postgres: PostgresServer) -> Figures:
    """What the warehouse has counted."""
    rows: Any = postgres.run(postgres.admin.fetch(_FIGURES))
    return with_totals(
        ((row["day"], row["what"], row["whose"]), int(row["number"])) for row in rows
    )


_CATALOG: Final = """
    select
        (select id::text from warehouse_identity),
        (select coalesce(json_object_agg(id, number order by id), '{}')
            from campaign_number join campaign using (id)),
        (select coalesce(json_object_agg(descriptor, number order by descriptor), '{}')
            from ssp_number),
        array(select epoch from ledger_shard order by shard)
"""
_FORMER: Final = """
    select exists (select from drain_fence join unnest($1::text[]) as l (epoch) using (epoch)
        where epoch not in (select epoch from ledger_shard))
"""
_DAY: Final = "day - date '1970-01-01' as day"
_FIGURES: Final = " union all ".join(
    f"select {_DAY}, '{what}' as what, {whose} as whose, {column} as number from {table}"
    for what, whose, column, table in (
        ("bids", "descriptor", "bids", "bid_daily"),
        ("wins", "descriptor", "wins", "bid_daily"),
        ("cpm", "descriptor", "win_cpm_micros", "bid_daily"),
        ("imps", "ssp", "imps", "impression_daily"),
        ("losses", "descriptor || ' ' || reason", "losses", "loss_daily"),
        ("campaign bids", "campaign", "bids", "campaign_daily"),
        ("campaign wins", "campaign", "wins", "campaign_daily"),
        ("campaign imps", "campaign", "imps", "campaign_daily"),
        ("campaign cpm", "campaign", "win_cpm_micros", "campaign_daily"),
    )
)
