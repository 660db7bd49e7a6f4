"""`snapbid audience`: define, list and remove audiences."""

from typing import TYPE_CHECKING, Final

import click

from snapbid.cli import console
from snapbid.cli.shell import ShellGroup

if TYPE_CHECKING:
    import asyncpg

    from snapbid.campaigns.audiences import Audience
    from snapbid.warehouse.audiences import Listed


SHOWN: Final = 10  # campaigns listed in a refusal


@click.group(cls=ShellGroup)
def audience() -> None:
    """Audiences that campaigns target, defined by server events or by lists of ids."""


@audience.command(
    "add", examples=["snapbid audience add depositors.json", "snapbid audience add - < all.json"]
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
def audience_add(file: str) -> None:
    """Add the audiences in a JSON file (an object or an array), replacing those with the same id.

    Server events that are already stored count too, if they identify a person.
    """
    from snapbid.drain import audiences
    from snapbid.warehouse import products
    from snapbid.warehouse.audiences import fetch_listed

    added = _read(file)

    async def work(connection: "asyncpg.Connection") -> list[str]:
        known = await products.fetch_names(connection)
        for name in sorted({each.product for each in added}.difference(known)):
            click.echo(
                f"warning: the product {name!r} does not exist (letter case matters): audiences of"
                " its events have no members",
                err=True,
            )
        before = {each.id: each for each in await fetch_listed(connection)}
        return [
            _added(before.get(each.id), is_new=await audiences.add(connection, each))
            for each in added
        ]

    for each, what in zip(added, console.in_warehouse(work), strict=True):
        click.echo(f"{each.id}: {what}")


@audience.command("import", examples=["snapbid audience import newsletter ids.txt"])
@click.argument("audience_id", metavar="ID")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--empty", "may_be_empty", is_flag=True, help="Accept a file without ids.")
def audience_import(audience_id: str, file: str, may_be_empty: bool) -> None:
    """Create an audience from a file of ids, replacing any audience with the same ID.

    FILE has one id per line: an advertising id that is a UUID (device.ifa), or `ifa ID`,
    `buyeruid ID`, `user SSP ID`, `eid SOURCE ID`, or `hash DIGITS` from `snapbid audience hash`.
    Only keyed hashes of the ids are stored.
    """
    from snapbid.campaigns.value_rules import AUDIENCE_RULE
    from snapbid.campaigns.vocabulary import AUDIENCE_NAME
    from snapbid.warehouse import audiences

    if not AUDIENCE_NAME.fullmatch(audience_id):
        raise console.WrongInput(f"ID {AUDIENCE_RULE}")

    async def work(connection: "asyncpg.Connection") -> int:
        members = sorted(set(await _hashes(connection, file)))
        if not members and not may_be_empty:
            raise console.Refused(
                f"{file} has no ids, so campaigns that exclude the audience would be shown to"
                " everybody: pass --empty to accept that"
            )
        return await audiences.add_list(connection, audience_id, members)

    click.echo(f"{audience_id}: {console.counted(console.in_warehouse(work), 'member')}")


@audience.command("hash", examples=["snapbid audience hash ids.txt > hashes.txt"])
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
def audience_hash(file: str) -> None:
    """Hash the ids in a file, line by line, for `snapbid audience import`.

    The hashes are keyed with this warehouse's secret, so they mean nothing to any other warehouse.
    """
    from snapbid.campaigns.member_file import in_hex

    for member in console.in_warehouse(_hashes, file):
        click.echo(f"hash {in_hex(member)}")


@audience.command("list", examples=["snapbid audience list", "snapbid audience list --json"])
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def audience_list(as_json: bool) -> None:
    """List the audiences, and how many members (ids in bid requests) each has."""
    from snapbid.warehouse import audiences

    listed = console.in_warehouse(audiences.fetch_listed)
    if as_json:
        console.print_json(_shown(each) for each in listed)
        return
    console.print_table(audiences.Listed._fields, [list(_shown(each).values()) for each in listed])


@audience.command("remove", examples=["snapbid audience remove depositors-30d"])
@click.argument("audience_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Remove it even if campaigns use it.")
def audience_remove(audience_id: str, yes: bool) -> None:
    """Remove an audience; campaigns that include it no longer bid.

    An audience that campaigns use is only removed with --yes, since ads of campaigns that exclude
    it would then be shown to its members.
    """
    from snapbid.drain import audiences
    from snapbid.warehouse import campaigns

    async def work(connection: "asyncpg.Connection") -> bool:
        naming = await campaigns.fetch_naming(connection, audience_id)
        if naming and not yes:
            more = len(naming) - SHOWN
            listed = ", ".join(naming[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")
            raise console.Refused(
                f"the audience {audience_id} is used by {console.counted(len(naming), 'campaign')}"
                f" ({listed}): those that include it would no longer bid, those that exclude it"
                " would be shown to everybody; pass --yes to remove it anyway"
            )
        return await audiences.remove(connection, audience_id)

    if not console.in_warehouse(work):
        raise console.Refused(f"there is no audience with the id {audience_id[:60]!a}")
    click.echo(f"{audience_id}: removed")


def _added(before: "Listed | None", *, is_new: bool) -> str:
    if not is_new:
        return "unchanged"
    if before is None:
        return "added"
    if before.event is not None:
        return f"replaced an audience of {before.product}'s {before.event} events"
    return f"replaced a list of {console.counted(before.members, 'member')}"


def _read(file: str) -> "tuple[Audience, ...]":
    """Read the audiences in a file. Raises Refused, listing all mistakes."""
    import json
    from decimal import Decimal

    from snapbid.campaigns.audiences import parse
    from snapbid.campaigns.campaign import CampaignError
    from snapbid.drain.audiences import AUDIENCES

    try:
        with console.opened(file) as source:
            document = json.loads(source.read(), parse_float=Decimal)
        return parse(document, AUDIENCES)
    except CampaignError as error:
        raise console.Refused("\n".join(map(str, error.mistakes))) from error
    except (ValueError, RecursionError) as error:
        raise console.Refused(f"{file} is not JSON: {error}") from error


async def _hashes(connection: "asyncpg.Connection", file: str) -> list[int]:
    """Read and hash a file of ids. Raises Refused, listing the numbers of invalid lines."""
    from snapbid.campaigns.member_file import MemberError, read_members
    from snapbid.warehouse import persons, registry

    families = await registry.fetch_families(connection)
    key = await persons.fetch_key(connection)
    try:
        with console.opened(file) as source:
            return list(read_members(source, key, families))
    except MemberError as error:
        raise console.Refused(
            "\n".join(f"{file}: {each}" for each in str(error).split("\n"))
        ) from error


def _shown(listed: "Listed") -> dict[str, object]:
    micros = listed.min_amount_usd
    amount = None if micros is None else f"{micros / 1_000_000:.6f}"
    added = listed.added_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return listed._asdict() | {"min_amount_usd": amount, "added_at": added}
