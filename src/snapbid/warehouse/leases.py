"""Leases as advisory locks, which decide what each drain works on.

There are leases on shards' counters, others on their events, and sole leases on work that one
process does for all shards. A lease belongs to the database session that writes the data read from
the shard, and ends with that session. So when another drain gets the lease, all work of the former
holder is committed or rolled back. Leases kept as rows with an expiry would instead require clocks
that agree, and a check in each statement.
"""

import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Final, NamedTuple

import asyncpg

COUNTERS: Final = 0x736E6C73  # the class of these locks; the object is the shard's number
EVENTS: Final = 0x736E6C65
# Sole leases: "snap", and three letters more.
REQUEST_STATS: Final = 0x736E6170_64676E00
DEMAND: Final = 0x736E6170_646D6400
SUSPENSIONS: Final = 0x736E6170_72737400
AUDIT: Final = 0x736E6170_61756400
_ABLE: Final = 65_535  # shared by the drains that can read all shards
_CARRY: Final = 65_534  # held while missing spend is added to budgets

_LOOK: Final = """
    select pid = pg_backend_pid() as is_mine, objid::int as number, count(*) as holders
    from pg_locks
    where locktype = 'advisory' and classid = $1 and objsubid = 2 and granted
        and database = (select oid from pg_database where datname = current_database())
    group by 1, 2
"""


class Look(NamedTuple):
    """The shards whose leases of one kind are held, and how many sessions can read all shards."""

    mine: frozenset[int]  # this session's
    others: frozenset[int]
    is_able: bool  # this session has declared that it can read all shards
    able: int  # number of other sessions that have


async def acquire(connection: asyncpg.Connection, sole: int) -> bool:
    """Acquire the lease on work that one process does for all shards.

    Return False if another process holds it. The lease ends with the connection.
    """
    return bool(await connection.fetchval("select pg_try_advisory_lock($1)", sole))


async def look(connection: asyncpg.Connection, kind: int = COUNTERS) -> Look:
    """Fetch which leases of one kind this session and others hold."""
    rows = await connection.fetch(_LOOK, kind)
    mine = {row["number"]: row["holders"] for row in rows if row["is_mine"]}
    others = {row["number"]: row["holders"] for row in rows if not row["is_mine"]}
    is_able, able = mine.pop(_ABLE, 0) > 0, others.pop(_ABLE, 0)
    mine.pop(_CARRY, None)
    others.pop(_CARRY, None)
    return Look(frozenset(mine), frozenset(others), is_able, able)


async def declare(connection: asyncpg.Connection, kind: int, *, is_able: bool) -> None:
    """Declare whether this drain can read all shards; leases are divided among those that can."""
    function = "pg_advisory_lock_shared" if is_able else "pg_advisory_unlock_shared"
    await connection.execute(f"select {function}($1, $2)", kind, _ABLE)


async def take(connection: asyncpg.Connection, shards: Iterable[int], kind: int) -> frozenset[int]:
    """Try to acquire the leases of these shards; return the shards whose lease was acquired.

    The session must not hold any of these leases yet.
    """
    rows = await connection.fetch(
        "select number from unnest($2::int[]) number where pg_try_advisory_lock($1, number)",
        kind,
        list(shards),
    )
    return frozenset(row["number"] for row in rows)


async def release(
    connection: asyncpg.Connection, shards: Iterable[int], kind: int = COUNTERS
) -> None:
    await connection.execute(
        "select pg_advisory_unlock($1, number) from unnest($2::int[]) number", kind, list(shards)
    )


@contextlib.asynccontextmanager
async def carrying(connection: asyncpg.Connection) -> AsyncIterator[bool]:
    """Hold the lock for adding missing spend to budgets; yield False if another drain has it."""
    is_free = await connection.fetchval("select pg_try_advisory_lock($1, $2)", COUNTERS, _CARRY)
    try:
        yield bool(is_free)
    finally:
        if is_free and not connection.is_closed():
            await connection.execute("select pg_advisory_unlock($1, $2)", COUNTERS, _CARRY)
