"""`snapbid campaign check`: a file as `campaign import` would read it, and what its markup says."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from snapbid.cli import console
from snapbid.cli.shell import ShellCommand

if TYPE_CHECKING:
    from snapbid.match.campaign import CampaignMistake

COLUMNS = ("campaign", "creative", "media", "markup", "says")


@click.command("check", cls=ShellCommand, examples=["snapbid campaign check spring.json"])
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--json", "as_json", is_flag=True, help="Print an object: creatives and mistakes.")
def check_campaigns(file: str, as_json: bool) -> None:
    """Check campaigns as `campaign import` does, store nothing, and list what their markup says.

    A line for each creative: campaign, creative, media, kind of markup, and the fields that follow
    from it. Mistakes go to stderr, each with its line; with one, the exit status is 1. Campaigns
    that can never bid are named there, too.
    """
    from time import time

    now_ms = int(time() * 1000)
    mistakes: list[CampaignMistake] = []
    try:
        with click.open_file(file, "rb") as opened:
            creatives = _creatives(file, cast("BinaryIO", opened), mistakes, now_ms)
            _print(creatives, mistakes, as_json=as_json)
    except OSError as error:
        raise console.Refused(f"{file} cannot be read: {error.strerror}") from error
    if mistakes:
        raise console.Refused("\n".join(map(str, mistakes)))


def _creatives(
    file: str, source: BinaryIO, mistakes: "list[CampaignMistake]", now_ms: int
) -> Iterator[dict[str, Any]]:
    """Read a file; yield its creatives one by one, and gather its mistakes."""
    from snapbid.match.campaign import CampaignError
    from snapbid.match.campaign_file import read_file
    from snapbid.match.derived import derived_of
    from snapbid.match.futile import warning_of

    try:
        for campaign, _ in read_file(file, source):
            if warning := warning_of(campaign, now_ms):
                click.echo(console.one_line(warning), err=True)
            for creative in campaign.creatives:
                derived = derived_of(creative)
                yield {
                    "campaign": campaign.id,
                    "creative": creative.id,
                    "media": creative.media,
                    "markup": derived.markup,
                    "says": derived.fields,
                }
    except CampaignError as error:
        mistakes += error.mistakes


def _print(
    creatives: Iterator[dict[str, Any]], mistakes: "list[CampaignMistake]", *, as_json: bool
) -> None:
    """Print creatives as they come: a file may have millions."""
    import msgspec

    encode = msgspec.json.encode
    if as_json:
        separator = '{"creatives": [\n'
        for creative in creatives:
            click.echo(separator + encode(creative).decode(), nl=False)
            separator = ",\n"
        end = "\n]" if separator == ",\n" else f"{separator}]"
        click.echo(f'{end}, "mistakes": {encode(mistakes).decode()}}}')
    else:
        console.print_table(COLUMNS, map(_row, creatives))


def _row(creative: dict[str, Any]) -> tuple[str, ...]:
    says = " ".join(f"{name}={_shown(value)}" for name, value in creative["says"].items())
    return (*(creative[name] for name in COLUMNS[:-1]), says)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
