"""Catalog bases, built by one machine and fetched by the others (publisher/sharing.py)."""

from collections.abc import AsyncGenerator, Iterable
from typing import Final

import asyncpg
import msgspec

from snapbid.warehouse import unavailable

# application_name of the sessions in which each machine follows changes
PUBLISHER: Final = "snapbid publisher"  # of campaigns
MEMBERS: Final = "snapbid members"  # of audiences
_LOCK: Final = 0x536E_6170_4261_7365  # "SnapBase"


class StoredBase(msgspec.Struct, frozen=True):
    """A stored base, which only programs with the same `layout` can read; `size` is in bytes."""

    layout: str
    warehouse: str
    revision: int
    campaigns: int
    size: int
    sha256: bytes
    built_by: str


async def connect_following(dsn: str, name: str) -> asyncpg.Connection:
    """Connect without an idle timeout, as the application `name` (PUBLISHER or MEMBERS)."""
    own = {"application_name": name}
    connection = await asyncpg.connect(dsn, timeout=10, server_settings=own)
    await unavailable.apply(connection, {"idle_session_timeout": "0"})
    return connection


async def lock(connection: asyncpg.Connection, layout: str, timeout_s: float) -> bool:
    """Acquire the lock for building a base for a layout; return False after the timeout.

    The lock ends with the connection.
    """
    await connection.execute(f"set lock_timeout = {round(timeout_s * 1000)}")
    try:
        await connection.execute("select pg_advisory_lock(hashtextextended($1, $2))", layout, _LOCK)
    except asyncpg.LockNotAvailableError:
        return False
    finally:
        await connection.execute("set lock_timeout = 0")
    return True


async def count_publishers(connection: asyncpg.Connection) -> int:
    """Count the machines that follow the campaigns of this database."""
    return int(
        await connection.fetchval(
            "select count(*) from pg_stat_activity"
            " where datname = current_database() and application_name = $1",
            PUBLISHER,
        )
    )


async def find(
    connection: asyncpg.Connection, layout: str, warehouse: str
) -> tuple[int, StoredBase] | None:
    """Return the id and description of a warehouse's newest base for a layout, or None."""
    row = await connection.fetchrow(
        "select id, layout, warehouse, revision, campaigns, size, sha256, built_by"
        " from catalog_base where layout = $1 and warehouse = $2 order by revision desc limit 1",
        layout,
        warehouse,
    )
    if row is None:
        return None
    id, *values = row.values()
    return id, StoredBase(*values)


async def read(connection: asyncpg.Connection, id: int) -> AsyncGenerator[bytes]:
    """Read the parts of a base one at a time, in order.

    Requires a transaction that reads one snapshot (repeatable read).
    """
    query = "select content from catalog_base_part where base = $1 order by number"
    async for row in connection.cursor(query, id, prefetch=1):
        yield row["content"]


async def replace(connection: asyncpg.Connection, base: StoredBase, parts: Iterable[bytes]) -> None:
    """Store a base, and delete outdated bases.

    Outdated bases are earlier ones with the same layout, those of other warehouses, and those over
    a day old.
    """
    async with connection.transaction():
        await connection.execute(
            "delete from catalog_base where layout = $1 or warehouse <> $2"
            " or built_at < now() - interval '1 day'",
            base.layout,
            base.warehouse,
        )
        id = await connection.fetchval(
            "insert into catalog_base (layout, warehouse, revision, campaigns, size, sha256,"
            " built_by) values ($1, $2, $3, $4, $5, $6, $7) returning id",
            *msgspec.structs.astuple(base),
        )
        for number, part in enumerate(parts):
            await connection.execute(
                "insert into catalog_base_part values ($1, $2, $3)", id, number, part
            )
