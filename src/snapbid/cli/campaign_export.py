"""`snapbid campaign export`: write stored campaigns to a file for `campaign import`."""

import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from snapbid.cli import console
from snapbid.cli.shell import ShellCommand

if TYPE_CHECKING:
    import asyncpg

    from snapbid.warehouse.campaigns import StoredCampaign


@click.command(
    "export",
    cls=ShellCommand,
    examples=[
        "snapbid campaign export > campaigns.jsonl",
        "snapbid campaign export spring summer --output two.json",
    ],
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--output", "path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
              help="Write to this file, which must not exist.")  # fmt: skip
def export_campaigns(ids: tuple[str, ...], path: Path | None) -> None:
    """Export all campaigns, or those with the given ids, for `campaign import`.

    The format is JSON Lines, or an array if FILE ends in .json. It includes each campaign's current
    status.
    """
    from snapbid.warehouse import campaigns

    as_array = path is not None and path.suffix == ".json"

    async def work(connection: "asyncpg.Connection") -> int:
        missing = set(ids)
        if ids:
            missing -= {each.id for each in await campaigns.fetch_some(connection, ids)}
        if missing:
            raise console.Refused("\n".join(map(console.no_campaign, sorted(missing))))
        async with contextlib.aclosing(campaigns.fetch_all(connection)) as stored:
            wanted = (each async for each in stored if not ids or each.id in ids)
            with _opened(path) as out:
                return await _write(wanted, out, as_array=as_array)

    count = console.in_warehouse(work)
    if path is not None:
        click.echo(f"wrote {console.counted(count, 'campaign')} to {path}")


@contextlib.contextmanager
def _opened(path: Path | None) -> Iterator[TextIO]:
    """Open a new file, or stdout. Raises Refused if the file exists or cannot be written."""
    if path is None:
        yield sys.stdout
        return
    try:
        with path.open("x", encoding="utf-8") as out:
            yield out
    except FileExistsError as error:
        raise console.Refused(f"{path} already exists: choose another file or remove it") from error
    except OSError as error:
        raise console.Refused(f"{path} cannot be written: {error.strerror}") from error


async def _write(campaigns: AsyncIterator["StoredCampaign"], out: TextIO, *, as_array: bool) -> int:
    """Write documents one by one, since there may be millions; return how many."""
    count = 0
    async for stored in campaigns:
        if as_array:
            out.write(",\n" if count else "[\n")
        out.write(stored.document + ("" if as_array else "\n"))
        count += 1
    if as_array:
        out.write("\n]\n" if count else "[]\n")
    return count
