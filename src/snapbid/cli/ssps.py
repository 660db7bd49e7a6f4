"""`snapbid ssp` and `snapbid token`: the SSP registry, and tokens for the daily report."""

import re
from typing import TYPE_CHECKING, Final, Literal

import click

from snapbid.base.access import MAX_QPS, Network, SspAccess, parse_networks
from snapbid.cli import console
from snapbid.cli.shell import ShellGroup

if TYPE_CHECKING:
    import asyncpg

ANY: Final = "any"


@click.group(cls=ShellGroup)
def ssp() -> None:
    """The SSP registry."""


@ssp.command("add", examples=["snapbid ssp add acme", "snapbid ssp add acme-eu --canonical acme"])
@click.argument("descriptor", metavar="ID")
@click.option("--canonical", metavar="ID", help="Registered id to report it under (default: ID).")
@click.option(
    "--open-days",
    is_flag=True,
    help="Apply the new canonical id to open days as well (a UTC day closes at 02:00 of the next).",
)
def ssp_add(descriptor: str, canonical: str | None, open_days: bool) -> None:
    """Register an SSP, or change a registered SSP's canonical id from the next day on."""
    from snapbid.warehouse import registry

    with console.refusing(registry.RegistryError):
        done = console.in_warehouse(registry.add, descriptor, canonical, open_days=open_days)
    change = f", was {done.before}" if done.outcome == "updated" else ""
    click.echo(f"{done.descriptor}: {done.outcome} (canonical {done.canonical}{change})")
    if done.until is not None:
        click.echo(
            f"{done.descriptor} is reported under {done.family} until the end of {done.until} (UTC)"
            + ("" if open_days else "; --open-days changes open days as well")
        )


@ssp.command(
    "set",
    examples=[
        "snapbid ssp set acme --allow 192.0.2.0/24 --allow 2001:db8::/32 --qps 500",
        "snapbid ssp set acme --qps any",
        "snapbid ssp set acme --signed-notices",
    ],
)
@click.argument("descriptor", metavar="ID")
@click.option(
    "--allow",
    "networks",
    metavar="CIDR",
    multiple=True,
    help="Accept requests only from this address or network; repeatable, replaces the previous "
    "list. `any` lifts the restriction.",
)
@click.option(
    "--qps",
    "rate",
    metavar="N",
    help="Limit on requests per second, across all workers; `any` removes it.",
)
@click.option(
    "--signed-notices/--plain-notices",
    "signed",
    default=None,
    help="Whether its notification URLs carry a token, and notices without one do not count.",
)
def ssp_set(
    descriptor: str, networks: tuple[str, ...], rate: str | None, signed: bool | None
) -> None:
    """Restrict the sources and rate of an SSP's bid requests, or sign its notices."""
    from snapbid.warehouse import registry

    if not networks and rate is None and signed is None:
        raise console.WrongInput("nothing to set: pass --allow, --qps or --signed-notices")
    allow, qps, mistakes = _access(networks, rate)
    if mistakes:
        raise console.WrongInput("\n".join(mistakes))

    with console.refusing(registry.RegistryError):
        access = console.in_warehouse(
            registry.set_access, descriptor, allow=allow, qps=qps, signed=signed
        )
    of, limit = ", ".join(access.allow) or "any", access.qps or "any"
    signs = ", notices signed" if access.signed else ""
    click.echo(f"{descriptor}: allow {of}, qps {limit}{signs}")


def _access(
    networks: tuple[str, ...], rate: str | None
) -> tuple[tuple[Network, ...] | None, int | Literal["any"] | None, list[str]]:
    """Parse --allow and --qps; return their values (None if not given) and the mistakes."""
    mistakes: list[str] = []
    allow: tuple[Network, ...] | None = None
    if networks == (ANY,):
        allow = ()
    elif networks:
        try:
            allow = parse_networks(networks)
        except ValueError as error:
            mistakes += [f"--allow {line}" for line in str(error).splitlines()]
    qps: int | Literal["any"] | None = None
    if rate == ANY:
        qps = ANY
    elif rate is not None:
        if re.fullmatch("[0-9]{1,7}", rate, re.ASCII) and 1 <= int(rate) <= MAX_QPS:
            qps = int(rate)
        else:
            mistakes.append(
                f"--qps {rate[:60]!a}: must be an integer from 1 to {MAX_QPS}, or {ANY}"
            )
    return allow, qps, mistakes


@ssp.command("remove", examples=["snapbid ssp remove acme-eu"])
@click.argument("descriptor", metavar="ID")
def ssp_remove(descriptor: str) -> None:
    """Remove an SSP: its bid requests get a 404. Its figures remain under its canonical id."""
    from snapbid.warehouse import registry

    with console.refusing(registry.RegistryError):
        console.in_warehouse(registry.remove, descriptor)
    click.echo(f"{descriptor}: removed")


@ssp.command("list", examples=["snapbid ssp list", "snapbid ssp list --json"])
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def ssp_list(as_json: bool) -> None:
    """List the descriptors with their canonical ids and restrictions."""
    from snapbid.warehouse import registry

    async def work(
        connection: "asyncpg.Connection",
    ) -> list[tuple[str, str, SspAccess]]:
        access = await registry.fetch_access(connection)
        known = await registry.fetch_all(connection)
        return [(name, of, access.get(name, SspAccess())) for name, of in known.items()]

    known = console.in_warehouse(work)
    if as_json:
        console.print_json(
            {"descriptor": name, "canonical": of, **access._asdict()} for name, of, access in known
        )
    else:
        rows = [
            (name, of, ",".join(each.allow), each.qps or "", "signed" if each.signed else "")
            for name, of, each in known
        ]
        console.print_table(("descriptor", "canonical", "allow", "qps", "notices"), rows)


@click.group(cls=ShellGroup)
def token() -> None:
    """Tokens for the daily report."""


@token.command("issue", examples=["snapbid token issue acme"])
@click.argument("ssp_id", metavar="SSP")
def token_issue(ssp_id: str) -> None:
    """Print a new token for a canonical SSP id, and nothing else."""
    from snapbid.report import tokens
    from snapbid.warehouse import registry

    key, issuer = console.signing()

    async def work(connection: "asyncpg.Connection") -> tuple[str | None, str]:
        canonical = (await registry.fetch_all(connection)).get(ssp_id)
        if canonical is not None and ssp_id in await registry.fetch_former(connection):
            canonical = ssp_id  # it may read the report of days under its own id
        if canonical != ssp_id:
            return canonical, ""
        return canonical, await tokens.issue_recorded(connection, ssp_id, key, issuer)

    canonical, issued = console.in_warehouse(work)
    if canonical is None:
        raise console.Refused(f"{ssp_id[:60]!a} is not registered: add it with snapbid ssp add")
    if canonical != ssp_id:
        raise console.Refused(
            f"{ssp_id} is a variant of {canonical}: issue a token for {canonical}, which covers "
            "all of its variants"
        )
    click.echo(issued)
