"""`snapbid campaign check`: a dry run of `campaign import` that lists the creatives."""

import contextlib
import errno
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import click

from snapbid.base.errors import is_disk_full
from snapbid.cli import console
from snapbid.cli.shell import ShellCommand

if TYPE_CHECKING:
    from snapbid.campaigns.campaign import CampaignMistake
    from snapbid.campaigns.review import Known
    from snapbid.operations.preview import Preview

COLUMNS = ("campaign", "creative", "media", "markup", "says")
_CREATIVE: Final = re.compile(r"(?:\[\d+\]\.)?creatives\[(\d+)\]")


@click.command(
    "check",
    cls=ShellCommand,
    examples=[
        "snapbid campaign check spring.json",
        "snapbid campaign check spring.json --preview p",
    ],
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--json", "as_json", is_flag=True, help="Print an object: creatives, warnings and mistakes."
)
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.option("--preview", "folder", metavar="DIR", help="Write a page that renders the creatives.",
              type=click.Path(file_okay=False, path_type=Path))  # fmt: skip
def check_campaigns(file: str, as_json: bool, strict: bool, folder: Path | None) -> None:
    """Check campaigns as `campaign import` does, without storing them, and list their creatives.

    Prints one line per creative: campaign, creative, media, kind of markup, and fields derived from
    the markup. Mistakes and warnings go to stderr, one per line. Campaigns that can never bid get a
    warning; so do unknown categories and, if a warehouse is set or an embedded one is running,
    unknown audiences, products and SSPs. The exit status is 1 if there is a mistake.
    """
    from time import time

    known = console.in_warehouse(console.known_names) if console.has_warehouse() else None
    check = _Check(file, int(time() * 1000), known)
    try:
        with click.open_file(file, "rb") as opened, _previewed(folder) as page:
            _print(check.creatives(cast("BinaryIO", opened), page), check, as_json=as_json)
    except OSError as error:
        if error.errno == errno.EPIPE or (folder is None and is_disk_full(error)):
            raise  # an error of the output
        name = error.filename or file
        raise console.Refused(f"{name} cannot be read or written: {error.strerror}") from error
    if folder is not None:
        click.echo(f"wrote the preview to {folder / 'index.html'}", err=True)
    if check.mistakes or (strict and check.warned):
        why = [*map(str, check.mistakes)] or ["--strict treats the warnings above as mistakes"]
        raise console.Refused("\n".join(why))


def _previewed(folder: Path | None) -> "contextlib.AbstractContextManager[Preview | None]":
    if folder is None:
        return contextlib.nullcontext()
    from snapbid.operations.preview import preview

    return preview(folder)


class _Check:
    """Reads a file of campaigns, and collects mistakes and warnings about them."""

    def __init__(self, file: str, now_ms: int, known: "Known | None") -> None:
        self.mistakes: list[CampaignMistake] = []
        self.warnings: list[CampaignMistake] = []
        self.warned = False
        self._file = file
        self._now_ms = now_ms
        self._known = known

    def creatives(self, source: BinaryIO, page: "Preview | None") -> Iterator[dict[str, Any]]:
        """Yield the creatives one by one, with their warnings."""
        from snapbid.campaigns.campaign import CampaignError
        from snapbid.campaigns.campaign_file import read_file
        from snapbid.campaigns.review import derived_of, warnings_of

        found: list[CampaignMistake] = []
        try:
            for campaign, _ in read_file(self._file, source, found):
                for warning in warnings_of(campaign, self._now_ms, self._known):
                    self._warn_of_campaign(warning)
                warned = self._by_creative(found)
                for index, creative in enumerate(campaign.creatives):
                    derived = derived_of(creative)
                    warnings = warned.get(index, [])
                    for each in warnings:
                        self._warn(str(each))
                    if page is not None:
                        says = {name: _shown(value) for name, value in derived.fields.items()}
                        rules = [warning.rule for warning in warnings]
                        page.add(campaign, creative, derived.markup, says, rules)
                    yield {
                        "campaign": campaign.id,
                        "creative": creative.id,
                        "media": creative.media,
                        "markup": derived.markup,
                        "says": derived.fields,
                        "warnings": warnings,
                    }
        except CampaignError as error:
            self.mistakes += error.mistakes
            self.warnings += error.warnings
            for each in error.warnings:
                self._warn(str(each))

    @staticmethod
    def _by_creative(warnings: "list[CampaignMistake]") -> "dict[int, list[CampaignMistake]]":
        """Group a campaign's warnings by the index of their creative, and clear `warnings`."""
        found: dict[int, list[CampaignMistake]] = {}
        for warning in warnings:
            index = _CREATIVE.match(warning.field)
            found.setdefault(int(index[1]) if index is not None else 0, []).append(warning)
        warnings.clear()
        return found

    def _warn_of_campaign(self, warning: str) -> None:
        from snapbid.campaigns.campaign import CampaignMistake

        self.warnings.append(CampaignMistake("", warning))
        self._warn(warning)

    def _warn(self, warning: str) -> None:
        self.warned = True
        click.echo(f"warning: {console.one_line(warning)}", err=True)


def _print(creatives: Iterator[dict[str, Any]], check: _Check, *, as_json: bool) -> None:
    """Print creatives one by one, since a file may have millions."""
    import msgspec

    encode = msgspec.json.encode
    if as_json:
        separator = '{"creatives": [\n'
        for creative in creatives:
            click.echo(separator + encode(creative).decode(), nl=False)
            separator = ",\n"
        end = "\n]" if separator == ",\n" else f"{separator}]"
        warnings, mistakes = encode(check.warnings).decode(), encode(check.mistakes).decode()
        click.echo(f'{end}, "warnings": {warnings}, "mistakes": {mistakes}}}')
    else:
        console.print_table(COLUMNS, map(_row, creatives))


def _row(creative: dict[str, Any]) -> tuple[str, ...]:
    says = " ".join(f"{name}={_shown(value)}" for name, value in creative["says"].items())
    return (*(creative[name] for name in COLUMNS[:-1]), says)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
