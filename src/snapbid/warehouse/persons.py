"""Forgotten persons: erasure of their data in the warehouse, and their suppression."""

import json
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import asyncpg

from snapbid.base.suppression import Suppression
from snapbid.campaigns.persons import PersonKey
from snapbid.warehouse import conversions

# Whether the context contains one of the ids ($1) anywhere.
_HAS: Final = """
exists (
    select from unnest($1::text[]) as i (id)
    where jsonb_path_exists(
        e.context, '$.** ? (@.type() == "string" && @ == $id)', jsonb_build_object('id', i.id))
)
"""
_EVENTS: Final = f"""
select event_id, received_at from events e
where client_user_id = any($1) or anonymous_id = any($1) or click_id = any($1) or {_HAS}
"""


class Erased(NamedTuple):
    """The numbers of events emptied, and of rows removed from other tables."""

    events: int
    event_conflicts: int
    event_dead_letters: int
    click_links: int


async def fetch_suppression(connection: asyncpg.Connection) -> Suppression:
    """Fetch the suppressed persons' hashes, with their key."""
    row = await connection.fetchrow(
        "select key, array(select hash from suppressed) as hashes from suppression_key"
    )
    return Suppression(bytes(row["key"]), frozenset(map(bytes, row["hashes"])))


async def fetch_key(connection: asyncpg.Connection) -> PersonKey:
    """Fetch the key of persons' hashes."""
    return PersonKey(bytes(await connection.fetchval("select key from suppression_key")))


async def fetch_mark(connection: asyncpg.Connection) -> tuple[object, ...]:
    """Fetch a value that changes whenever the suppression does."""
    return tuple(
        await connection.fetchrow("select count(*), max(since), min(since) from suppressed")
    )


async def suppress(
    connection: asyncpg.Connection, hashes: Iterable[bytes], members: Iterable[int]
) -> None:
    """Suppress the persons with these hashes, and who is known to bid requests by these members."""
    await connection.execute(
        "insert into suppressed (hash) select unnest($1::bytea[]) on conflict do nothing",
        list(hashes),
    )
    await connection.execute(
        "insert into suppressed_member select unnest($1::bigint[]) on conflict do nothing",
        list(members),
    )


async def hold_erasure(connection: asyncpg.Connection) -> None:
    """Make `erase` wait until this transaction, which stores events, ends."""
    await connection.execute("lock table only events in row exclusive mode")


async def erase(connection: asyncpg.Connection, ids: Sequence[str]) -> Erased:
    """Empty the events that have any of the ids; remove their conflicts, dead letters and clicks.

    An emptied event keeps its id, product, name and times, and for which click it counted: it still
    counts, and is recognised when it is sent again. Needs a transaction, and blocks the storing of
    events until it ends.
    """
    await connection.execute("lock table only events in share row exclusive mode")
    listed = list(ids)
    rows = await connection.fetch(_EVENTS, listed)
    events = [row["event_id"] for row in rows]
    await connection.execute(
        "update events set client_user_id = null, anonymous_id = null, click_id = null,"
        " context = '{}', enrichment = '{}' where event_id = any($1) and received_at = any($2)",
        events,
        list({row["received_at"] for row in rows}),
    )
    await connection.execute(
        "update event_ids set sequence = null where event_id = any($1)", events
    )
    conflicts = await connection.fetch(
        f"delete from event_conflicts e where event_id = any($2) or {_HAS} returning 1",
        listed,
        events,
    )
    payloads = [json.dumps(id, ensure_ascii=ascii)[1:-1] for id in ids for ascii in (False, True)]
    letters = await connection.fetch(
        "delete from event_dead_letters where exists (select from unnest($1::bytea[]) as i (id)"
        " where position(i.id in payload) > 0) or event_id = any($2) returning 1",
        [text.encode(errors="surrogatepass") for text in payloads],
        events,
    )
    links = await conversions.forget(connection, await fetch_key(connection), listed)
    return Erased(len(events), len(conflicts), len(letters), links)
