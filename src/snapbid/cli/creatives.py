"""`snapbid creative`: list and resume creatives suspended at an SSP."""

from datetime import UTC, datetime

import click

from snapbid.cli import console
from snapbid.cli.shell import ShellGroup

COLUMNS = ("campaign", "creative", "ssp", "reason", "losses", "since", "until")


@click.group(cls=ShellGroup)
def creative() -> None:
    """Creatives suspended at an SSP that rejected them."""


@creative.command("list", examples=["snapbid creative list", "snapbid creative list --ssp acme"])
@click.option("--ssp", metavar="SSP", help="Only at this SSP (canonical id).")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def creative_list(ssp: str | None, as_json: bool) -> None:
    """List suspended creatives with the SSP, reason, number of losses and end of suspension.

    Losses with reasons 200 to 213 suspend a creative at the SSP that reports them; see
    SNAPBID_SUSPEND_LOSSES and SNAPBID_SUSPEND_S.
    """
    from snapbid.campaigns.suspensions import REASONS
    from snapbid.warehouse import suspensions

    suspended = console.in_warehouse(suspensions.fetch_suspended, ssp)
    if as_json:
        console.print_json(
            {name: getattr(each, name) for name in each.__struct_fields__} for each in suspended
        )
        return
    rows = [
        (
            *(each.campaign, each.creative, each.ssp),
            f"{each.reason}, {REASONS.get(each.reason, 'unknown')}",
            *(each.losses, _time(each.since), _time(each.until)),
        )
        for each in suspended
    ]
    console.print_table(COLUMNS, rows)


@creative.command(
    "resume",
    examples=["snapbid creative resume spring", "snapbid creative resume spring b1 --ssp acme"],
)
@click.argument("campaign_id", metavar="CAMPAIGN")
@click.argument("creative_id", metavar="[CREATIVE]", required=False)
@click.option("--ssp", metavar="SSP", help="Only at this SSP (canonical id).")
def creative_resume(campaign_id: str, creative_id: str | None, ssp: str | None) -> None:
    """Resume one or all suspended creatives of a campaign, and reset their loss counts."""
    from snapbid.warehouse import suspensions

    resumed = console.in_warehouse(suspensions.resume, campaign_id, creative_id, ssp)
    if not resumed:
        named = f" {creative_id[:60]!a}" if creative_id is not None else ""
        where = f" at {ssp[:60]!a}" if ssp is not None else ""
        raise console.Refused(
            f"there is no suspended creative{named} in campaign {campaign_id[:60]!a}{where}"
        )
    for each in resumed:
        click.echo(
            console.one_line(f"{each.campaign} {each.creative}: offered to {each.ssp} again")
        )


def _time(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
