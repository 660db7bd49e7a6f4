"""Errors that mean an unavailable warehouse, a broken connection or an outdated schema."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import asyncpg

from snapbid.base.reasons import reason

UNAVAILABLE: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the connection ended in the middle of an answer
    OSError,  # includes TimeoutError
)

CONNECT_S: Final = 10.0

OUTDATED: Final = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
    asyncpg.InvalidColumnReferenceError,  # no unique constraint for `on conflict`
)
NO_SCHEMA: Final = "the warehouse's schema does not fit this program: run snapbid migrate"

T = TypeVar("T")


@asynccontextmanager
async def brief_session(dsn: str, within_s: float) -> AsyncIterator[asyncpg.Connection]:
    """Yield a connection for at most `within_s`, including the time to connect.

    Raises any error in UNAVAILABLE.
    """
    async with asyncio.timeout(within_s):
        connection = await asyncpg.connect(dsn)
        try:
            yield connection
        finally:
            connection.terminate()


@asynccontextmanager
async def session(dsn: str, **settings: Any) -> AsyncIterator[asyncpg.Connection]:
    """Yield a connection made within CONNECT_S; `settings` are passed to `asyncpg.connect`.

    Raises any error in UNAVAILABLE.
    """
    connection = await asyncpg.connect(dsn, timeout=CONNECT_S, **settings)
    try:
        yield connection
    finally:
        connection.terminate()


async def apply(connection: asyncpg.Connection, settings: Mapping[str, str]) -> None:
    """Apply settings to a session, which ends if that fails.

    PgBouncer refuses most settings in the start of a connection.
    """
    try:
        await connection.execute(
            "select set_config(name, value, false) from unnest($1::text[], $2::text[])"
            " as own (name, value)",
            *(list(settings), list(settings.values())),
        )
    except BaseException:
        connection.terminate()
        raise


def present(fetched: T | None, table: str) -> T:
    """Return what was fetched from a table that always has one row.

    Raises CannotConnectNowError if the row is missing, for example during the restore of a backup,
    which creates tables before it fills them.
    """
    if fetched is None:
        raise asyncpg.CannotConnectNowError(f"{table} is empty, as during the restore of a backup")
    return fetched


def describe(error: BaseException, dsn: str) -> str:
    """Describe why the warehouse is unavailable, and what the operator can do, if anything."""
    if isinstance(error, OUTDATED):
        return NO_SCHEMA
    why = reason(error, dsn)
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        why += f": {' '.join(str(error).split())}; correct SNAPBID_DATABASE_URL"
    return f"the warehouse is unavailable: {why}"
