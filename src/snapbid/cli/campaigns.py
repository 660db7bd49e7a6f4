"""`snapbid campaign`: list, pause and resume; `campaign import` has a module of its own."""

from typing import TYPE_CHECKING, Any

import click

from snapbid.cli import console
from snapbid.cli.campaign_import import import_campaigns

if TYPE_CHECKING:
    import asyncpg


@click.group()
def campaign() -> None:
    """Campaigns."""


campaign.add_command(import_campaigns)


@campaign.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array of the documents.")
@click.option("--budgets", is_flag=True, help="Only the budgeted ones, and only their money.")
def campaign_list(as_json: bool, budgets: bool) -> None:
    """List the campaigns with what they have spent; with --json alone as `campaign import` takes.

    Behind the name: pacing, and in USD what is spent in all and today, held, and what remains
    today, as far as pacing lets it, and in all. Without Redis these are left empty.
    """
    from snapbid.warehouse import campaigns

    async def work(connection: "asyncpg.Connection") -> list[campaigns.StoredCampaign]:
        return [stored async for stored in campaigns.fetch_all(connection)]

    stored = console.in_warehouse(work)
    if as_json and not budgets:
        console.print_raw_json(each.document for each in stored)
        return
    money = console.spending(stored, required=budgets)
    if as_json:
        console.print_json(money.values())
        return
    columns = ("id", "status", "cpm", "media", "advertiser", "name", *console.MONEY)
    rows = [_campaign_row(each) + console.money_row(money.get(each.id)) for each in stored]
    console.print_table(columns, [row for row in rows if not budgets or row[0] in money])


@campaign.command("pause")
@click.argument("campaign_id", metavar="ID")
def campaign_pause(campaign_id: str) -> None:
    """Stop a campaign from bidding."""
    _set_status(campaign_id, "paused")


@campaign.command("resume")
@click.argument("campaign_id", metavar="ID")
def campaign_resume(campaign_id: str) -> None:
    """Let a paused campaign bid again."""
    _set_status(campaign_id, "active")


def _set_status(campaign_id: str, status: Any) -> None:
    from snapbid.warehouse import campaigns

    async def work(connection: "asyncpg.Connection") -> bool:
        return await campaigns.set_status(connection, campaign_id, status)

    try:
        changed = console.in_warehouse(work)
    except campaigns.UnknownCampaignError as error:
        raise console.Refused(str(error)) from error
    click.echo(f"{console.one_line(campaign_id)}: {status}{'' if changed else ' already'}")


def _campaign_row(stored: Any) -> tuple[object, ...]:
    """Describe a document that plain SQL may have written in any form."""
    from snapbid.match.document import decode

    try:
        document = decode(stored.document)
    except ValueError:
        document = {}
    creatives = document.get("creatives")
    media = {
        str(creative.get("media"))
        for creative in (creatives if isinstance(creatives, list) else [])
        if isinstance(creative, dict)
    }
    values = [document.get(key) for key in ("cpm", "advertiser", "name")]
    cpm, advertiser, name = ("" if value is None else value for value in values)
    return (stored.id, stored.status, cpm, ",".join(sorted(media)), advertiser, name)
