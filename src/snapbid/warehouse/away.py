"""How a warehouse that is away, or a connection to it that has ended, shows itself, and why."""

from typing import Final

import asyncpg

from snapbid.base.reasons import reason

AWAY: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the end came amid an answer, and asyncpg has lost its place
    OSError,  # and so TimeoutError
)

CONNECT_S: Final = 10.0  # in which a warehouse that somebody waits for has to answer

OUTDATED: Final = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
    asyncpg.InvalidColumnReferenceError,  # no unique constraint has the columns of an insert
)
NO_SCHEMA: Final = "the warehouse has another schema than this program: run snapbid migrate"


def describe(error: BaseException, dsn: str) -> str:
    """Say why the warehouse cannot be used, and of what the operator can correct, how."""
    if isinstance(error, OUTDATED):
        return NO_SCHEMA
    why = reason(error, dsn)
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        why += f": {' '.join(str(error).split())}; correct SNAPBID_DATABASE_URL"
    return f"the warehouse is away: {why}"
