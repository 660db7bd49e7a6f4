"""`snapbid campaign performance`: the cost of campaigns, and conversions from their clicks."""

import csv
import sys
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING

import click

from snapbid.base.words import inert
from snapbid.cli import console
from snapbid.cli.shell import ShellCommand

if TYPE_CHECKING:
    from snapbid.warehouse.conversions import Performance

NARROW = (
    "campaign", "imps", "spend", "registrations", "first_deposits", "net_deposits",
    "gross_revenue", "return_on_spend",
)  # fmt: skip


@click.command(
    "performance",
    cls=ShellCommand,
    examples=[
        "snapbid campaign performance",
        "snapbid campaign performance spring --from 2026-11-01 --to 2026-11-30",
        "snapbid campaign performance --csv > performance.csv",
    ],
)
@click.argument("campaign_ids", metavar="[ID]...", nargs=-1)
@click.option("--from", "first", type=console.day, help="The first day (UTC); default: all.")
@click.option("--to", "last", type=console.day, help="The last day (UTC); default: all.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def campaign_performance(
    campaign_ids: tuple[str, ...],
    first: date | None,
    last: date | None,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Show campaigns' costs and the conversions from their clicks, in USD, highest cost first.

    Registrations, first deposits, net deposits (less withdrawals) and gross revenue (stakes less
    winnings) come from events that count for a click; JSON and CSV have all the figures. Amounts in
    a currency without an exchange rate, or over a billion USD, are unvalued and count as 0.
    """
    from snapbid.warehouse import conversions

    if as_csv and as_json:
        raise console.WrongInput("--csv and --json cannot be combined")
    days = (first or date.min, last or date.max)
    if days[0] > days[1]:
        raise console.WrongInput("--to must not be before --from")
    rows = console.in_warehouse(conversions.fetch_performance, *days, campaign_ids or None)
    if as_json:
        console.print_json(
            {name: _number(it) for name, it in row._asdict().items()} for row in rows
        )
    elif as_csv:
        _print_csv(rows)
    else:
        print_performance(rows, NARROW)
    for campaign_id in sorted(set(campaign_ids) - {row.campaign for row in rows}):
        click.echo(f"warning: there are no figures for {campaign_id[:60]!a}", err=True)
    _warn_of_unvalued(rows)


def print_performance(rows: "Sequence[Performance]", narrow: Sequence[str] = ()) -> None:
    from snapbid.warehouse.conversions import Performance

    columns = [name for name in Performance._fields if name != "conversions"]
    console.print_table(columns, [[getattr(row, name) for name in columns] for row in rows], narrow)


def _warn_of_unvalued(rows: "Sequence[Performance]") -> None:
    if unvalued := sum(row.unvalued for row in rows):
        click.echo(
            f"warning: {console.counted(unvalued, 'amount')} counted as 0 USD: over a billion USD,"
            " or without an exchange rate (add rates with `snapbid rates import`)",
            err=True,
        )


def _print_csv(rows: "Sequence[Performance]") -> None:
    from snapbid.warehouse.conversions import Performance

    columns = [name for name in Performance._fields if name != "conversions"]
    events = sorted({event for row in rows for event in row.conversions})
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([*columns, *map(inert, events)])
    for row in rows:
        values = row._replace(campaign=inert(row.campaign))
        numbers = [row.conversions.get(event, 0) for event in events]
        writer.writerow([*(getattr(values, name) for name in columns), *numbers])


def _number(value: object) -> object:
    from decimal import Decimal

    return float(value) if isinstance(value, Decimal) else value
