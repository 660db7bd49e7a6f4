"""`snapbid campaign`: list, show, pause, resume and delete; the rest is in `campaign_*.py`."""

from typing import TYPE_CHECKING, Any

import click

from snapbid.cli import console
from snapbid.cli.campaign_check import check_campaigns
from snapbid.cli.campaign_export import export_campaigns
from snapbid.cli.campaign_import import import_campaigns
from snapbid.cli.campaign_performance import campaign_performance, print_performance
from snapbid.cli.shell import ShellGroup

if TYPE_CHECKING:
    import asyncpg


COLUMNS = ("id", "status", "cpm", "media", "advertiser", "name", *console.MONEY, "suspended")
NARROW = ("id", "status", "cpm", "media", "spent today", "left today", "suspended")


@click.group(cls=ShellGroup)
def campaign() -> None:
    """Campaigns: import, list, show, pause, delete."""


campaign.add_command(import_campaigns)
campaign.add_command(check_campaigns)
campaign.add_command(export_campaigns)
campaign.add_command(campaign_performance)


@campaign.command(
    "list",
    examples=[
        "snapbid campaign list",
        "snapbid campaign list --budgets --wide",
        "snapbid campaign list --json > campaigns.json",
    ],
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array of the documents.")
@click.option("--budgets", is_flag=True, help="Only budgeted campaigns; with --json, their money.")
@click.option("--wide", is_flag=True, help="Show all columns on a terminal, too.")
def campaign_list(as_json: bool, budgets: bool, wide: bool) -> None:
    """List the campaigns with their spend and remaining budgets.

    Active campaigns are `scheduled` before their `starts_at` and `ended` from their `ends_at` on.
    Money is in USD: spent in total and today, held by bids, left today (as pacing allows) and in
    total. These columns are empty without Redis. `suspended` names the creatives suspended at an
    SSP (see `creative list`). --json without --budgets prints the documents in the format of
    `campaign import`. Piped output has all columns, separated by tabs.
    """
    from snapbid.warehouse import campaigns, suspensions

    suspended: dict[str, list[str]] = {}

    async def work(connection: "asyncpg.Connection") -> list[campaigns.StoredCampaign]:
        for each in await suspensions.fetch_suspended(connection):
            suspended.setdefault(each.campaign, []).append(f"{each.creative} at {each.ssp}")
        return [stored async for stored in campaigns.fetch_all(connection)]

    stored = console.in_warehouse(work)
    if as_json and not budgets:
        console.print_raw_json(each.document for each in stored)
        return
    money = console.spending(stored, required=budgets)
    if as_json:
        console.print_json(money.values())
        return
    rows = [
        (
            *_campaign_row(each),
            *console.money_row(money.get(each.id)),
            ", ".join(suspended.get(each.id, ())),
        )
        for each in stored
    ]
    listed = [row for row in rows if not budgets or row[0] in money]
    console.print_table(COLUMNS, listed, () if wide else NARROW)


@campaign.command("show", examples=["snapbid campaign show spring"])
@click.argument("campaign_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print document and macros as JSON.")
def campaign_show(campaign_id: str, as_json: bool) -> None:
    """Show a campaign's stored document, its performance and its macros.

    Prints one line per macro: creative, field, line number in the field, the macro, and its
    context, such as a URL.
    """
    import msgspec

    from snapbid.campaigns.document import decode
    from snapbid.campaigns.review import macros_of
    from snapbid.warehouse import campaigns, conversions

    async def work(
        connection: "asyncpg.Connection",
    ) -> tuple[list[campaigns.StoredCampaign], list[conversions.Performance]]:
        stored = await campaigns.fetch_some(connection, [campaign_id])
        return stored, await conversions.fetch_performance(connection, campaigns=[campaign_id])

    stored, performance = console.in_warehouse(work)
    if not stored:
        raise console.Refused(console.no_campaign(campaign_id))
    text = stored[0].document
    try:
        document = decode(text)
    except ValueError:
        document = None
    macros = list(macros_of(document))
    if as_json:
        places = [
            {"creative": creative, "field": field, **msgspec.to_builtins(place)}
            for creative, field, place in macros
        ]
        value = {"document": msgspec.Raw(text.encode()), "macros": places}
        click.echo(_laid_out(msgspec.json.encode(value).decode()))
        return
    click.echo(_laid_out(text))
    if performance:
        click.echo()
        print_performance(performance)
    if not macros:
        return
    click.echo()
    console.print_table(
        ("creative", "field", "line", "macro", "place"),
        [
            (creative, field, place.line, f"{{{{{place.macro}}}}}", place)
            for creative, field, place in macros
        ],
    )


@campaign.command("pause", examples=["snapbid campaign pause spring"])
@click.argument("campaign_id", metavar="ID")
def campaign_pause(campaign_id: str) -> None:
    """Stop a campaign from bidding."""
    _set_status(campaign_id, "paused")


@campaign.command("resume", examples=["snapbid campaign resume spring"])
@click.argument("campaign_id", metavar="ID")
def campaign_resume(campaign_id: str) -> None:
    """Let a paused campaign bid again."""
    _set_status(campaign_id, "active")


@campaign.command("delete", examples=["snapbid campaign delete spring"])
@click.argument("campaign_id", metavar="ID")
def campaign_delete(campaign_id: str) -> None:
    """Delete a campaign; its counts and spend stay in the warehouse.

    A campaign imported later with the same id continues its spend and frequency caps, but `even`
    pacing starts over. To stop a campaign for a while, use `campaign pause`.
    """
    from snapbid.warehouse import campaigns

    with console.refusing(campaigns.UnknownCampaignError):
        console.in_warehouse(campaigns.delete, campaign_id)
    click.echo(f"{console.one_line(campaign_id)}: deleted")


def _set_status(campaign_id: str, status: Any) -> None:
    from snapbid.warehouse import campaigns

    with console.refusing(campaigns.UnknownCampaignError):
        changed = console.in_warehouse(campaigns.set_status, campaign_id, status)
    click.echo(f"{console.one_line(campaign_id)}: {status}{'' if changed else ' already'}")


def _laid_out(text: str) -> str:
    """Indent JSON without changing its numbers; keep it on one line if nested too deeply."""
    import msgspec

    try:
        return msgspec.json.format(text, indent=2)
    except RecursionError:
        return text


def _campaign_row(stored: Any) -> tuple[object, ...]:
    """Return a campaign's row for `snapbid campaign list`.

    The campaign's document may be any JSON, since SQL can write it unchecked.
    """
    from snapbid.campaigns.document import decode

    try:
        document = decode(stored.document)
    except ValueError:
        document = {}
    status = stored.status
    if status == "active":
        status = _outside_flight(document) or status
    creatives = document.get("creatives")
    media = {
        str(creative.get("media"))
        for creative in (creatives if isinstance(creatives, list) else [])
        if isinstance(creative, dict)
    }
    values = [document.get(key) for key in ("cpm", "advertiser", "name")]
    cpm, advertiser, name = ("" if value is None else value for value in values)
    return (stored.id, status, cpm, ",".join(sorted(media)), advertiser, name)


def _outside_flight(document: dict[str, Any]) -> str | None:
    from time import time

    from snapbid.campaigns.campaign import outside_flight
    from snapbid.campaigns.rules import Mistakes
    from snapbid.campaigns.value_rules import check_time

    starts, ends = (
        check_time(document.get(key), (), Mistakes()) for key in ("starts_at", "ends_at")
    )
    return outside_flight(starts, ends, int(time() * 1000))
