"""Bring the warehouse schema up to date: numbered files, each applied once, in one transaction.

Programs that migrate at the same time take turns. A database with a migration unknown to this
program was written by a newer one, and is refused unchanged.

Earlier programs keep working with the new schema, during an upgrade and after a rollback. A
migration that breaks them has the line `-- breaks: earlier programs`: a program that does not know
this migration refuses to start, and names the version that applied it (`fetch_standing`).
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

import asyncpg

from snapbid.base.version import version
from snapbid.warehouse import unavailable

_LOCK: Final = 0x736E6170_62696400  # "snapbid": an advisory lock of this database
_TABLE: Final = """
create table if not exists schema_migration (
    name text primary key,
    applied_at timestamptz not null default now(),
    version text not null,
    breaks boolean not null
)
"""
_APPLIED: Final = "select name, version, breaks from schema_migration order by name"
_BREAKS: Final = re.compile(r"^-- breaks: earlier programs$", re.MULTILINE)


class MigrationError(Exception):
    """The schema cannot be brought up to date; the message says why and what to do."""


class SchemaStanding(NamedTuple):
    """A comparison of a schema with this program's migrations."""

    missing: list[str]
    newer: str | None = None  # the newest migration unknown to this program
    reader: str = ""  # the version that applied it
    is_readable: bool = True  # this program can use the schema


async def migrate(dsn: str) -> list[str]:
    """Apply the missing migrations and return their names, in order.

    Raises MigrationError if the database is newer than this program, and asyncpg's errors or
    OSError if it cannot be reached.
    """
    connection = await asyncpg.connect(dsn, timeout=unavailable.CONNECT_S)
    try:
        # Held until the session closes, even after a failure between two files.
        await connection.execute("select pg_advisory_lock($1)", _LOCK)
        return await _apply_missing(connection, files())
    finally:
        await connection.close()


@cache
def files() -> Mapping[str, str]:
    """Return the SQL of the migrations by name (`0001_baseline`), in order.

    Read only once, so upgrading the package does not change the migrations of a running program.
    """
    folder = resources.files(__package__) / "schema"
    migrations = {
        entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8")
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    }
    return dict(sorted(migrations.items()))


async def fetch_standing(connection: asyncpg.Connection) -> SchemaStanding:
    """Compare the schema with this program's migrations."""
    if await connection.fetchval("select to_regclass('schema_migration')") is None:
        return SchemaStanding(list(files()))
    known, applied = files().keys(), await connection.fetch(_APPLIED)
    missing = sorted(known - {row["name"] for row in applied})
    newer = [row for row in applied if row["name"] not in known]
    if not newer:
        return SchemaStanding(missing)
    is_readable = not any(row["breaks"] for row in newer)
    return SchemaStanding(missing, newer[-1]["name"], newer[-1]["version"], is_readable)


async def _apply_missing(connection: asyncpg.Connection, schema: Mapping[str, str]) -> list[str]:
    standing = await fetch_standing(connection)
    if standing.newer:
        raise MigrationError(
            f"the database is newer than this program ({version()}): it has the migration "
            f"{standing.newer}, and the newest one known here is {max(schema)}; "
            f"install {standing.reader}"
        )
    if standing.missing:
        await connection.execute(_TABLE)
    for name in standing.missing:
        async with connection.transaction():
            await connection.execute(schema[name])
            await connection.execute(
                "insert into schema_migration (name, version, breaks) values ($1, $2, $3)",
                *(name, version(), bool(_BREAKS.search(schema[name]))),
            )
    return standing.missing
