"""`snapbid golive SSP`: document 2's go-live checklist (contract 1, "Commands")."""

import re
import sys
from typing import TYPE_CHECKING, Final

import click

from snapbid.base.settings import StoreSettings
from snapbid.base.words import utc
from snapbid.cli import console
from snapbid.cli.shell import ShellCommand

if TYPE_CHECKING:
    from snapbid.operations.golive.checklist import Item
    from snapbid.operations.golive.store import SspRequestStats

MINUTES: Final = {"m": 1, "h": 60, "d": 24 * 60}
MOST: Final = 7 * 24 * 60


def _minutes(ctx: click.Context, param: click.Parameter, value: str) -> int:
    found = re.fullmatch(r"([1-9][0-9]{0,4})([mhd])", value, re.ASCII)
    minutes = int(found[1]) * MINUTES[found[2]] if found else 0
    if not 1 <= minutes <= MOST:
        raise click.BadParameter(
            f"must be a duration of at most 7d, like 10m, 24h or 7d, found {value[:60]!a}"
        )
    return minutes


@click.command(cls=ShellCommand, examples=["snapbid golive acme", "snapbid golive acme --last 10m"])
@click.argument("ssp", metavar="SSP")
@click.option("--last", "minutes", callback=_minutes, default="24h", metavar="SPAN",
              help="Period to check, such as 10m (after a fix) or 7d (default: 24h).")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def golive(ssp: str, minutes: int, as_json: bool) -> None:
    """Check an SSP's actual traffic against document 2's go-live checklist.

    SSP is a descriptor; traffic of other descriptors with the same canonical id does not count.
    Exit status: 0 if every item passes, otherwise 1.
    """
    from snapbid.operations.golive.checklist import judge
    from snapbid.warehouse import registry

    settings = console.with_ledger()
    known = console.in_warehouse(registry.fetch_numbered)
    if ssp not in known:
        raise console.Refused(f"{ssp[:60]!a} is not registered: add it with snapbid ssp add")
    seen = _read(settings, known[ssp][1], minutes)
    items = judge(seen, ssp, settings.base_url)
    if as_json:
        _print_json(ssp, seen, items)
    else:
        _print(ssp, seen, items)
    sys.exit(int(any(item.state != "pass" for item in items)))


def _read(settings: StoreSettings, number: int, minutes: int) -> "SspRequestStats":
    import asyncio
    import time

    from redis.exceptions import RedisError

    from snapbid.operations.golive.store import RequestStatsStore
    from snapbid.redisclient import connection

    async def read() -> "SspRequestStats":
        redis = connection.connect(settings.redis_url)
        try:
            return await RequestStatsStore(redis).read(
                number, settings.shards, minutes, int(time.time())
            )
        finally:
            await redis.aclose()

    try:
        return asyncio.run(read())
    except (RedisError, OSError) as error:
        raise console.redis_failed(error, settings.redis_url) from error


def _print_json(ssp: str, seen: "SspRequestStats", items: "list[Item]") -> None:
    passed = all(item.state == "pass" for item in items)
    console.print_object({"ssp": ssp, "passed": passed, "items": items, "seen": seen})


def _print(ssp: str, seen: "SspRequestStats", items: "list[Item]") -> None:
    since, until = utc(seen.since), utc(seen.until)
    click.echo(f"Go-live check of {ssp}, from {since} to {until}\n")
    for item in items:
        click.echo(f"{item.number}. {item.title}  {item.state.upper()}")
        for line in item.evidence:
            click.echo(f"     {console.one_line(line)}")
        if item.fix:
            click.echo(f"     To do: {console.one_line(item.fix)}")
    passing = sum(item.state == "pass" for item in items)
    click.echo(f"\n{passing} of {len(items)} items pass")
