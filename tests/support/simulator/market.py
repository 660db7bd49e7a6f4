"""Who trades in a run: SSPs and campaigns, and what the warehouse has counted of them."""

from typing import Any, Final

from snapbid.ledger.limits import Limits
from support.simulator.entries import Campaign, Figures, Ssp, with_totals
from support.simulator.servers import PostgresServer

SSPS: Final = (
    Ssp("acme", "acme", 1),
    Ssp("acme-eu", "acme", 2),
    Ssp("acme-video", "acme", 3),
    Ssp("nova", "nova", 4),
)


def campaigns(shards: int, bids: int) -> list[Campaign]:
    """Budgets are for so many bids in each shard."""
    unit = shards * bids
    capped = None if shards > 1 else (3, 10)
    return [
        Campaign("plain", 1, 1_250_000),
        Campaign("cheap", 2, 333_333),
        Campaign("total", 3, 1_000_000, total=unit * 1000),
        Campaign("daily", 4, 2_000_000, daily=unit * 2000),
        Campaign("capped", 5, 700_001, cap=capped),
        Campaign("both", 6, 3_000_000, daily=unit * 3000, total=unit * 6000, cap=capped),
    ]


def limits_of(campaign: Campaign, shards: int) -> Limits | None:
    """As the ledger takes them."""
    if campaign.daily is None and campaign.total is None and campaign.cap is None:
        return None
    caps = () if campaign.cap is None else (campaign.cap,)
    return Limits(campaign.number, campaign.daily, campaign.total, None, caps, shards)


def register(postgres: PostgresServer, names: list[str]) -> None:
    """The SSPs and campaigns of these names into an empty warehouse, numbered from 1."""

    async def insert() -> None:
        for ssp in SSPS:
            await postgres.admin.execute("insert into ssp values ($1, $2)", *ssp[:2])
        for name in names:
            await postgres.admin.execute(
                "insert into campaign (id, document)"
                " values ($1, jsonb_build_object('id', $1::text))",
                name,
            )

    postgres.run(insert())


def counted(postgres: PostgresServer) -> Figures:
    """What the warehouse has counted."""
    rows: Any = postgres.run(postgres.admin.fetch(_FIGURES))
    return with_totals(
        ((row["day"], row["what"], row["whose"]), int(row["number"])) for row in rows
    )


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
