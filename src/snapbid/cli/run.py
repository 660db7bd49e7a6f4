"""`snapbid up`, `serve`, `drain`, `migrate` and `env`: run the processes, print settings."""

import os
import sys

import click

from snapbid.base.settings import load, require_serving
from snapbid.cli import console
from snapbid.cli.shell import ShellCommand
from snapbid.server.private import keep_private


@click.command(
    cls=ShellCommand,
    examples=["snapbid up", "SNAPBID_HOME=/srv/snapbid SNAPBID_WORKERS=4 snapbid up"],
)
def up() -> None:
    """Run everything on this machine: stores, schema, demo data, HTTP workers, the drain."""
    from snapbid.embedded.up import run

    keep_private()
    sys.exit(run(load(os.environ)))


@click.command(
    cls=ShellCommand,
    examples=["snapbid serve", "snapbid serve --record requests.jsonl --sample 0.001"],
)
@click.option("--record", metavar="FILE", help="Record a sample of bid requests for replay.")
@click.option("--sample", metavar="SHARE", help="Share of bid requests to record (default: 0.01).")
def serve(record: str | None, sample: str | None) -> None:
    """Run the HTTP workers against SNAPBID_REDIS_URL and SNAPBID_DATABASE_URL."""
    for variable, value in (("SNAPBID_RECORD", record), ("SNAPBID_RECORD_SAMPLE", sample)):
        if value is not None:
            os.environ[variable] = value  # the workers read them there
    settings = require_serving(load(os.environ))
    from snapbid.server.serve import serve as run

    keep_private()
    sys.exit(run(settings))


@click.command(cls=ShellCommand, examples=["snapbid drain"])
def drain() -> None:
    """Carry the counters in Redis to the warehouse; several drains share the work."""
    settings = console.with_stores()
    from snapbid.drain.run import run

    keep_private()
    sys.exit(run(settings, settings.metrics_path))


@click.command(cls=ShellCommand, examples=["snapbid migrate"])
def migrate() -> None:
    """Bring the warehouse schema up to date."""
    from snapbid.warehouse import migrate as schema

    dsn = console.database_url()
    with console.refusing(schema.MigrationError):
        applied = console.finish(schema.migrate(dsn), dsn)
    for name in applied:
        click.echo(f"applied {name}")
    if not applied:
        click.echo("the schema is up to date")


@click.command(cls=ShellCommand, examples=["export $(snapbid env)"])
def env() -> None:
    """Print the running embedded instance's settings, for `export $(snapbid env)`."""
    settings = load(os.environ)
    running = console.running(settings)
    if running is None:
        raise console.Refused(
            f"no embedded instance is running in {settings.home}: start one with snapbid up"
        )
    for name, value in running.items():
        click.echo(f"{name}={value}")
