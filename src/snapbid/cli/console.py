"""Helpers shared by the commands: one-line errors, access to the stores, tables and JSON.

Commands import their dependencies only when they run, to keep `snapbid --help` quick.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, BinaryIO, Concatenate, Final, ParamSpec, TypeVar, cast

import click

from snapbid.base.reasons import reason
from snapbid.base.settings import (
    VARIABLES,
    Settings,
    SettingsError,
    StoreSettings,
    load,
    require_stores,
)
from snapbid.base.words import counted as counted
from snapbid.base.words import one_line as one_line

if TYPE_CHECKING:
    import asyncpg

    from snapbid.campaigns.review import Known
    from snapbid.operations.spending import Spending
    from snapbid.warehouse.campaigns import StoredCampaign

S = TypeVar("S", bound=Settings)
T = TypeVar("T")
P = ParamSpec("P")


class Refused(click.ClickException):
    """A refused operation; its message goes to stderr with control characters escaped."""

    def show(self, file: Any = None) -> None:
        click.echo("\n".join(map(one_line, self.message.split("\n"))), err=True)


class WrongSettings(Refused):
    """Settings with which the command cannot run."""

    exit_code = 2


class WrongInput(Refused):
    """Invalid arguments or options."""

    exit_code = 2


@contextlib.contextmanager
def refusing(*errors: type[Exception]) -> Iterator[None]:
    """Convert the given errors to Refused, with the same message."""
    try:
        yield
    except errors as error:
        raise Refused(str(error)) from error


@contextlib.contextmanager
def opened(file: str) -> Iterator[BinaryIO]:
    """Open a file, or stdin for `-`. Raises Refused if opening or reading it fails."""
    try:
        with click.open_file(file, "rb") as source:
            yield cast("BinaryIO", source)
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}") from error


def day(text: str) -> date:
    """Parse a day like 2026-01-31; a click parameter type."""
    try:
        if len(text) != 10:  # Python accepts other forms, too
            raise ValueError
        return date.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"must be a date like 2026-01-31, found {text[:40]!a}") from None


def running(settings: Settings) -> dict[str, str] | None:
    """Return the settings of the embedded instance in SNAPBID_HOME; None if it is not running."""
    from snapbid.embedded.home import running_env
    from snapbid.embedded.process import EmbeddedError

    with refusing(EmbeddedError):
        return running_env(settings.home)


def database_url() -> str:
    """Return the warehouse's URL from the settings or the running embedded instance."""
    url = _found("database_url").database_url
    assert url is not None
    return url


def with_redis() -> Settings:
    """Return the settings, or those of the running embedded instance if Redis is not set."""
    return _found("redis_url")


def with_stores() -> StoreSettings:
    """Return the settings, or those of the running embedded instance if no store is set."""
    return require_stores(_found("redis_url", "database_url"))


def with_ledger() -> StoreSettings:
    """Return the settings, completed with the ledger's number of shards.

    If no store is set, the stores of the running embedded instance are used.
    """
    return with_shards(with_stores())


def _found(*fields: str) -> Settings:
    """Return the settings, or those of the running embedded instance if none of `fields` is set."""
    settings = load(os.environ)
    if all(getattr(settings, field) is None for field in fields):
        settings = load(_instance(settings, *fields))
    return settings


def _instance(settings: Settings, *fields: str) -> dict[str, str]:
    """Return all settings of the running embedded instance.

    Raises WrongSettings if none is running; the message says that `fields` are unset.
    """
    env = running(settings)
    if env is None:
        names = " and ".join(VARIABLES[field] for field in fields)
        (are, them) = ("is", "it") if len(fields) == 1 else ("are", "them")
        raise WrongSettings(
            f"{names} {are} not set and no embedded instance is running in {settings.home}: "
            f"set {them}, start one with snapbid up, or set SNAPBID_HOME to its directory"
        )
    return env


def signing() -> tuple[bytes, str]:
    """Return the key and the issuer of report tokens.

    If no key is set, unset settings are taken from the running embedded instance.
    Raises WrongSettings or SettingsError if there is no key, or the key cannot sign tokens.
    """
    from snapbid.report import tokens

    settings = load(os.environ)
    if settings.jwt_secret is None:
        env = _instance(settings, "jwt_secret")
        settings = load(env | {name: value for name, value in os.environ.items() if value})
        if settings.jwt_secret is None:
            raise SettingsError(["SNAPBID_JWT_SECRET must be set"])
    key = settings.jwt_secret.key()
    try:
        tokens.check_key(key)
    except ValueError as error:
        raise WrongSettings(f"SNAPBID_JWT_SECRET cannot sign tokens: {error}") from error
    return key, settings.jwt_issuer


def with_shards(settings: S) -> S:
    """Add the ledger's number of shards to the settings.

    Raises Refused if SNAPBID_LEDGER_SHARDS differs from that number, or if neither store is
    available to read it from.
    """
    import asyncio

    from snapbid.operations import preflight

    with refusing(preflight.VolatileStoreError):
        shards = asyncio.run(preflight.find_shards(settings))
    if shards is None:
        raise Refused("no node of the cluster (SNAPBID_REDIS_URL) answers")
    return preflight.with_shards(settings, shards)


def check_ledger() -> StoreSettings:
    """Return the settings, and check that the ledger may be used with them.

    The settings include the ledger's number of shards. Raises Refused if the number of shards is
    unknown or differs from SNAPBID_LEDGER_SHARDS, or if the ledger belongs to another warehouse.
    """
    import asyncio

    from snapbid.operations import preflight

    settings = with_ledger()
    with refusing(preflight.VolatileStoreError):
        asyncio.run(preflight.check_ledger(settings))
    return settings


def in_warehouse(
    work: "Callable[Concatenate[asyncpg.Connection, P], Awaitable[T]]",
    *args: P.args,
    **more: P.kwargs,
) -> T:
    """Run `work` on a warehouse connection; the audit trail attributes changes to this command.

    Raises Refused if the warehouse fails. Errors from files or stdout are raised unchanged.
    """
    dsn = database_url()
    context = click.get_current_context()

    async def session() -> T | OSError:
        from snapbid.warehouse import audit

        connection = await audit.connect(dsn, _full_name(context))
        try:
            return await work(connection, *args, **more)
        except TimeoutError:
            raise
        except OSError as error:  # not the warehouse's: asyncpg has its own for a lost connection
            return error
        finally:
            await connection.close()

    done = finish(session(), dsn)
    if isinstance(done, OSError):
        raise done
    return done


async def known_names(connection: "asyncpg.Connection") -> "Known":
    """Fetch the names of audiences, products and SSPs that campaigns may use."""
    from snapbid.campaigns.review import Known
    from snapbid.warehouse import audiences, products, registry

    names = (await audiences.fetch_names(connection)).audiences.values()
    ssps = await registry.fetch_all(connection)
    return Known(set(names), set(await products.fetch_names(connection)), set(ssps))


def has_warehouse() -> bool:
    """Whether a warehouse is configured, or an embedded one is running."""
    settings = load(os.environ)
    return settings.database_url is not None or running(settings) is not None


def _full_name(context: click.Context) -> str:
    """Return the full name of a command: `snapbid ssp add`."""
    names = []
    while context.parent is not None:
        names.append(context.info_name or "")
        context = context.parent
    return " ".join(["snapbid", *reversed(names)])


def finish(work: Awaitable[T], dsn: str) -> T:
    """Run a coroutine and return its result.

    Raises Refused, with a one-line message, if the warehouse fails.
    """
    import asyncio

    from snapbid.warehouse.unavailable import NO_SCHEMA, OUTDATED, UNAVAILABLE

    async def run() -> T:
        return await work

    try:
        return asyncio.run(run())
    except OUTDATED as error:
        raise Refused(NO_SCHEMA) from error
    except UNAVAILABLE as error:
        why = reason(error, dsn)
        raise Refused(f"the warehouse (SNAPBID_DATABASE_URL) failed: {why}") from error


def redis_failed(error: Exception, url: str) -> Refused:
    """Return a one-line error for a failure of Redis or its connection."""
    return Refused(f"Redis (SNAPBID_REDIS_URL) failed: {reason(error, url)}")


GAP: Final = "  "
MONEY: Final = ("pacing", "spent", "spent today", "held", "left today", "left")


def spending(stored: Sequence["StoredCampaign"], *, required: bool) -> "dict[str, Spending]":
    """Fetch the spending of campaigns that have budgets, by campaign id.

    If no Redis is set or running, returns an empty dict or, if `required`, raises WrongSettings.
    Warns on stderr of unavailable shards of the ledger. Raises Refused if Redis fails.
    """
    import asyncio

    from redis.exceptions import RedisError

    from snapbid.ledger.admin.parts import names
    from snapbid.operations.spending import fetch

    settings = load(os.environ)
    if settings.redis_url is None and (required or running(settings) is not None):
        settings = with_redis()
    if settings.redis_url is None:
        return {}
    try:
        campaigns, unavailable = asyncio.run(fetch(with_shards(settings), stored))
    except (RedisError, OSError) as error:
        raise redis_failed(error, settings.redis_url) from error
    if unavailable:
        click.echo(
            f"{names(unavailable)} of the ledger: unavailable, not included in these sums", err=True
        )
    return campaigns


def money_row(spending: "Spending | None") -> tuple[object, ...]:
    """Return the cells of the MONEY columns.

    Without a budget, all cells are empty; with one, a cell is empty if its amount is unlimited.
    """
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
    """Print the values as a JSON array."""
    import msgspec

    print_raw_json(msgspec.json.encode(value).decode() for value in values)


def print_object(value: object) -> None:
    """Print a value as a JSON object, indented."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value)).decode())


def print_raw_json(texts: Iterable[str]) -> None:
    """Print an array of values that are JSON already."""
    body = ",\n".join(texts)
    click.echo(f"[\n{body}\n]" if body else "[]")


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], narrow: Sequence[str] = ()
) -> None:
    """Print a table with a heading: tab-separated, or in aligned columns on a terminal.

    `narrow`: the columns to show on a terminal. None prints as an empty cell. Nothing is truncated:
    a first cell that is too wide gets a line of its own.
    """
    if not sys.stdout.isatty():
        click.echo("\t".join(columns))
        for row in rows:
            click.echo("\t".join(map(_cell, row)))
        return
    shown = [columns.index(name) for name in narrow or columns]
    table = [columns, *(list(map(_cell, row)) for row in rows)]
    cells = [[row[index] for index in shown] for row in table]
    _, *widths = (max(map(len, column)) for column in zip(*cells, strict=True))
    room = shutil.get_terminal_size().columns - sum(width + len(GAP) for width in widths)
    first = min(max(len(row[0]) for row in cells), max(room, len(columns[shown[0]])))
    for name, *others in cells:
        if len(name) > first:
            click.echo(name)
            name = ""
        rest = (cell.ljust(width) for cell, width in zip(others, widths, strict=True))
        click.echo(GAP.join((name.ljust(first), *rest)).rstrip())


def _cell(value: object) -> str:
    return "" if value is None else one_line(str(value))


def no_campaign(campaign_id: str) -> str:
    """Return the error text for an unknown campaign id."""
    return f"there is no campaign with the id {campaign_id[:60]!a}"


def say(line: str) -> None:
    """Print a line, wrapped to the terminal's width, with control characters escaped."""
    text = one_line(line)
    if sys.stdout.isatty():
        text = wrapped(text, shutil.get_terminal_size().columns)
    click.echo(text)


def wrapped(line: str, width: int) -> str:
    """Wrap a line with a hanging indent, without breaking words."""
    import textwrap

    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.fill(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
