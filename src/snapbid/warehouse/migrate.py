"""Brings the warehouse schema up to date: numbered files, each applied once, in one transaction.

Programs that migrate at the same time take turns. A database with a migration that this program
does not know was written by a newer one; it is refused untouched.
"""

from importlib import resources
from typing import Final

import asyncpg

from snapbid.warehouse import away

_LOCK: Final = 0x736E6170_62696400  # "snapbid": an advisory lock of this database
_TABLE: Final = """
create table if not exists schema_migration (
    name text primary key,
    applied_at timestamptz not null default now()
)
"""


class MigrationError(Exception):
    """The schema cannot be brought up to date; the message says why and what to do."""


async def migrate(dsn: str) -> list[str]:
    """Apply the missing migrations and return their names, in order.

    Raises MigrationError for a database newer than this program, and asyncpg's errors or OSError
    for one that cannot be reached.
    """
    connection = await asyncpg.connect(dsn, timeout=away.CONNECT_S)
    try:
        # Held until the session closes, even after a failure between two files.
        await connection.execute("select pg_advisory_lock($1)", _LOCK)
        return await _apply_missing(connection, files())
    finally:
        await connection.close()


def files() -> dict[str, str]:
    """The migrations, in order: name (`0001_operator`) -> SQL."""
    folder = resources.files(__package__) / "schema"
    migrations = {
        entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8")
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    }
    return dict(sorted(migrations.items()))


async def _apply_missing(connection: asyncpg.Connection, schema: dict[str, str]) -> list[str]:
    await connection.execute(_TABLE)
    applied = {row["name"] for row in await connection.fetch("select name from schema_migration")}
    if unknown := sorted(applied - schema.keys()):
        raise MigrationError(
            f"the database is newer than this program: it holds the migration {unknown[-1]}, "
            f"and the newest one known here is {max(schema)}; install a newer snapbid"
        )
    missing = [name for name in schema if name not in applied]
    for name in missing:
        async with connection.transaction():
            await connection.execute(schema[name])
            await connection.execute("insert into schema_migration (name) values ($1)", name)
    return missing
