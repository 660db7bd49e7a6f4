"""What the commands share: refusals in one line, the stores that they work on, tables and JSON.

What a command needs is imported when it runs, so that `snapbid --help` is quick.
"""

import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from snapbid.settings import Settings, SettingsError, StoreSettings, load, require, require_stores

if TYPE_CHECKING:
    import asyncpg

    from snapbid.exchange.spending import Spending
    from snapbid.warehouse.campaigns import StoredCampaign

T = TypeVar("T")
Work = Callable[["asyncpg.Connection"], Awaitable[T]]


class Refused(click.ClickException):
    """An operation that was refused; the message goes to stderr line by line."""

    def show(self, file: Any = None) -> None:
        click.echo(self.message, err=True)


class WrongSettings(Refused):
    """Settings that do not allow the command to run."""

    exit_code = 2


class WrongInput(Refused):
    """What the command was given is not what it takes."""

    exit_code = 2


def running(settings: Settings) -> dict[str, str] | None:
    """The settings of the embedded instance that runs in our home, None where none does."""
    from snapbid.embedded.home import running_env
    from snapbid.embedded.process import EmbeddedError

    try:
        return running_env(settings.home)
    except EmbeddedError as error:
        raise Refused(str(error)) from error


def database_url(settings: Settings) -> str:
    """The warehouse: ours, else that of the running embedded instance."""
    if settings.database_url is not None:
        return settings.database_url
    env = running(settings)
    if env is None:
        raise WrongSettings(
            f"SNAPBID_DATABASE_URL is not set and no embedded instance runs in {settings.home}: "
            "set it, start one with snapbid up, or name its directory in SNAPBID_HOME"
        )
    return env["SNAPBID_DATABASE_URL"]


def signing(settings: Settings) -> tuple[bytes, str]:
    """The key and the issuer of tokens: ours, else those of the running embedded instance."""
    from snapbid.report import tokens

    if settings.jwt_secret is None:
        env = running(settings)
        if env is None:
            raise WrongSettings(
                f"SNAPBID_JWT_SECRET is not set and no embedded instance runs in {settings.home}: "
                "set it, or name the directory of one in SNAPBID_HOME"
            )
        settings = load(env | {name: value for name, value in os.environ.items() if value})
        if settings.jwt_secret is None:
            raise SettingsError(["SNAPBID_JWT_SECRET must be set"])
    key = settings.jwt_secret.key()
    try:
        tokens.check_key(key)
    except ValueError as error:
        raise WrongSettings(f"SNAPBID_JWT_SECRET cannot sign: {error}") from error
    return key, settings.jwt_issuer


def with_stores(settings: Settings) -> StoreSettings:
    """The settings, with the stores of the embedded instance where none are set."""
    if settings.redis_url is None and settings.database_url is None:
        env = running(settings)
        if env is not None:
            settings = load(env)
    return require_stores(settings)


def in_warehouse(work: Work[T]) -> T:
    """Run `work` on a connection to the warehouse; what it changes is audited as this command's."""
    dsn = database_url(load(os.environ))
    context = click.get_current_context()

    async def session() -> T:
        from snapbid.warehouse import audit

        connection = await audit.connect(dsn, _full_name(context))
        try:
            return await work(connection)
        finally:
            await connection.close()

    return finish(session())


def _full_name(context: click.Context) -> str:
    """The command as it is called, `snapbid ssp add`."""
    names = []
    while context.parent is not None:
        names.append(context.info_name or "")
        context = context.parent
    return " ".join(["snapbid", *reversed(names)])


def finish(work: Awaitable[T]) -> T:
    """Run to the end; what PostgreSQL or the way to it refuses is said in one line."""
    import asyncio

    import asyncpg

    from snapbid.warehouse.away import AWAY

    async def run() -> T:
        return await work

    try:
        return asyncio.run(run())
    except (asyncpg.UndefinedTableError, asyncpg.UndefinedFunctionError) as error:
        raise Refused("the warehouse has no up-to-date schema: run snapbid migrate") from error
    except AWAY as error:
        reason = str(error) or type(error).__name__
        raise Refused(f"the warehouse (SNAPBID_DATABASE_URL) failed: {reason}") from error


MONEY = ("pacing", "spent", "spent today", "held", "left today", "left")


def spending(stored: Sequence["StoredCampaign"], *, required: bool) -> "dict[str, Spending]":
    """What the budgeted campaigns have spent; nothing without a Redis, unless `required`."""
    from redis.exceptions import RedisError

    from snapbid.exchange.spending import fetch

    settings = load(os.environ)
    if settings.redis_url is None:
        env = running(settings)
        if env is not None:
            settings = load(env)
    if settings.redis_url is None and not required:
        return {}
    require(settings, "redis_url")
    try:
        return finish(fetch(settings, stored))
    except RedisError as error:
        raise Refused(f"Redis (SNAPBID_REDIS_URL) failed: {error}") from error


def money_row(spending: "Spending | None") -> tuple[object, ...]:
    """The MONEY columns; empty cells are unlimited, or there is no budget."""
    if spending is None:
        return ("",) * len(MONEY)
    amounts = (
        spending.spent,
        spending.spent_today,
        spending.held,
        spending.remaining_today,
        spending.remaining,
    )
    return (spending.pacing, *("" if amount is None else f"{amount:.6f}" for amount in amounts))


def print_json(values: Iterable[object]) -> None:
    """Print an array of these values."""
    import msgspec

    print_raw_json(msgspec.json.encode(value).decode() for value in values)


def print_raw_json(texts: Iterable[str]) -> None:
    """Print an array of what is JSON already."""
    body = ",\n".join(texts)
    click.echo(f"[\n{body}\n]" if body else "[]")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table on a terminal, else one tab-separated line per row without a heading."""
    cells = [[one_line(str(cell)) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in cells:
            click.echo("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns)
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)


def one_line(text: str) -> str:
    """The text without what would begin a line or steer a terminal."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
