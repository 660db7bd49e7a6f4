"""Stored events: each id once, with tables for conflicts and for dead letters (contract 7)."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Final, NamedTuple

import asyncpg

_LOCK: Final = 0x736E6170_65766E00  # "snapevn": an advisory lock of this database


class EventRow(NamedTuple):
    """An event to store; `context` and `enrichment` are JSON, `digest` is of the envelope."""

    event_id: str
    product: str
    event: str
    occurred_at: datetime
    received_at: datetime
    client_user_id: str | None
    anonymous_id: str | None
    click_id: str | None
    context: str
    enrichment: str
    digest: bytes


class StoreResult(NamedTuple):
    """The ids that were new, and the number of new conflicts."""

    event_ids: set[str]
    conflicts: int


class SequenceMember(NamedTuple):
    """An event of a sequence; `arrival` grows in the order of storage, `context` is JSON."""

    event_id: str
    event: str
    arrival: int
    flags: list[str]
    context: str


class DeadLetter(NamedTuple):
    """An event that cannot be stored; `payload` can be queued again, `reason` quotes no value."""

    event_id: str | None
    product: str | None
    received_at: datetime | None
    reason: str
    payload: bytes


_INCOMING: Final = """
with incoming as (
    select * from unnest(
        $1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::timestamptz[], $6::text[],
        $7::text[], $8::text[], $9::text[], $10::text[], $11::bytea[]
    ) with ordinality as i (
        event_id, product, event, occurred_at, received_at, client_user_id,
        anonymous_id, click_id, context, enrichment, digest, place
    )
)
"""
_STORE: Final = f"""
{_INCOMING}
insert into events (
    event_id, product, event, occurred_at, received_at, client_user_id, anonymous_id, click_id,
    context, enrichment
)
select event_id, product, event, occurred_at, received_at, client_user_id, anonymous_id, click_id,
    context::jsonb, enrichment::jsonb
from incoming order by place
on conflict (event_id) do nothing
returning event_id
"""
_CONFLICTS: Final = f"""
{_INCOMING}
insert into event_conflicts (event_id, product, received_at, context, digest)
select i.event_id, i.product, i.received_at, i.context::jsonb, i.digest
from incoming i join events e on e.event_id = i.event_id
where (e.occurred_at, e.client_user_id, e.anonymous_id, e.click_id, e.context)
    is distinct from
    (i.occurred_at, i.client_user_id, i.anonymous_id, i.click_id, i.context::jsonb)
on conflict (event_id, digest) do nothing
returning event_id
"""
# Key by key, so that the planner uses the index whatever its estimates are.
_BONUSES: Final = """
select k.product, k.id, e.event_id, e.event, e.arrival, e.flags, e.context::text as context
from unnest($1::text[], $2::text[], $3::bool[]) as k (product, id, anew)
cross join lateral (
    select * from events
    where context ->> 'bonus_id' = k.id and product = k.product
        and event in ('bonus_offered', 'bonus_claimed', 'bonus_completed', 'bonus_cashed_out')
    offset 0
) as e
where k.anew or e.event <> 'bonus_cashed_out' or e.event_id = any($4::text[])
order by e.arrival
"""
_DEPOSITS: Final = """
select k.product, k.id, e.event_id, e.event, e.arrival, e.flags, e.context::text as context
from unnest($1::text[], $2::text[]) as k (product, id)
cross join lateral (
    select * from events
    where context ->> 'transaction_id' = k.id and product = k.product
        and event in ('deposit_initiated', 'deposit', 'deposit_failed')
    offset 0
) as e
order by e.arrival
"""

SequenceKey = tuple[str, str]
"""The product, and the id of the bonus or transaction."""


async def become_the_drain(connection: asyncpg.Connection) -> bool:
    """Become the only drain of events until the connection ends; return False if another is.

    If permitted, also keep the server from quoting refused rows in its log.
    """
    if not await connection.fetchval("select pg_try_advisory_lock($1)", _LOCK):
        return False
    with contextlib.suppress(asyncpg.InsufficientPrivilegeError):
        await connection.execute("set log_error_verbosity = terse")
    return True


async def store(connection: asyncpg.Connection, rows: Sequence[EventRow]) -> StoreResult:
    """Store the first event of each id, in this order, and events that differ from it as conflicts.

    Storing the same rows again changes nothing. Raises asyncpg.PostgresError if any row is refused.
    """
    firsts: dict[str, EventRow] = {}
    for row in rows:
        firsts.setdefault(row.event_id, row)
    inserted = await connection.fetch(_STORE, *_columns(list(firsts.values())))
    new = {record["event_id"] for record in inserted}
    repeats = [
        row for row in rows if row.event_id not in new or row.digest != firsts[row.event_id].digest
    ]
    if not repeats:
        return StoreResult(new, 0)
    conflicts = await connection.fetch(_CONFLICTS, *_columns(repeats))
    return StoreResult(new, len(conflicts))


async def fetch_bonuses(
    connection: asyncpg.Connection, keys: Mapping[SequenceKey, bool], event_ids: Iterable[str]
) -> dict[SequenceKey, list[SequenceMember]]:
    """Fetch the events of bonuses in the order of their arrival.

    Cash-outs may be many: only those of `event_ids` are included, unless the key maps to True.
    """
    anew = list(keys.values())
    return _members(await connection.fetch(_BONUSES, *_parts(keys), anew, list(event_ids)))


async def fetch_deposits(
    connection: asyncpg.Connection, keys: Iterable[SequenceKey]
) -> dict[SequenceKey, list[SequenceMember]]:
    """Fetch the events of deposits in the order of their arrival."""
    return _members(await connection.fetch(_DEPOSITS, *_parts(keys)))


async def set_flags(connection: asyncpg.Connection, flags: Mapping[str, Sequence[str]]) -> None:
    """Replace the flags of events."""
    await connection.execute(
        "update events e set flags = string_to_array(f.flags, ',')"
        " from unnest($1::text[], $2::text[]) as f (event_id, flags)"
        " where e.event_id = f.event_id",
        list(flags),
        [",".join(names) for names in flags.values()],
    )


# -- dead letters ---------------------------------------------------------------------------------


async def bury(connection: asyncpg.Connection, letters: Sequence[DeadLetter]) -> int:
    """Keep events that cannot be stored, each payload once; return how many are new."""
    rows = await connection.fetch(
        "insert into event_dead_letters"
        " (event_id, product, received_at, reason, payload, digest)"
        " select * from unnest"
        " ($1::text[], $2::text[], $3::timestamptz[], $4::text[], $5::bytea[], $6::bytea[])"
        " on conflict (digest) do nothing returning number",
        *map(list, zip(*letters, strict=True)),
        [sha256(letter.payload).digest() for letter in letters],
    )
    return len(rows)


async def newest_dead_letter(connection: asyncpg.Connection) -> int:
    """The number of the newest dead letter, 0 if there is none."""
    return int(await connection.fetchval("select coalesce(max(number), 0) from event_dead_letters"))


async def dig_up(connection: asyncpg.Connection, newest: int, count: int) -> list[bytes]:
    """Remove the oldest dead letters, up to number `newest`, and return their payloads."""
    rows = await connection.fetch(
        "delete from event_dead_letters where number in"
        " (select number from event_dead_letters where number <= $1 order by number limit $2)"
        " returning number, payload",
        newest,
        count,
    )
    return [row["payload"] for row in sorted(rows, key=lambda row: row["number"])]


def _columns(rows: Sequence[EventRow]) -> tuple[list[object], ...]:
    columns = tuple(map(list, zip(*rows, strict=True)))
    return columns or ([],) * len(EventRow._fields)


def _parts(keys: Iterable[SequenceKey]) -> tuple[list[str], list[str]]:
    pairs = list(keys)
    return [product for product, _ in pairs], [id for _, id in pairs]


def _members(records: Iterable[asyncpg.Record]) -> dict[SequenceKey, list[SequenceMember]]:
    sequences: dict[SequenceKey, list[SequenceMember]] = {}
    for record in records:
        product, id, *member = record
        sequences.setdefault((product, id), []).append(SequenceMember(*member))
    return sequences
