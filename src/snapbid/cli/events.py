"""`snapbid events` and `snapbid rates`: replay dead letters, manage exchange rates."""

from datetime import date

import click

from snapbid.cli import console
from snapbid.cli.shell import ShellGroup


@click.group(cls=ShellGroup)
def events() -> None:
    """Server events: replay dead letters."""


@events.command("replay", examples=["snapbid events replay"])
def events_replay() -> None:
    """Replay dead-lettered events by queueing them for the drain again."""
    from redis.exceptions import RedisError

    from snapbid.drain.replay import replay

    settings = console.check_ledger()
    try:
        count = console.finish(replay(settings), settings.database_url)
    except RedisError as error:
        raise console.redis_failed(error, settings.redis_url) from error
    click.echo(f"{console.counted(count, 'event')} replayed")


@click.group(cls=ShellGroup)
def rates() -> None:
    """Your own exchange rates, for bids, floors and the amounts of events."""


@rates.command("import", examples=["snapbid rates import rates.json"])
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
def rates_import(file: str) -> None:
    """Import rates, all or none; an existing rate for the same currency and date is replaced.

    FILE has an array or a single object if its name ends in .json. Any other file, and stdin (-),
    has JSON Lines.
    """
    from snapbid.campaigns.campaign import CampaignError
    from snapbid.campaigns.campaign_file import read_documents
    from snapbid.warehouse import rates as table

    try:
        with console.opened(file) as source:
            read = [entry for entry, _ in read_documents(file, source, table.rule(), "rate")]
    except CampaignError as error:
        raise console.Refused("\n".join(map(str, error.mistakes))) from error
    console.in_warehouse(table.replace_many, read)
    click.echo(f"{console.counted(len(read), 'rate')} imported")


@rates.command("list", examples=["snapbid rates list", "snapbid rates list --json"])
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def rates_list(as_json: bool) -> None:
    """List your own rates; each applies from its date until the currency's next rate, if any.

    --json prints the entries in the format of `import`.
    """
    from snapbid.warehouse import rates as table

    found = console.in_warehouse(table.fetch_all)
    rows = [(code, str(day), f"{usd:f}") for code, of in found.items() for day, usd in of]
    columns = ("currency", "date", "usd")
    if as_json:
        console.print_json(dict(zip(columns, row, strict=True)) for row in rows)
        return
    console.print_table(columns, rows)


@rates.command(
    "remove", examples=["snapbid rates remove EUR", "snapbid rates remove BTC --date 2026-01-31"]
)
@click.argument("currency")
@click.option("--date", "day", type=console.day, help="Only the rate of this day.")
def rates_remove(currency: str, day: date | None) -> None:
    """Remove your own rates for a currency: all of them, or one day's.

    Stored amounts stay as they are. Without your own rate, the European Central Bank's applies.
    """
    from snapbid.warehouse import rates as table

    currency = currency.upper()
    removed = console.in_warehouse(table.remove, currency, day)
    if not removed:
        on_day = "" if day is None else f" on {day}"
        raise console.Refused(f"you have no rate of your own for {currency[:60]!a}{on_day}")
    click.echo(f"{currency}: {console.counted(removed, 'rate')} removed")
