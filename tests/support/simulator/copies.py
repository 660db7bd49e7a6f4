"""Copies of the warehouse's data, which a run begins with or goes back to."""

import contextlib
from io import BytesIO
from typing import Any

import asyncpg


class Copy:
    """What the tables of the warehouse hold, but for generated columns, and where its sequences
    stand."""

    def __init__(
        self, tables: dict[str, tuple[list[str], bytes]], sequences: dict[str, int | None]
    ) -> None:
        self.tables = tables
        self.sequences = sequences


async def save(connection: Any) -> Copy:
    """Copy the current state."""
    names = await connection.fetch(
        "select c.oid::regclass::text as name, array_agg(attname::text) as columns from pg_class c"
        " join pg_attribute on attrelid = c.oid and attnum > 0 and not attisdropped"
        " and attgenerated = '' where relnamespace = 'public'::regnamespace"
        " and relkind in ('r', 'p') and not relispartition group by c.oid order by 1"
    )
    tables = {}
    for row in names:
        buffer = BytesIO()
        await connection.copy_from_query(
            f"select {', '.join(row['columns'])} from {row['name']}", output=buffer, format="binary"
        )
        tables[row["name"]] = row["columns"], buffer.getvalue()
    rows = await connection.fetch(
        "select schemaname || '.' || sequencename as name, last_value from pg_sequences order by 1"
    )
    return Copy(tables, {row["name"]: row["last_value"] for row in rows})


async def load(connection: Any, copy: Copy) -> None:
    """Restore a copy; partitions made since are dropped."""
    made = await connection.fetch("select name from event_partitions")
    for row in made:  # by the drain, which makes them again: each run does the same
        with contextlib.suppress(asyncpg.LockNotAvailableError):
            await connection.execute(f"set local lock_timeout = '200ms'; drop table {row['name']}")
    async with connection.transaction():
        deletions = [f"delete from {name}" for name in copy.tables]
        await connection.execute(
            "; ".join(["set local session_replication_role = replica", *deletions])
        )
        for name, (columns, data) in copy.tables.items():
            if len(data) > 21:  # more than a header and an end
                await connection.copy_to_table(
                    name, source=BytesIO(data), columns=columns, format="binary"
                )
        await connection.execute(
            "select setval(name::regclass, coalesce(value, 1), value is not null)"
            " from unnest($1::text[], $2::bigint[]) as s (name, value)",
            list(copy.sequences),
            list(copy.sequences.values()),
        )
