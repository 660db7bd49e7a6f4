"""`snapbid key`: issue, list and revoke API keys for server events."""

from typing import TYPE_CHECKING

import click

from snapbid.cli import console
from snapbid.cli.shell import ShellGroup

if TYPE_CHECKING:
    import asyncpg


@click.group(cls=ShellGroup)
def key() -> None:
    """API keys for server events."""


@key.command(
    "issue",
    examples=[
        "snapbid key issue shop",
        "snapbid key issue casino --preset igaming --rate 12000",
    ],
)
@click.argument("product", metavar="PRODUCT")
@click.option("--preset", "presets", multiple=True, type=click.Choice(["igaming"]),
              help="Subscribe the product to this preset.")  # fmt: skip
@click.option("--rate", metavar="N", type=int, help="Requests per minute (default: 6000).")
@click.option("--events", metavar="N", type=int, help="Events per minute (default: 60000).")
def key_issue(product: str, presets: tuple[str, ...], rate: int | None, events: int | None) -> None:
    """Print a new API key for a product; it is shown only once.

    If the product does not exist, it is created, with a message on stderr.
    """
    from snapbid.warehouse import products

    is_new = False

    async def work(connection: "asyncpg.Connection") -> str:
        nonlocal is_new
        is_new = product not in await products.fetch_names(connection)
        requests = products.RATE if rate is None else rate
        most = products.EVENTS if events is None else events
        return await products.issue(connection, product, presets, requests, most)

    with console.refusing(products.ProductError):
        issued = console.in_warehouse(work)
    if is_new:
        click.echo(f"created the product {product}", err=True)
    click.echo(issued)


@key.command("list", examples=["snapbid key list"])
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def list_keys(as_json: bool) -> None:
    """List the ids of all keys; the keys themselves are not stored."""
    from snapbid.warehouse import products

    keys = console.in_warehouse(products.fetch_issued)
    if as_json:
        console.print_json(key._asdict() for key in keys)
        return
    rows = [(*key[:2], ",".join(key.presets), *key[3:]) for key in keys]
    console.print_table(products.IssuedKey._fields, rows)


@key.command(examples=["snapbid key revoke 2f6a91c0d4e8"])
@click.argument("key_or_id", metavar="KEY_OR_ID")
def revoke(key_or_id: str) -> None:
    """Revoke a key, given in full or by its id in `key list`; it is refused within 2 s."""
    from snapbid.warehouse import products

    with console.refusing(products.ProductError):
        ended = console.in_warehouse(products.revoke, key_or_id)
    click.echo(f"{ended.id}: revoked (product {ended.product})")
