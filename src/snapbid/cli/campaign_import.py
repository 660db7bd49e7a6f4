"""`snapbid campaign import`: import the campaigns in a file, all or none."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from snapbid.cli import console
from snapbid.cli.shell import ShellCommand

if TYPE_CHECKING:
    import asyncpg

    from snapbid.campaigns.campaign import CampaignMistake
    from snapbid.campaigns.review import Known
    from snapbid.warehouse.campaigns import ImportCounts

REPORT_EVERY_S: Final = 5.0
MOST_WARNINGS: Final = 1_000
MANY: Final = 10_000  # campaigns, which take a while to store


class _MistakesError(Exception):
    """Aborts the import. Its message has no details, since PostgreSQL logs why a COPY failed."""


@click.command(
    "import",
    cls=ShellCommand,
    examples=[
        "snapbid campaign import spring.json",
        "zcat campaigns.jsonl.gz | snapbid campaign import -",
    ],
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--strict", is_flag=True, help="Treat warnings as errors, and import nothing.")
def import_campaigns(file: str, strict: bool) -> None:
    """Import campaigns, all or none; an existing id is replaced.

    FILE has an array or a single object if its name ends in .json. Any other file, and stdin (-),
    has JSON Lines, up to millions of them. Mistakes and warnings name line, field and rule.
    Warnings do not prevent the import. They concern markup that deviates from its standard or is
    probably a mistake, campaigns that can never bid, for instance because they have ended, and
    campaigns that name an audience, product, SSP or category that does not exist.
    """
    import gc

    from snapbid.campaigns.normalised import RULES
    from snapbid.warehouse import campaigns

    warnings: list[str] = []
    gc.disable()  # a large file makes millions of objects and no cyclic garbage

    try:
        with console.opened(file) as source:

            async def work(connection: "asyncpg.Connection") -> "ImportCounts":
                known = await console.known_names(connection)
                read = _read(file, source, warnings, known, strict=strict)
                return await campaigns.replace_many(connection, read, RULES)

            counts = console.in_warehouse(work)
    except _MistakesError as error:
        why = str(error.__cause__ or error)
        raise console.Refused("\n".join([why, *_lines(warnings)])) from error
    total = counts.added + counts.changed + counts.unchanged
    click.echo(
        f"{console.counted(total, 'campaign')} imported: {counts.added} added, "
        f"{counts.changed} changed, {counts.unchanged} unchanged"
    )
    for line in _lines(warnings):
        click.echo(line, err=True)


def _lines(warnings: list[str]) -> list[str]:
    lines = [f"warning: {console.one_line(warning)}" for warning in warnings[:MOST_WARNINGS]]
    if more := len(warnings) - len(lines):
        lines.append(f"and {more:,} more warnings: snapbid campaign check lists them all")
    return lines


def _read(
    file: str, source: BinaryIO, warnings: list[str], known: "Known", *, strict: bool
) -> Iterator[tuple[str, str, bytes]]:
    """Yield id, document and normalised form of each campaign; report progress on stderr."""
    from time import monotonic, time

    from snapbid.campaigns.campaign import CampaignError
    from snapbid.campaigns.campaign_file import read_file
    from snapbid.campaigns.normalised import encode
    from snapbid.campaigns.review import warnings_of

    now_ms = int(time() * 1000)
    reported_at, count = monotonic(), 0
    found: list[CampaignMistake] = []
    try:
        for count, (campaign, document) in enumerate(read_file(file, source, found), 1):
            warnings += map(str, found)
            found.clear()
            warnings += warnings_of(campaign, now_ms, known)
            yield campaign.id, document, encode(campaign)
            if monotonic() - reported_at > REPORT_EVERY_S:
                reported_at = monotonic()
                print(f"{count:,} campaigns read", file=sys.stderr, flush=True)
    except CampaignError as error:
        warnings += map(str, error.warnings)
        raise _MistakesError("the file has errors") from error
    if strict and warnings:
        raise _MistakesError("nothing was imported: --strict treats warnings as errors")
    if count >= MANY:
        print(f"{count:,} campaigns read; storing them", file=sys.stderr, flush=True)
