"""The command line: a thin shell over the rooms (contract 1, "Commands").

Exit status: 0 done; 1 refused or failed, with one line a mistake on stderr; 2 wrong usage or
settings. What a command needs is imported when it runs, so that `snapbid --help` is quick.
"""

import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from snapbid.settings import Settings, SettingsError, load, require, require_secret

if TYPE_CHECKING:
    import asyncpg

T = TypeVar("T")
Work = Callable[["asyncpg.Connection"], Awaitable[T]]


class Refused(click.ClickException):
    """An operation that is not done; each line of the message stands on stderr as it is."""

    def show(self, file: Any = None) -> None:
        click.echo(self.message, err=True)


class WrongSettings(Refused):
    """Settings that do not allow the command to run."""

    exit_code = 2


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SettingsError as error:
            raise WrongSettings("\n".join(error.mistakes)) from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="snapbid", prog_name="snapbid")
def main() -> None:
    """Snapbid: an OpenRTB bidder with its reports."""


@main.command()
def up() -> None:
    """Run everything on this machine: stores, schema, demo data, HTTP workers, the drain."""
    from snapbid.up import run

    sys.exit(run(load(os.environ)))


@main.command()
def serve() -> None:
    """Run the HTTP workers against SNAPBID_REDIS_URL and SNAPBID_DATABASE_URL."""
    settings = load(os.environ)
    require(settings, "redis_url", "database_url", "jwt_secret")
    from snapbid.serving import serve as run

    sys.exit(run(settings))


@main.command()
def drain() -> None:
    """Carry what Redis has counted into the warehouse; a second one waits to take over."""
    settings = _with_stores(load(os.environ))
    from snapbid import wiring
    from snapbid.drain.run import run

    sys.exit(run(settings, wiring.metrics_path(settings)))


@main.command()
def migrate() -> None:
    """Bring the warehouse schema up to date."""
    from snapbid.warehouse import migrate as schema

    dsn = _database_url(load(os.environ))
    try:
        applied = _await(schema.migrate(dsn))
    except schema.MigrationError as error:
        raise Refused(str(error)) from error
    for name in applied:
        click.echo(f"applied {name}")
    if not applied:
        click.echo("the schema is up to date")


@main.command()
def env() -> None:
    """Print the settings of the running embedded instance, for `export $(snapbid env)`."""
    settings = load(os.environ)
    running = _running(settings)
    if running is None:
        raise Refused(f"no embedded instance runs in {settings.home}: start it with snapbid up")
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
        done = _warehouse(work)
    except registry.RegistryError as error:
        raise Refused(str(error)) from error
    change = f", was {done.before}" if done.outcome == "updated" else ""
    click.echo(f"{done.descriptor}: {done.outcome} (canonical {done.canonical}{change})")


@ssp.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def ssp_list(as_json: bool) -> None:
    """List the descriptors and their canonical ids."""
    from snapbid.warehouse import registry

    known = _warehouse(registry.fetch_all)
    if as_json:
        _print_json({"descriptor": name, "canonical": of} for name, of in known.items())
    else:
        _print_table(("descriptor", "canonical"), list(known.items()))


@main.group()
def token() -> None:
    """Tokens for the daily report."""


@token.command("issue")
@click.argument("ssp_id", metavar="SSP")
def token_issue(ssp_id: str) -> None:
    """Print a new token for a canonical SSP id, and nothing else."""
    from snapbid.report import tokens
    from snapbid.warehouse import registry

    key, issuer = _signing(load(os.environ))
    known = _warehouse(registry.fetch_all)
    canonical = known.get(ssp_id)
    if canonical is None:
        raise Refused(f"{ssp_id[:60]!a} is not registered: add it with snapbid ssp add")
    if canonical != ssp_id:
        raise Refused(
            f"{ssp_id} is a variant of {canonical}: a token for {canonical} covers all of its "
            "variants"
        )
    click.echo(tokens.issue(ssp_id, key, issuer))


@main.group()
def campaign() -> None:
    """Campaigns."""


@campaign.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
def campaign_import(file: str) -> None:
    """Import campaigns, all of them or none; a known id is replaced.

    FILE: .json holds an array or one object, anything else (and - for stdin) is JSON Lines.
    """
    import gc

    from snapbid.match.campaign import CampaignError
    from snapbid.match.campaign_file import read_file
    from snapbid.match.document import encode
    from snapbid.warehouse import campaigns

    gc.disable()  # a large file makes millions of objects, none of them garbage
    try:
        with click.open_file(file, "rb") as source:
            read = read_file(file, source.read())
    except CampaignError as error:
        raise Refused("\n".join(map(str, error.mistakes))) from error
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}") from error

    async def work(connection: "asyncpg.Connection") -> campaigns.Replaced:
        documents = ((each.id, encode(document)) for each, document in read)
        return await campaigns.replace_many(connection, documents)

    done = _warehouse(work)
    click.echo(
        f"{len(read)} campaigns imported: {done.added} added, {done.changed} changed, "
        f"{done.unchanged} as they were"
    )


@campaign.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array of the documents.")
def campaign_list(as_json: bool) -> None:
    """List the campaigns; with --json in a form that `campaign import` takes."""
    from snapbid.warehouse import campaigns

    async def work(connection: "asyncpg.Connection") -> list[campaigns.Stored]:
        return [stored async for stored in campaigns.fetch_all(connection)]

    stored = _warehouse(work)
    if as_json:
        _print_raw_json(each.document for each in stored)
    else:
        rows = [_campaign_row(each) for each in stored]
        _print_table(("id", "status", "cpm", "media", "advertiser", "name"), rows)


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
        changed = _warehouse(work)
    except campaigns.UnknownCampaignError as error:
        raise Refused(str(error)) from error
    click.echo(f"{campaign_id}: {status}{'' if changed else ' already'}")


def _running(settings: Settings) -> dict[str, str] | None:
    from snapbid.embedded.home import running_env
    from snapbid.embedded.process import EmbeddedError

    try:
        return running_env(settings.home)
    except EmbeddedError as error:
        raise Refused(str(error)) from error


def _database_url(settings: Settings) -> str:
    if settings.database_url is not None:
        return settings.database_url
    running = _running(settings)
    if running is None:
        raise WrongSettings(
            f"SNAPBID_DATABASE_URL is not set and no embedded instance runs in {settings.home}: "
            "set it, start one with snapbid up, or name its directory in SNAPBID_HOME"
        )
    return running["SNAPBID_DATABASE_URL"]


def _signing(settings: Settings) -> tuple[bytes, str]:
    """The key and the issuer of tokens: ours, else those of the running embedded instance."""
    from snapbid.report import tokens

    if settings.jwt_secret is None:
        running = _running(settings)
        if running is None:
            raise WrongSettings(
                f"SNAPBID_JWT_SECRET is not set and no embedded instance runs in {settings.home}: "
                "set it, or name the directory of one in SNAPBID_HOME"
            )
        settings = load(running | {name: value for name, value in os.environ.items() if value})
    key = require_secret(settings)
    try:
        tokens.check_key(key)
    except ValueError as error:
        raise WrongSettings(f"SNAPBID_JWT_SECRET cannot sign: {error}") from error
    return key, settings.jwt_issuer


def _with_stores(settings: Settings) -> Settings:
    """The settings, with the stores of the embedded instance where none are set."""
    if settings.redis_url is None and settings.database_url is None:
        running = _running(settings)
        if running is not None:
            return load(running)
    require(settings, "redis_url", "database_url")
    return settings


def _warehouse(work: Work[T]) -> T:
    """Run `work` on a connection to the warehouse."""
    dsn = _database_url(load(os.environ))

    async def session() -> T:
        import asyncpg

        connection = await asyncpg.connect(dsn)
        try:
            return await work(connection)
        finally:
            await connection.close()

    return _await(session())


def _await(work: Awaitable[T]) -> T:
    """Run to the end; what PostgreSQL or the way to it refuses is said in one line."""
    import asyncio

    import asyncpg

    async def run() -> T:
        return await work

    try:
        return asyncio.run(run())
    except (asyncpg.UndefinedTableError, asyncpg.UndefinedFunctionError) as error:
        raise Refused("the warehouse has no up-to-date schema: run snapbid migrate") from error
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
        reason = str(error) or type(error).__name__
        raise Refused(f"the warehouse (SNAPBID_DATABASE_URL) failed: {reason}") from error


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


def _print_json(values: Iterable[object]) -> None:
    import json

    _print_raw_json(json.dumps(value) for value in values)


def _print_raw_json(texts: Iterable[str]) -> None:
    body = ",\n".join(texts)
    click.echo(f"[\n{body}\n]" if body else "[]")


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table on a terminal, else one tab-separated line a row without a heading."""
    cells = [[_one_line(str(cell)) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in cells:
            click.echo("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns)
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)


def _one_line(text: str) -> str:
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


if __name__ == "__main__":
    main()
