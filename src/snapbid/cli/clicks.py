"""`snapbid click`: read click ids, and rotate the keys that sign them."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from snapbid.cli import console
from snapbid.cli.shell import ShellGroup

if TYPE_CHECKING:
    import asyncpg


@click.group("click", cls=ShellGroup)
def clicks() -> None:
    """Click ids, which replace the macro {{click_id}} in creatives."""


@clicks.command("show", examples=["snapbid click show EQAAAAdhYmNkAAAACWVT8QBhdWN0aW9uLs…"])
@click.argument("click_id", metavar="ID")
def click_show(click_id: str) -> None:
    """Show a click id's contents as JSON: campaign, creative, SSP, time, and until when it counts.

    `auction` is the beginning of a digest of the auction and impression ids; null if the request's
    privacy signals did not permit it. `person` says whether the request identified a person.
    """
    from snapbid.campaigns.click_id import NO_AUCTION, Click, read
    from snapbid.warehouse import conversions

    async def work(
        connection: "asyncpg.Connection",
    ) -> tuple[Click, conversions.BoughtClick] | None:
        found = read(click_id, await conversions.fetch_keys(connection))
        if found is None:
            return None
        return found, (await conversions.fetch_bought(connection, [found]))[0]

    result = console.in_warehouse(work)
    if result is None:
        raise console.Refused(
            "this is not a click id of this warehouse: it was altered, issued elsewhere, made for a"
            " test bid, or signed with a key that is no longer valid"
        )
    found, bought = result
    shown: dict[str, Any] = {
        "campaign": bought.campaign,
        "creative": bought.creative,
        "descriptor": bought.descriptor,
        "time": datetime.fromtimestamp(found.time_s, UTC),
        "countsUntil": datetime.fromtimestamp(found.time_s + 86_400 * bought.days, UTC),
        "auction": None if found.auction == NO_AUCTION else found.auction.hex(),
        "person": found.person != 0,
    }
    console.print_object(shown)


@clicks.command("rotate", examples=["snapbid click rotate"])
@click.option("--yes", is_flag=True, help="Rotate even if clicks would stop counting.")
def click_rotate(yes: bool) -> None:
    """Sign click ids with a new key from now on.

    The current key stays valid until the next rotation. A rotation ends the previous key: while
    clicks signed with that key may still count, --yes is required. The keys are in the warehouse:
    back it up afterwards.
    """
    from snapbid.warehouse import conversions

    async def work(connection: "asyncpg.Connection") -> None:
        async with connection.transaction():
            end = await conversions.fetch_previous_end(connection)
            if end is not None and end > datetime.now(UTC) and not yes:
                raise console.Refused(
                    f"clicks signed with the previous key may count until {end:%F}; a rotation ends"
                    " that now: wait until then, or pass --yes (if a key has leaked)"
                )
            await conversions.rotate_keys(connection)

    console.in_warehouse(work)
    click.echo("click ids are signed with a new key; the previous one stays valid")
