"""Stored events, one per id, with tables for conflicts and for dead letters (contract 7)."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple, TypeVar

import asyncpg

DISCARDED: Final = 5_000  # dead letters deleted at once

T = TypeVar("T")

_PRODUCTS: Final = 0x736E6570  # the class of products' advisory locks in this database


class EventRow(NamedTuple):
    """An event to store. Events of the same bonus or deposit share a `sequence`."""

    event_id: str
    product: str
    event: str
    occurred_at: datetime
    received_at: datetime
    client_user_id: str | None
    anonymous_id: str | None
    click_id: str | None
    context: str  # JSON
    enrichment: str  # JSON
    digest: bytes  # of the envelope
    sequence: bytes | None
    flags: str = ""  # separated by commas
    value_micros: int | None = 0  # the event's value as a conversion (micro-USD); None if unknown
    campaign: str | None = None  # of the click for which it counts, as are the next two
    creative: str | None = None
    descriptor: str | None = None
    first_deposit: bool = False


class SequenceMember(NamedTuple):
    """A stored event of a sequence."""

    event_id: str
    received_at: datetime
    product: str
    event: str
    arrival: int  # grows in the order of storage
    flags: list[str]  # about the sequence
    context: str  # JSON


class Revision(NamedTuple):
    """A page of a bonus's cash-outs whose sequence flags are to be computed again."""

    sequence: bytes  # of the cash-outs
    bonus: bytes  # the sequence of the bonus's other events
    event_ids: list[str]  # in order
    revised: int  # cash-outs in earlier pages


class DeadLetter(NamedTuple):
    """An event that could not be stored."""

    event_id: str | None
    product: str | None
    received_at: datetime | None
    reason: str  # quotes no value
    payload: bytes  # can be queued again


_CLAIM: Final = """
insert into event_ids (event_id, received_at, sequence)
select * from unnest($1::text[], $2::timestamptz[], $3::bytea[])
on conflict (event_id) do nothing
returning event_id
"""
_STORED: Final = (
    "event_id", "product", "event", "occurred_at", "received_at", "client_user_id", "anonymous_id",
    "click_id", "context", "enrichment", "flags", "campaign", "creative", "descriptor",
    "value_micros", "first_deposit",
)  # fmt: skip
# Queries for events name their times too, so that only the partitions that have them are planned,
# locked and read.
_TIMES: Final = "select received_at from event_ids where event_id = any($1)"
_CONFLICTS: Final = """
insert into event_conflicts (
    event_id, product, received_at, client_user_id, anonymous_id, click_id, context, digest)
select i.event_id, i.product, i.received_at, i.client_user_id, i.anonymous_id, i.click_id,
    i.context::jsonb, i.digest
from unnest(
    $1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::text[], $6::text[],
    $7::text[], $8::text[], $9::bytea[]
) as i (
    event_id, product, occurred_at, received_at, client_user_id, anonymous_id, click_id, context,
    digest
)
join events e on e.event_id = i.event_id and e.received_at = any($10)
where (e.occurred_at, e.client_user_id, e.anonymous_id, e.click_id, e.context)
    is distinct from
    (i.occurred_at, i.client_user_id, i.anonymous_id, i.click_id, i.context::jsonb)
on conflict (event_id, digest) do nothing
returning event_id
"""
_compared: Final = attrgetter(
    "event_id", "product", "occurred_at", "received_at", "client_user_id", "anonymous_id",
    "click_id", "context", "digest",
)  # fmt: skip
# One event at a time, so that the planner uses the index whatever it estimates. Flags of clicks do
# not concern the sequence, and stay as they were stored.
_MEMBERS: Final = r"""
select e.event_id, e.received_at, e.product, e.event, e.arrival,
    array(select f from unnest(e.flags) f where f not like 'click\_%') as flags,
    e.context::text as context
from unnest($1::text[], $2::timestamptz[]) as i (event_id, received_at)
cross join lateral (
    select * from events
    where event_id = i.event_id and received_at = i.received_at
        and received_at >= $3 and received_at < $3::timestamptz + interval '1 day'
    offset 0
) as e
"""
_FLAG: Final = r"""
update events e set flags = array(select f from unnest(e.flags) f where f like 'click\_%')
    || string_to_array(f.flags, ',')
from unnest($1::text[], $2::timestamptz[], $3::text[]) as f (event_id, received_at, flags)
where e.event_id = f.event_id and e.received_at = f.received_at
    and e.received_at >= $4 and e.received_at < $4::timestamptz + interval '1 day'
"""


# A page of each bonus, the one that has waited longest first; one sequence at a time, as above.
_REVISIONS: Final = """
with due as (
    select * from event_revision order by at limit $1 for update skip locked
)
select sequence, bonus, revised, coalesce(page.ids, '{}') as ids
from due cross join lateral (
    select array_agg(event_id order by event_id) as ids from (
        select event_id from event_ids
        where sequence = due.sequence and event_id > due.after
        order by event_id limit greatest(1, $2 / (select count(*) from due))
    ) as ids_of_page
) as page
"""
_REVISE_LATER: Final = """
insert into event_revision (sequence, bonus)
select n.sequence, n.bonus from unnest($1::bytea[], $2::bytea[]) as n (sequence, bonus)
cross join lateral (select from event_ids where sequence = n.sequence limit 1) as any_of_it
order by 1
on conflict (sequence) do update set after = '', revised = 0
"""


async def join(connection: asyncpg.Connection) -> bool:
    """Prepare a session for storing events.

    Also keeps PostgreSQL from quoting refused rows in its log, if the role permits that. Always
    returns True: no lease is needed, since any number of drains may store events.
    """
    # A plan that was made while a table was empty would read all of it until it is analyzed.
    await connection.execute("set enable_seqscan = off")
    with contextlib.suppress(asyncpg.InsufficientPrivilegeError):
        await connection.execute("set log_error_verbosity = terse")
    return True


async def hold_products(connection: asyncpg.Connection, products: Iterable[str]) -> None:
    """Lock products, so that no other drain stores their events until the transaction ends.

    The locks are taken in a fixed order, so that drains cannot deadlock.
    """
    await connection.execute(
        "select pg_advisory_xact_lock($1, number) from"
        " (select distinct hashtext(name) as number from unnest($2::text[]) name"
        " order by 1) as numbers",
        _PRODUCTS,
        list(products),
    )


async def limit_statements(connection: asyncpg.Connection, seconds: float) -> None:
    """Have the server cancel statements of this transaction that take longer than `seconds`."""
    await connection.execute(f"set local statement_timeout = {round(seconds * 1000)}")


async def claim(connection: asyncpg.Connection, rows: Iterable[EventRow]) -> list[EventRow]:
    """Claim the new event ids; return the first row of each, in order. Call `store` next."""
    firsts: dict[str, EventRow] = {}
    for row in rows:
        firsts.setdefault(row.event_id, row)
    columns = ((row.event_id, row.received_at, row.sequence) for row in firsts.values())
    claimed = await connection.fetch(_CLAIM, *map(list, zip(*columns, strict=True)))
    ids = {record["event_id"] for record in claimed}
    return [row for id, row in firsts.items() if id in ids]


async def fetch_known(connection: asyncpg.Connection, ids: Iterable[str]) -> set[str]:
    """Return those of `ids` that belong to stored events."""
    rows = await connection.fetch(
        "select event_id from event_ids where event_id = any($1)", list(ids)
    )
    return {row["event_id"] for row in rows}


async def store(
    connection: asyncpg.Connection, new: Sequence[EventRow], rows: Iterable[EventRow]
) -> int:
    """Store `new`, the rows that `claim` returned; return the number of new conflicts.

    `rows` are all rows of the batch. A row is a conflict if it differs from the event stored under
    its id. Storing the same rows again changes nothing. Raises asyncpg.PostgresError if any row is
    refused.
    """
    if new:
        await connection.copy_records_to_table("events", records=map(_record, new), columns=_STORED)
    digests = {row.event_id: row.digest for row in new}
    repeats = [row for row in rows if row.digest != digests.get(row.event_id)]
    if not repeats:
        return 0
    times = await connection.fetch(_TIMES, [row.event_id for row in repeats])
    of = {record["received_at"] for record in times}
    columns = map(list, zip(*map(_compared, repeats), strict=True))
    return len(await connection.fetch(_CONFLICTS, *columns, list(of)))


def _record(row: EventRow) -> tuple[object, ...]:
    """Return the values of a row, in the order of the columns in `_STORED`."""
    flags = row.flags.split(",") if row.flags else []
    if row.campaign is None:
        return (*row[:10], flags, None, None, None, None, None)
    of_click = row.campaign, row.creative, row.descriptor, row.value_micros, row.first_deposit
    return (*row[:10], flags, *of_click)


async def fetch_members(
    connection: asyncpg.Connection, sequences: Iterable[bytes], event_ids: Iterable[str]
) -> list[SequenceMember]:
    """Fetch the events of these sequences, and the events with these ids, in order of arrival."""
    found = await connection.fetch(
        "select event_id, received_at from event_ids where sequence = any($1)"
        " union select event_id, received_at from event_ids where event_id = any($2)",
        list(sequences),
        list(event_ids),
    )
    members = [
        SequenceMember(*record)
        for day, of_day in _by_day(found, itemgetter("received_at"))
        for record in await connection.fetch(
            _MEMBERS,
            [row["event_id"] for row in of_day],
            [row["received_at"] for row in of_day],
            day,
        )
    ]
    return sorted(members, key=attrgetter("arrival"))


async def set_flags(
    connection: asyncpg.Connection, flagged: Sequence[tuple[SequenceMember, Sequence[str]]]
) -> None:
    """Replace the sequence flags of events; keep their flags about click ids."""
    for day, of_day in _by_day(flagged, lambda pair: pair[0].received_at):
        await connection.execute(
            _FLAG,
            [member.event_id for member, _ in of_day],
            [member.received_at for member, _ in of_day],
            [",".join(names) for _, names in of_day],
            day,
        )


# -- cash-outs to flag again ----------------------------------------------------------------------


async def revise_later(connection: asyncpg.Connection, bonus_of: Mapping[bytes, bytes]) -> None:
    """Schedule stored cash-outs to be fetched by `fetch_revisions`, and then flagged again.

    `bonus_of` maps the `sequence` column of cash-outs to that of their bonus.
    """
    if bonus_of:
        await connection.execute(_REVISE_LATER, list(bonus_of), list(bonus_of.values()))


async def fetch_revisions(
    connection: asyncpg.Connection, sequences: int, rows: int
) -> list[Revision]:
    """Fetch and lock cash-outs to flag again: the next page of each of up to `sequences` bonuses.

    The pages have about `rows` cash-outs in total.
    """
    found = await connection.fetch(_REVISIONS, sequences, rows)
    return [Revision(row["sequence"], row["bonus"], row["ids"], row["revised"]) for row in found]


async def note_revised(
    connection: asyncpg.Connection, revisions: Iterable[Revision], most: int
) -> None:
    """Record that these pages of cash-outs have been flagged again.

    A bonus is done after an empty page, or once `most` of its cash-outs have been flagged.
    """
    going_on = []
    for revision in revisions:
        revised = revision.revised + len(revision.event_ids)
        if revision.event_ids and revised < most:
            going_on.append((revision.sequence, revision.event_ids[-1], revised))
        else:
            await connection.execute(
                "delete from event_revision where sequence = $1", revision.sequence
            )
    await connection.executemany(
        "update event_revision set after = $2, revised = $3, at = clock_timestamp()"
        " where sequence = $1",
        going_on,
    )


def _by_day(
    items: Iterable[T], received_at: Callable[[T], datetime]
) -> list[tuple[datetime, list[T]]]:
    """Group items by day of receipt, so that each query plans, locks and reads one partition."""
    days: dict[datetime, list[T]] = {}
    for item in items:
        day = received_at(item).replace(hour=0, minute=0, second=0, microsecond=0)
        days.setdefault(day, []).append(item)
    return sorted(days.items())


# -- dead letters ---------------------------------------------------------------------------------


async def dead_letter(connection: asyncpg.Connection, letters: Sequence[DeadLetter]) -> int:
    """Store dead letters, each payload once; return how many were added."""
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


async def discard(connection: asyncpg.Connection, moment: datetime) -> int:
    """Delete a batch of dead letters from before `moment`; return how many, 0 if none is left."""
    status: str = await connection.execute(
        "delete from event_dead_letters where number in (select number from"
        " (select number, failed_at from event_dead_letters order by number limit $2) as oldest"
        " where failed_at < $1)",
        moment,
        DISCARDED,
    )
    return int(status.split()[1])


async def newest_dead_letter(connection: asyncpg.Connection) -> int:
    """Return the number of the newest dead letter, 0 if there is none."""
    return int(await connection.fetchval("select coalesce(max(number), 0) from event_dead_letters"))


async def take_dead_letters(connection: asyncpg.Connection, newest: int, count: int) -> list[bytes]:
    """Remove the oldest `count` dead letters up to number `newest`; return their payloads."""
    rows = await connection.fetch(
        "delete from event_dead_letters where number in"
        " (select number from event_dead_letters where number <= $1 order by number limit $2)"
        " returning number, payload",
        newest,
        count,
    )
    return [row["payload"] for row in sorted(rows, key=lambda row: row["number"])]
