"""`snapbid ssp` and `snapbid token`: the SSP registry, and tokens for the daily report."""

import os
from typing import TYPE_CHECKING

import click

from snapbid.cli import console
from snapbid.settings import load

if TYPE_CHECKING:
    import asyncpg


@click.group()
def ssp() -> None:
    """The SSP registry."""


@ssp.command("add")
@click.argument("descriptor", metavar="ID")
@click.option("--canonical", metavar="ID", help="The registered id it counts under (default: ID).")
def ssp_add(descriptor: str, canonical: str | None) -> None:
    """Register an SSP, or give a known one another canonical id."""
    from snapbid.warehouse import registry

    async def work(connection: "asyncpg.Connection") -> registry.Registered:
        return await registry.add(connection, descriptor, canonical)

    try:
        done = console.in_warehouse(work)
    except registry.RegistryError as error:
        raise console.Refused(str(error)) from error
    change = f", was {done.before}" if done.outcome == "updated" else ""
    click.echo(f"{done.descriptor}: {done.outcome} (canonical {done.canonical}{change})")


@ssp.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def ssp_list(as_json: bool) -> None:
    """List the descriptors and their canonical ids."""
    from snapbid.warehouse import registry

    known = console.in_warehouse(registry.fetch_all)
    if as_json:
        console.print_json({"descriptor": name, "canonical": of} for name, of in known.items())
    else:
        console.print_table(("descriptor", "canonical"), list(known.items()))


@click.group()
def token() -> None:
    """Tokens for the daily report."""


@token.command("issue")
@click.argument("ssp_id", metavar="SSP")
def token_issue(ssp_id: str) -> None:
    """Print a new token for a canonical SSP id, and nothing else."""
    from snapbid.report import tokens
    from snapbid.warehouse import audit, registry

    key, issuer = console.signing(load(os.environ))
    jti = tokens.new_id()

    async def work(connection: "asyncpg.Connection") -> str | None:
        canonical = (await registry.fetch_all(connection)).get(ssp_id)
        if canonical == ssp_id:
            await audit.record(connection, "token", ssp_id, "issued", {"jti": [None, jti]})
        return canonical

    canonical = console.in_warehouse(work)
    if canonical is None:
        raise console.Refused(f"{ssp_id[:60]!a} is not registered: add it with snapbid ssp add")
    if canonical != ssp_id:
        raise console.Refused(
            f"{ssp_id} is a variant of {canonical}: a token for {canonical} covers all of its "
            "variants"
        )
    click.echo(tokens.issue(ssp_id, key, issuer, jti))
