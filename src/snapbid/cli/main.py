"""The command line: a thin layer over the other packages (contract 1, "Commands").

Exit status: 0 for success; 1 if refused or failed, with a line per mistake on stderr; 2 for wrong
usage or settings. Commands import their dependencies only when they run, to keep `snapbid --help`
quick.
"""

import sys
from typing import Any, Final

import click

from snapbid.base.errors import is_disk_full
from snapbid.base.settings import SettingsError
from snapbid.base.version import version
from snapbid.cli import console
from snapbid.cli.audiences import audience
from snapbid.cli.audit import audit
from snapbid.cli.campaigns import campaign
from snapbid.cli.clicks import clicks
from snapbid.cli.creatives import creative
from snapbid.cli.events import events, rates
from snapbid.cli.explain import explain
from snapbid.cli.export import export
from snapbid.cli.forget import forget
from snapbid.cli.golive import golive
from snapbid.cli.keys import key
from snapbid.cli.ledger import ledger
from snapbid.cli.load import load
from snapbid.cli.reconcile import reconcile
from snapbid.cli.run import drain, env, migrate, serve, up
from snapbid.cli.shell import ShellGroup
from snapbid.cli.ssps import ssp, token
from snapbid.cli.status import status

SERVERS: Final = ("up", "serve", "drain")  # which may run without stdout


class _Commands(ShellGroup):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SettingsError as error:
            raise console.WrongSettings("\n".join(error.mistakes)) from error
        except OSError as error:
            if error.filename is not None or not is_disk_full(error):
                raise
            raise console.Refused(f"the output cannot be written: {error.strerror}") from error


def _print_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(f"snapbid, version {version()}")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.pass_context
def main(ctx: click.Context) -> None:
    """Snapbid: an OpenRTB bidder with reports.

    Exit status of every command: 0 for success; 1 if refused or failed, with the reason on stderr;
    2 for wrong usage or settings.
    """
    if sys.stdout is None and ctx.invoked_subcommand not in SERVERS:
        raise console.Refused("stdout is closed: nothing was done, since nothing could be printed")


for command in (
    up, serve, drain, migrate, env, ssp, token, campaign, clicks, creative, audience, key, events,
    rates, explain, golive, load, export, ledger, audit, status, forget, reconcile,
):  # fmt: skip
    main.add_command(command)
