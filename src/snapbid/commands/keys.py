"""`snapbid key list` and `key revoke`: which API keys there are, and the end of one."""

from typing import TYPE_CHECKING

import click

from snapbid import console

if TYPE_CHECKING:
    import asyncpg

    from snapbid.warehouse.products import Issued


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def list_keys(as_json: bool) -> None:
    """List the keys by their ids; the keys themselves are kept nowhere."""
    from snapbid.warehouse import products

    found = console.in_warehouse(products.fetch_issued)
    if as_json:
        console.print_json(each._asdict() for each in found)
        return
    rows = [(*each[:2], ",".join(each.presets), *each[3:]) for each in found]
    console.print_table(products.Issued._fields, rows)


@click.command()
@click.argument("key", metavar="KEY_OR_ID")
def revoke(key: str) -> None:
    """End a key, given itself or the id by which `key list` has it, within 2 s on every worker."""
    from snapbid.warehouse import products

    async def work(connection: "asyncpg.Connection") -> "Issued":
        return await products.revoke(connection, key)

    try:
        ended = console.in_warehouse(work)
    except products.ProductError as error:
        raise console.Refused(str(error)) from error
    click.echo(f"{ended.id}: revoked (product {ended.product})")
