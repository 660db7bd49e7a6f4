"""The command line: a thin shell over the rooms (contract 1, "Commands").

Exit status: 0 done; 1 refused or failed, with one line a mistake on stderr; 2 wrong usage or
settings. What a command needs is imported when it runs, so that `snapbid --help` is quick.
"""

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from snapbid import console
from snapbid.commands.campaign_import import import_campaigns
from snapbid.commands.explain import explain
from snapbid.commands.export import export
from snapbid.commands.golive import golive
from snapbid.commands.keys import list_keys, revoke
from snapbid.commands.load import load as load_command
from snapbid.server.private import keep_private
from snapbid.settings import SettingsError, load, require

if TYPE_CHECKING:
    import asyncpg


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SettingsError as error:
            raise console.WrongSettings("\n".join(error.mistakes)) from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="snapbid", prog_name="snapbid")
def main() -> None:
    """Snapbid: an OpenRTB bidder with its reports."""


@main.command()
def up() -> None:
    """Run everything on this machine: stores, schema, demo data, HTTP workers, the drain."""
    from snapbid.up import run

    keep_private()
    sys.exit(run(load(os.environ)))


@main.command()
@click.option("--record", metavar="FILE", help="Keep a sample of the bid requests, for replay.")
@click.option("--sample", metavar="SHARE", help="Of the bid requests (default: 0.01).")
def serve(record: str | None, sample: str | None) -> None:
    """Run the HTTP workers against SNAPBID_REDIS_URL and SNAPBID_DATABASE_URL."""
    for variable, value in (("SNAPBID_RECORD", record), ("SNAPBID_RECORD_SAMPLE", sample)):
        if value is not None:
            os.environ[variable] = value  # the workers read them there
    settings = load(os.environ)
    require(settings, "redis_url", "database_url", "jwt_secret")
    from snapbid.server.serve import serve as run

    keep_private()
    sys.exit(run(settings))


@main.command()
def drain() -> None:
    """Carry what Redis has counted into the warehouse; a second one waits to take over."""
    settings = console.with_stores(load(os.environ))
    from snapbid.drain.run import run

    keep_private()
    sys.exit(run(settings, settings.metrics_path))


@main.command()
def migrate() -> None:
    """Bring the warehouse schema up to date."""
    from snapbid.warehouse import migrate as schema

    dsn = console.database_url(load(os.environ))
    try:
        applied = console.finish(schema.migrate(dsn))
    except schema.MigrationError as error:
        raise console.Refused(str(error)) from error
    for name in applied:
        click.echo(f"applied {name}")
    if not applied:
        click.echo("the schema is up to date")


@main.command()
def env() -> None:
    """Print the settings of the running embedded instance, for `export $(snapbid env)`."""
    settings = load(os.environ)
    running = console.running(settings)
    if running is None:
        raise console.Refused(
            f"no embedded instance runs in {settings.home}: start it with snapbid up"
        )
    for name, value in running.items():
        click.echo(f"{name}={value}")


@main.group()
def ssp() -> None:
    """The SSP registry."""


@ssp.command("add")
@click.argument("descriptor", metavar="ID")
@click.option("--canonical", metavar="ID", help="The registered id it counts under (default: ID).")
def ssp_add(descriptor: str, canonical: str | None) -> None:
    """Register an SSP, or give a known one another canonical id."""
    from snapbid.warehouse import registry

    async def work(connection: "asyncpg.Connection") -> registry.Registered:
        return await registry.add(connection, descriptor, canonical)

    try:
        done = console.in_warehouse(work)
    except registry.RegistryError as error:
        raise console.Refused(str(error)) from error
    change = f", was {done.before}" if done.outcome == "updated" else ""
    click.echo(f"{done.descriptor}: {done.outcome} (canonical {done.canonical}{change})")


@ssp.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def ssp_list(as_json: bool) -> None:
    """List the descriptors and their canonical ids."""
    from snapbid.warehouse import registry

    known = console.in_warehouse(registry.fetch_all)
    if as_json:
        console.print_json({"descriptor": name, "canonical": of} for name, of in known.items())
    else:
        console.print_table(("descriptor", "canonical"), list(known.items()))


@main.group()
def token() -> None:
    """Tokens for the daily report."""


@token.command("issue")
@click.argument("ssp_id", metavar="SSP")
def token_issue(ssp_id: str) -> None:
    """Print a new token for a canonical SSP id, and nothing else."""
    from snapbid.report import tokens
    from snapbid.warehouse import registry

    key, issuer = console.signing(load(os.environ))
    known = console.in_warehouse(registry.fetch_all)
    canonical = known.get(ssp_id)
    if canonical is None:
        raise console.Refused(f"{ssp_id[:60]!a} is not registered: add it with snapbid ssp add")
    if canonical != ssp_id:
        raise console.Refused(
            f"{ssp_id} is a variant of {canonical}: a token for {canonical} covers all of its "
            "variants"
        )
    click.echo(tokens.issue(ssp_id, key, issuer))


@main.group()
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

    async def work(connection: "asyncpg.Connection") -> list[campaigns.Stored]:
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


@main.group()
def key() -> None:
    """API keys for server events."""


@key.command("issue")
@click.argument("product", metavar="PRODUCT")
@click.option("--preset", "presets", multiple=True, type=click.Choice(["igaming"]),
              help="Subscribe the product to it.")  # fmt: skip
@click.option("--rate", metavar="N", type=int, help="Requests per minute (default: 6000).")
def key_issue(product: str, presets: tuple[str, ...], rate: int | None) -> None:
    """Print a new API key of a product, and nothing else; it is shown this once."""
    from snapbid.warehouse import products

    async def work(connection: "asyncpg.Connection") -> str:
        per_minute = products.RATE if rate is None else rate
        return await products.issue(connection, product, presets, per_minute)

    try:
        click.echo(console.in_warehouse(work))
    except products.ProductError as error:
        raise console.Refused(str(error)) from error


@main.group()
def events() -> None:
    """Server events."""


@events.command("replay")
def events_replay() -> None:
    """Send again what could not be stored."""
    from redis.exceptions import RedisError

    from snapbid.drain.replay import replay

    settings = console.with_stores(load(os.environ))
    try:
        count = console.finish(replay(settings))
    except RedisError as error:
        raise console.Refused(f"Redis (SNAPBID_REDIS_URL) failed: {error}") from error
    click.echo(f"{count} sent again")


@main.group()
def rates() -> None:
    """Exchange rates of your own."""


@rates.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
def rates_import(file: str) -> None:
    """Import rates, all of them or none; a known currency and date is replaced.

    FILE: .json holds an array or one object, anything else (and - for stdin) is JSON Lines.
    """
    from snapbid.warehouse import rates as table

    try:
        with click.open_file(file, "rb") as source:
            read = table.read_file(file, source.read())
    except table.RatesError as error:
        raise console.Refused("\n".join(map(str, error.mistakes))) from error
    except OSError as error:
        raise console.Refused(f"{file} cannot be read: {error.strerror}") from error

    async def work(connection: "asyncpg.Connection") -> None:
        await table.replace_many(connection, read)

    console.in_warehouse(work)
    click.echo(f"{len(read)} rates imported")


key.add_command(list_keys)
key.add_command(revoke)
main.add_command(explain)
main.add_command(golive)
main.add_command(load_command)
main.add_command(export)


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


if __name__ == "__main__":
    main()
