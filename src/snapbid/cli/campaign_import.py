"""`snapbid campaign import`: campaigns from a file, all of them or none."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import click

from snapbid.cli import console
from snapbid.cli.shell import ShellCommand

if TYPE_CHECKING:
    import asyncpg

    from snapbid.warehouse.campaigns import ImportCounts

REPORT_EVERY_S: Final = 5.0
MOST_WARNINGS: Final = 20
MANY: Final = 10_000  # campaigns that take a while to store


class _MistakesError(Exception):
    """Caused by a CampaignError. PostgreSQL logs why a COPY was aborted, and needs no details."""


@click.command(
    "import",
    cls=ShellCommand,
    examples=[
        "snapbid campaign import spring.json",
        "zcat campaigns.jsonl.gz | snapbid campaign import -",
    ],
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
def import_campaigns(file: str) -> None:
    """Import campaigns, all of them or none; a known id is replaced.

    FILE: .json holds an array or one object, anything else (and - for stdin) is JSON Lines, which
    may be millions. Mistakes are named by line, field and rule. Campaigns that can never bid,
    such as those that have ended, are imported with a warning.
    """
    import gc

    from snapbid.match.normalised import RULES
    from snapbid.warehouse import campaigns

    warnings: list[str] = []
    gc.disable()  # a large file makes millions of objects and no cyclic garbage

    try:
        with click.open_file(file, "rb") as opened:
            source = cast("BinaryIO", opened)

            async def work(connection: "asyncpg.Connection") -> "ImportCounts":
                return await campaigns.replace_many(
                    connection, _read(file, source, warnings), RULES
                )

            counts = console.in_warehouse(work)
    except _MistakesError as error:
        raise console.Refused(str(error.__cause__)) from error
    except OSError as error:
        raise console.Refused(f"{file} cannot be read: {error.strerror}") from error
    total = counts.added + counts.changed + counts.unchanged
    click.echo(
        f"{console.counted(total, 'campaign')} imported: {counts.added} added, "
        f"{counts.changed} changed, {counts.unchanged} as they were"
    )
    for warning in warnings[:MOST_WARNINGS]:
        click.echo(console.one_line(warning), err=True)
    if len(warnings) > MOST_WARNINGS:
        click.echo(f"and {len(warnings) - MOST_WARNINGS:,} more that can never bid", err=True)


def _read(file: str, source: BinaryIO, warnings: list[str]) -> Iterator[tuple[str, str, bytes]]:
    """Read the campaigns: id, document and normalised form. Progress goes to stderr."""
    from time import monotonic, time

    from snapbid.match.campaign import CampaignError
    from snapbid.match.campaign_file import read_file
    from snapbid.match.futile import warning_of
    from snapbid.match.normalised import encode

    now_ms = int(time() * 1000)
    reported_at, count = monotonic(), 0
    try:
        for count, (campaign, document) in enumerate(read_file(file, source), 1):
            if warning := warning_of(campaign, now_ms):
                warnings.append(warning)
            yield campaign.id, document, encode(campaign)
            if monotonic() - reported_at > REPORT_EVERY_S:
                reported_at = monotonic()
                print(f"{count:,} campaigns read", file=sys.stderr, flush=True)
    except CampaignError as error:
        raise _MistakesError("the file has mistakes") from error
    if count >= MANY:
        print(f"{count:,} campaigns read, now they are stored", file=sys.stderr, flush=True)
