"""Erase data of forgotten persons from the warehouse, and list persons to suppress."""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import asyncpg

from snapbid.campaigns.persons import PersonKey
from snapbid.campaigns.suppression import Suppression
from snapbid.warehouse import conversions
from snapbid.warehouse.unavailable import present

# Matches rows whose text contains an id in quotes: one of $1 as it is, or of $2 in any spelling.
# The caller then compares exactly.
_MENTIONS: Final = r"""
(exists (select from unnest($1::text[]) as i (id) where strpos({text}, {quoted}) > 0)
    or exists (select from unnest($2::text[]) as i (id) where strpos(
        case when strpos({text}, '\') > 0
            then regexp_replace(lower({text} collate "C"),
                '\\+[bfnrt]|\\+u00[01][0-9a-f]|[-{{}} ]', '', 'g')
            else replace(replace(replace(replace(
                lower({text} collate "C"), '-', ''), ' ', ''), '{{', ''), '}}', '') end,
        '"' || i.id || '"') > 0))
"""
_PLAIN: Final = {"quoted": "to_jsonb(i.id)::text"}
_TEXTS: Final = (
    "concat(to_jsonb(client_user_id), to_jsonb(anonymous_id), to_jsonb(click_id), context) as texts"
)
_EVENTS: Final = f"""
select event_id, received_at, product, client_user_id, anonymous_id, click_id, context
from (select *, {_TEXTS} from events) as e where {_MENTIONS.format(text="texts", **_PLAIN)}
"""
_CONFLICTS: Final = f"""
select event_id, digest, product, client_user_id, anonymous_id, click_id, context
from (select *, {_TEXTS} from event_conflicts) as c
where {_MENTIONS.format(text="texts", **_PLAIN)}
    or (client_user_id is null and anonymous_id is null and context <> '{{}}')
"""
_LETTERS: Final = f"""
select number, event_id, product, payload from event_dead_letters
where {
    _MENTIONS.format(
        text="encode(payload, 'escape')",
        quoted="encode(convert_to(to_jsonb(i.id)::text, 'UTF8'), 'escape')",
    )
}
"""


class Mention(NamedTuple):
    """A stored event that mentions an id, possibly in a field that identifies nobody.

    `context` is JSON.
    """

    event_id: str
    received_at: datetime
    product: str
    client_user_id: str | None
    anonymous_id: str | None
    click_id: str | None
    context: str


class Conflict(NamedTuple):
    """A conflicting payload that may concern a person.

    Either it mentions an id, or its sender is unknown.
    """

    event_id: str
    digest: bytes
    product: str
    client_user_id: str | None
    anonymous_id: str | None
    click_id: str | None
    context: str  # JSON

    @property
    def has_sender(self) -> bool:
        """Whether the sender was stored; version 0.1.0 did not store it."""
        return self.client_user_id is not None or self.anonymous_id is not None


class Letter(NamedTuple):
    """A dead letter that mentions an id.

    An unreadable letter has no `event_id` and no `product`.
    """

    number: int
    event_id: str | None
    product: str | None
    payload: bytes


class Erased(NamedTuple):
    """The numbers of events that lost data, and of rows removed from other tables."""

    events: int
    event_conflicts: int
    event_dead_letters: int
    click_links: int


async def fetch_suppression(connection: asyncpg.Connection) -> Suppression:
    """Fetch the hashes of all suppressed persons, and the secret key used for hashing."""
    row = await connection.fetchrow(
        "select key, array(select hash from suppressed) as hashes from suppression_key"
    )
    row = present(row, "suppression_key")
    return Suppression(bytes(row["key"]), frozenset(map(bytes, row["hashes"])))


async def fetch_key(connection: asyncpg.Connection) -> PersonKey:
    """Fetch the secret key with which persons are hashed."""
    key = await connection.fetchval("select key from suppression_key")
    return PersonKey(bytes(present(key, "suppression_key")))


async def fetch_mark(connection: asyncpg.Connection) -> tuple[object, ...]:
    """Fetch a value that changes whenever the list of suppressed persons changes."""
    return tuple(
        await connection.fetchrow("select count(*), max(since), min(since) from suppressed")
    )


async def suppress(
    connection: asyncpg.Connection, hashes: Iterable[bytes], members: Iterable[int]
) -> None:
    """Suppress persons, by hash, and the members by which bid requests identify these persons."""
    await connection.execute(
        "insert into suppressed (hash) select unnest($1::bytea[]) on conflict do nothing",
        list(hashes),
    )
    await connection.execute(
        "insert into suppressed_member select unnest($1::bigint[]) on conflict do nothing",
        list(members),
    )


async def hold_erasure(connection: asyncpg.Connection) -> None:
    """Make `erase` wait for the end of this transaction, in which events are stored."""
    await connection.execute("lock table only events in row exclusive mode")


async def hold_events(connection: asyncpg.Connection) -> None:
    """Keep others from storing events until the end of this transaction, which erases events."""
    await connection.execute("lock table only events in share row exclusive mode")


async def fetch_mentions(
    connection: asyncpg.Connection, ids: Sequence[str], folded: Sequence[str]
) -> AsyncIterator[Mention]:
    """Fetch the events that may mention one of `ids` as is, or one of `folded` in any spelling."""
    async for row in connection.cursor(_EVENTS, ids, folded):
        yield Mention(*row)


async def fetch_conflicts(
    connection: asyncpg.Connection, ids: Sequence[str], folded: Sequence[str]
) -> list[Conflict]:
    """Fetch the conflicting payloads that may mention one of the ids (see `fetch_mentions`).

    Payloads whose sender is unknown are always included, unless they are empty.
    """
    return [Conflict(*row) for row in await connection.fetch(_CONFLICTS, ids, folded)]


async def fetch_letters(
    connection: asyncpg.Connection, ids: Sequence[str], folded: Sequence[str]
) -> list[Letter]:
    """Fetch dead letters that may mention one of `ids`, or any spelling of an id in `folded`."""
    return [Letter(*row) for row in await connection.fetch(_LETTERS, ids, folded)]


async def erase(
    connection: asyncpg.Connection,
    events: Mapping[str, datetime],
    contexts: Sequence[tuple[str, datetime, str]],
    conflicts: Collection[bytes],
    letters: Collection[int],
    users: Collection[int],
) -> Erased:
    """Empty events, and remove conflicting payloads, dead letters and last clicks.

    `events` maps an event id to its time of receipt; `contexts`: the id, the time of receipt and
    the new context of events that are not emptied. Conflicting payloads are removed by digest, dead
    letters by number, last clicks if they are of `users`. An emptied event keeps its id, product,
    name, times, and the bid behind its click: it still counts, and is recognised if it is sent
    again. Requires a transaction with `hold_events`.
    """
    ids = list(events)
    await connection.execute(
        "update events set client_user_id = null, anonymous_id = null, click_id = null,"
        " context = '{}', enrichment = '{}' where event_id = any($1) and received_at = any($2)",
        ids,
        list(set(events.values())),
    )
    await connection.execute("update event_ids set sequence = null where event_id = any($1)", ids)
    await connection.executemany(
        "update events set context = $3 where event_id = $1 and received_at = $2", contexts
    )
    removed = [
        await connection.fetch(
            f"delete from {table} where {column} = any($1) returning 1", list(of)
        )
        for table, column, of in (
            ("event_conflicts", "digest", conflicts),
            ("event_dead_letters", "number", letters),
        )
    ]
    links = await conversions.forget(connection, users)
    return Erased(len(events) + len(contexts), len(removed[0]), len(removed[1]), links)
