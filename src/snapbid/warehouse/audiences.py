"""Audiences in the warehouse: definitions, members, and the facts that decide who is a member.

Persons and members are identified by keyed hashes (`campaigns.persons`). Facts about persons are
stored in `person_…` tables, and `refresh` derives each member's audiences from them. Writers hold
the lock of the persons' product (`events.hold_products`).
"""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final, NamedTuple

import asyncpg

from snapbid.campaigns.audiences import Audience
from snapbid.warehouse import conversions, events
from snapbid.warehouse.events import EventRow

LINKS: Final = 64  # members kept of a person: the last seen
KEPT_LINKS: Final = 256  # members kept of a restricted person: the first seen
PERSONS: Final = 1_000  # of a product and member that count for audiences: the last seen
KEPT_DAYS: Final = 2  # days that ended memberships are kept, for readers that have not seen the end
DISCARDED: Final = 5_000  # rows deleted at once

_ADDED: Final = 0x736E6C69  # the class of the advisory locks of audiences being added


class Definition(NamedTuple):
    """An audience defined by a product's events; `min_amount_usd` is in micro-USD."""

    number: int
    product: str
    event: str
    min_amount_usd: int | None


class Count(NamedTuple):
    """A person's event that counts for an audience."""

    person: int
    audience: int
    at: datetime


class Restriction(NamedTuple):
    """When a person was last blocked or unblocked, and last refused or accepted marketing."""

    person: int
    product: str
    blocked_at: datetime | None = None
    unblocked_at: datetime | None = None
    refused_at: datetime | None = None
    accepted_at: datetime | None = None


class Link(NamedTuple):
    """A link from a person, known from a product's events, to a member.

    The member is an id by which bid requests name the same person. Both are hashes.
    """

    person: int
    member: int
    product: str


class Listed(NamedTuple):
    """An audience as shown to the operator, with its number of members."""

    id: str
    product: str | None
    event: str | None
    within_days: int | None
    at_least: int | None
    min_amount_usd: int | None
    members: int
    added_at: datetime
    complete: bool  # whether all stored events have been counted, or all ids listed


class Member(NamedTuple):
    """The membership of one member in one audience, which ends at `until`."""

    member: int
    audience: int
    until: datetime
    revision: int


class Names(NamedTuple):
    """The names behind the audience numbers in `audience_member`.

    A number denotes an audience, whose id is in `audiences`, or the restricted persons of a
    product, whose name is in `products`.
    """

    audiences: dict[int, str]
    products: dict[int, str]


# -- definitions ----------------------------------------------------------------------------------


async def fetch_definitions(
    connection: asyncpg.Connection, products: Iterable[str]
) -> list[Definition]:
    """Fetch the audiences defined by events of these products."""
    rows = await connection.fetch(
        "select number, product, event, min_amount_usd from audience"
        " where event is not null and product = any($1)",
        list(products),
    )
    return [Definition(*row) for row in rows]


async def add(connection: asyncpg.Connection, audience: Audience) -> int | None:
    """Add or replace an audience defined by events; return its number, or None if nothing changed.

    Requires a transaction that holds the locks of the audience's product and, if the product
    changes, of its former one. An audience that was defined by events before keeps its members
    until the events are counted again; one that was a list loses its members at once. Call
    `complete` once the events are counted: until then, the number is returned even if nothing has
    changed.
    """
    fields = (
        audience.id,
        audience.product,
        audience.event,
        audience.within_days,
        audience.at_least,
        audience.min_amount_usd,
    )
    if await fetch_product(connection, audience.id) is None:
        await remove(connection, audience.id)  # memberships of a list would never end
    number: int | None = await connection.fetchval(_DEFINE, *fields)
    if number is not None:
        await connection.execute("delete from person_audience where audience = $1", number)
    return number


async def complete(connection: asyncpg.Connection, number: int) -> None:
    """Mark an audience as complete: it has all its members."""
    await connection.execute("update audience set complete = true where number = $1", number)


@asynccontextmanager
async def changing(connection: asyncpg.Connection, id: str) -> AsyncIterator[None]:
    """Hold the lock for adding the audience with this id; wait until it is free."""
    await connection.execute("select pg_advisory_lock($1, hashtext($2))", _ADDED, id)
    try:
        yield
    finally:
        await connection.execute("select pg_advisory_unlock($1, hashtext($2))", _ADDED, id)


async def add_list(
    connection: asyncpg.Connection, id: str, members: Sequence[int], page: int = 10_000
) -> int:
    """Add or replace an audience that lists these members; return how many members it has.

    Forgotten persons are left out. Works in pages, so that others wait only briefly for the lock on
    members. Former members are removed last, so a member on both the old and the new list is never
    missing. After an interruption, the audience has members of both lists until the call is
    repeated.
    """
    async with changing(connection, id):
        number = await _begin_list(connection, id)
        for some in pages(members, page):
            async with connection.transaction():
                await hold(connection)
                await connection.execute(_LIST, some, number)
        gone = await connection.fetch(_NOT_LISTED, members, number)
        for some in pages([row["member"] for row in gone], page):
            async with connection.transaction():
                await hold(connection)
                await connection.execute(_UNLIST, some, number)
        await complete(connection, number)
        return len(await fetch_members_of(connection, number))


async def _begin_list(connection: asyncpg.Connection, id: str) -> int:
    """Add an audience as a list, or turn the one with this id into a list; return its number."""
    async with connection.transaction():
        product = await fetch_product(connection, id)
        if product is not None:
            await events.hold_products(connection, {product})
        number: int = await connection.fetchval(_BEGIN_LIST, id)
        await connection.execute("delete from person_audience where audience = $1", number)
    return number


def pages(members: Sequence[int], page: int) -> Iterable[Sequence[int]]:
    """Divide members into pages, each for a separate transaction."""
    return (members[start : start + page] for start in range(0, len(members), page))


async def fetch_members_of(connection: asyncpg.Connection, number: int) -> list[int]:
    """Fetch the current members of an audience."""
    rows = await connection.fetch(
        "select member from audience_member where audience = $1 and until > now()", number
    )
    return [row["member"] for row in rows]


async def fetch_product(connection: asyncpg.Connection, id: str) -> str | None:
    """Fetch the product whose events an audience counts; None for a list or an unknown audience."""
    product: str | None = await connection.fetchval(
        "select product from audience where id = $1", id
    )
    return product


async def remove(connection: asyncpg.Connection, id: str) -> bool:
    """Remove an audience; return whether there was one. Requires a transaction."""
    number = await connection.fetchval("delete from audience where id = $1 returning number", id)
    if number is None:
        return False
    await connection.execute("delete from audience_member where audience = $1", number)
    return True


# The events stored before an audience was defined; `with hold`, since each page is a transaction.
# PostgreSQL copies them when the cursor's transaction ends, which may take minutes.
_STORED: Final = """
declare audience_events no scroll cursor with hold for
select event_id, product, event, occurred_at, received_at, client_user_id, anonymous_id, click_id,
    context::text, enrichment::text, null::bytea, null::bytea
from events
where product = {product} and event = {event} and arrival <= {last}
    and received_at > now() - interval '{days} days 2 hours'
    and occurred_at > now() - interval '{days} days'
    and (client_user_id is not null or anonymous_id is not null)
"""


async def fetch_last_arrival(connection: asyncpg.Connection) -> int:
    """Fetch the highest `arrival` number given to an event so far; 0 before the first event.

    For a caller that has locked a product (`hold_products`), no stored event of that product has a
    higher number than the result.
    """
    last: int = await connection.fetchval(
        "select coalesce(pg_sequence_last_value(pg_get_serial_sequence('events', 'arrival')), 0)"
    )
    return last


async def open_events(connection: asyncpg.Connection, audience: Audience, last: int) -> None:
    """Open a cursor on the events that may count for an audience, up to `arrival` number `last`.

    This takes as long as reading all events of the audience's window, so call it without locks.
    """
    quoted = {
        name: await connection.fetchval("select quote_literal($1::text)", value)
        for name, value in (("product", audience.product), ("event", audience.event))
    }
    async with connection.transaction():
        await connection.execute(_STORED.format(days=audience.within_days, last=last, **quoted))


async def fetch_events(connection: asyncpg.Connection, count: int) -> list[EventRow]:
    """Fetch the next events, at most `count`, from the cursor of `open_events`."""
    return [EventRow(*row) for row in await connection.fetch(f"fetch {count} from audience_events")]


async def close_events(connection: asyncpg.Connection) -> None:
    """Close the cursor of `open_events`."""
    await connection.execute("close audience_events")


async def fetch_listed(connection: asyncpg.Connection) -> list[Listed]:
    """Fetch all audiences, each with its number of members."""
    rows = await connection.fetch(
        "select id, product, event, within_days, at_least, min_amount_usd, (select count(*)"
        " from audience_member where audience = number and until > now()) as members, added_at,"
        " complete"
        " from audience where id is not null order by id"
    )
    return [Listed(*row) for row in rows]


_DEFINE: Final = """
insert into audience as a (id, product, event, within_days, at_least, min_amount_usd)
values ($1, $2, $3, $4, $5, $6)
on conflict (id) do update set product = excluded.product, event = excluded.event,
    within_days = excluded.within_days, at_least = excluded.at_least,
    min_amount_usd = excluded.min_amount_usd, added_at = now(), complete = false
where not a.complete
    or (a.product, a.event, a.within_days, a.at_least, a.min_amount_usd) is distinct from
        ($2, $3, $4, $5, $6)
returning number
"""
_BEGIN_LIST: Final = """
insert into audience (id) values ($1)
on conflict (id) do update set product = null, event = null, within_days = null, at_least = null,
    min_amount_usd = null, added_at = now(), complete = false
returning number
"""
_LIST: Final = """
insert into audience_member as m
select member, $2, 'infinity', nextval('audience_revision') from unnest($1::bigint[]) as l (member)
where not exists (select from suppressed_member s where s.member = l.member)
on conflict (member, audience) do update set until = excluded.until, revision = excluded.revision
where m.until <> excluded.until
"""
_NOT_LISTED: Final = """
select member from audience_member m where audience = $2 and until > now()
    and not exists (select from unnest($1::bigint[]) as l (member) where l.member = m.member)
"""
_UNLIST: Final = """
update audience_member set until = now(), revision = nextval('audience_revision')
where member = any($1) and audience = $2
"""


# -- persons --------------------------------------------------------------------------------------

# An existing pair is rewritten once a day, and whenever another person has been seen since.
_ALIAS: Final = """
insert into person_alias as a (anonymous, person, seen_at)
select anonymous, person, clock_timestamp() + position * interval '1 microsecond'
from unnest($1::bigint[], $2::bigint[]) with ordinality as i (anonymous, person, position)
on conflict (anonymous, person) do update set seen_at = excluded.seen_at
where a.seen_at < excluded.seen_at - interval '1 day' or a.anonymous = any($3) or exists (
    select from person_alias other where other.anonymous = a.anonymous
        and other.seen_at > a.seen_at)
returning anonymous, person, xmax = 0 as is_new
"""
# Members of a restricted person are never unlinked to make room, so new ones are left out instead.
_LINK: Final = """
insert into person_link as l (person, member, product, restricted)
select person, member, product, restricted from (
    select i.*, coalesce(r.holds, false) as restricted, known.member is null as is_new,
        count(*) filter (where known.member is null) over (
            partition by i.person order by i.member) as place
    from unnest($1::bigint[], $2::bigint[], $3::text[]) as i (person, member, product)
    left join person_restriction r using (person)
    left join person_link known using (person, member)
    where coalesce(r.holds, false)
        or not exists (select from suppressed_member s where s.member = i.member)
) as n
where not (restricted and is_new)
    or place + (select count(*) from person_link k where k.person = n.person) <= $4
order by 1, 2
on conflict (person, member) do update set seen_at = now(), person_seen_at = now()
where l.seen_at < now() - interval '1 hour'
returning person
"""
_UNLINK: Final = """
delete from person_link where (person, member) in (
    select person, member from (
        select person, member, row_number() over (
            partition by person order by seen_at desc, member) as place
        from person_link where person = any($1) and not restricted
    ) as placed where place > $2
) returning member
"""
_COUNT: Final = """
insert into person_audience as p (person, audience, times, until, fades_at)
select c.person, c.audience, newest.times,
    newest.times[a.at_least] + make_interval(days => a.within_days),
    newest.times[1] + make_interval(days => a.within_days)
from (
    select person, audience, array_agg(at) as times
    from unnest($1::bigint[], $2::int[], $3::timestamptz[]) as i (person, audience, at)
    group by person, audience
) as c
join audience a on a.number = c.audience
left join person_audience known using (person, audience)
cross join lateral (
    select array(
        select at from unnest(c.times || known.times) as t (at) order by at desc limit a.at_least
    ) as times
) as newest
on conflict (person, audience) do update set
    times = excluded.times, until = excluded.until, fades_at = excluded.fades_at
"""
_RESTRICT: Final = """
insert into person_restriction as p (
    person, product, blocked_at, unblocked_at, refused_at, accepted_at)
select person, product, max(blocked_at), max(unblocked_at), max(refused_at), max(accepted_at)
from unnest($1::bigint[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[],
    $6::timestamptz[]) as i (person, product, blocked_at, unblocked_at, refused_at, accepted_at)
group by person, product
on conflict (person) do update set
    blocked_at = greatest(p.blocked_at, excluded.blocked_at),
    unblocked_at = greatest(p.unblocked_at, excluded.unblocked_at),
    refused_at = greatest(p.refused_at, excluded.refused_at),
    accepted_at = greatest(p.accepted_at, excluded.accepted_at)
"""
_RESTRICT_LINKS: Final = """
update person_link l set restricted = r.holds from person_restriction r
where r.person = any($1) and l.person = r.person and l.restricted <> r.holds
"""
_EXCLUSIONS: Final = """
insert into audience (product) select distinct unnest($1::text[])
on conflict (product) where id is null do nothing
"""
_KNOWN: Final = """
select hash from unnest($1::bigint[]) as h (hash)
where exists (select from person_link where person = hash)
    or exists (select from person_link where member = hash)
    or exists (select from person_alias where anonymous = hash or person = hash)
    or exists (select from person_audience where person = hash)
    or exists (select from person_restriction where person = hash)
    or exists (select from click_link where person = hash)
    or exists (select from audience_member where member = hash and until > now())
"""
_EXCLUDED: Final = """
select count(*) from person_restriction r
where holds and (person = any($1) or exists (
    select from person_link l where l.person = r.person and l.member = any($2)))
"""
# Limited by product, so one product's persons cannot crowd out another's; restricted ones always
# count.
_REFRESH: Final = """
with counting as (
    select distinct product from audience where event is not null
),
behind as (
    select m.member, l.person from unnest($1::bigint[]) as m (member)
    cross join counting c
    cross join lateral (
        select person from person_link where member = m.member and product = c.product
        order by seen_at desc limit $2
    ) as l
    where not exists (select from suppressed_member s where s.member = m.member)
),
due as (
    select b.member, p.audience, max(p.until) as until
    from behind b join person_audience p using (person) where p.until > now()
    group by b.member, p.audience
    union all
    select m.member, a.number, timestamptz 'infinity'
    from unnest($1::bigint[]) as m (member) cross join audience a
    where a.id is null and exists (
        select from person_link
        where member = m.member and product = a.product and restricted)
),
ended as (
    select m.member, m.audience, now() as until
    from audience_member m join audience a on a.number = m.audience
    where m.member = any($1) and m.until > now() and a.product is not null
        and not exists (select from due d where (d.member, d.audience) = (m.member, m.audience))
)
insert into audience_member as m (member, audience, until, revision)
select member, audience, until, nextval('audience_revision')
from (select * from due union all select * from ended) as changed
on conflict (member, audience) do update set until = excluded.until, revision = excluded.revision
where m.until <> excluded.until
"""


async def alias(
    connection: asyncpg.Connection, pairs: Collection[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Record (anonymous, person) pairs; return the new ones.

    `pairs`: from the least to the most recently seen.
    """
    anonymous = [each for each, _ in pairs]
    shared = [each for each, count in Counter(anonymous).items() if count > 1]
    rows = await connection.fetch(_ALIAS, anonymous, [person for _, person in pairs], shared)
    return [(row["anonymous"], row["person"]) for row in rows if row["is_new"]]


async def fetch_aliases(
    connection: asyncpg.Connection, anonymous: Iterable[int]
) -> list[tuple[int, int]]:
    """Fetch the (anonymous, person) pairs of these anonymous ids, the least recently seen first.

    At most the `LINKS` most recent pairs are fetched per id.
    """
    rows = await connection.fetch(
        "select anonymous, person from unnest($1::bigint[]) as i (anonymous) cross join lateral"
        " (select person, seen_at from person_alias where anonymous = i.anonymous"
        " order by seen_at desc limit $2) as last order by seen_at",
        list(anonymous),
        LINKS,
    )
    return [(row["anonymous"], row["person"]) for row in rows]


async def fetch_links(connection: asyncpg.Connection, persons: Iterable[int]) -> list[Link]:
    """Fetch all links from these persons to members."""
    rows = await connection.fetch(
        "select person, member, product from person_link where person = any($1)", list(persons)
    )
    return [Link(*row) for row in rows]


async def link(
    connection: asyncpg.Connection, links: Collection[Link]
) -> tuple[set[int], set[int]]:
    """Link persons with members.

    Returns the persons with a new or renewed link, and the members that have lost a link. A link is
    renewed at most once an hour. A person who is not restricted keeps only the `LINKS` most recent
    links. A restricted person keeps all links, but gets no new ones beyond `KEPT_LINKS`.
    """
    rows = await connection.fetch(_LINK, *map(list, zip(*links, strict=True)), KEPT_LINKS)
    persons = {row["person"] for row in rows}
    lost = await connection.fetch(_UNLINK, list(persons), LINKS) if persons else []
    return persons, {row["member"] for row in lost}


async def renew(connection: asyncpg.Connection, persons: Iterable[int]) -> None:
    """Record that these persons were seen, so that their links to members do not expire."""
    await connection.execute(_RENEW, list(persons))


async def fetch_counts(connection: asyncpg.Connection, persons: Iterable[int]) -> list[Count]:
    """Fetch these persons' events that count for audiences."""
    rows = await connection.fetch(
        "select person, audience, times from person_audience where person = any($1)", list(persons)
    )
    return [Count(row["person"], row["audience"], at) for row in rows for at in row["times"]]


async def count(connection: asyncpg.Connection, counts: Sequence[Count]) -> None:
    """Count persons' events for audiences, and recompute the end of each person's membership."""
    if counts:
        await connection.execute(_COUNT, *map(list, zip(*counts, strict=True)))


async def restrict(connection: asyncpg.Connection, restrictions: Sequence[Restriction]) -> None:
    """Record restrictions of persons; for each kind of event, the latest time is kept."""
    if restrictions:
        columns = tuple(map(list, zip(*restrictions, strict=True)))
        await connection.execute(_EXCLUSIONS, columns[1])
        await connection.execute(_RESTRICT, *columns)
        await connection.execute(_RESTRICT_LINKS, columns[0])


async def fetch_restricted(connection: asyncpg.Connection, persons: Iterable[int]) -> set[int]:
    """Return those of `persons` to whom their product must not advertise."""
    rows = await connection.fetch(
        "select person from person_restriction where person = any($1) and holds", list(persons)
    )
    return {row["person"] for row in rows}


async def hold(connection: asyncpg.Connection) -> None:
    """Lock all members until the transaction ends; must be the last lock taken."""
    await connection.execute("select audience_lock()")


async def refresh(
    connection: asyncpg.Connection, persons: Iterable[int], members: Iterable[int] = ()
) -> None:
    """Recompute the audiences of these members, and of all members linked with these persons."""
    linked = {link.member for link in await fetch_links(connection, persons)}
    if affected := sorted(linked.union(members)):
        await hold(connection)
        await connection.execute(_REFRESH, affected, PERSONS)


async def fetch_known(connection: asyncpg.Connection, hashes: Iterable[int]) -> set[int]:
    """Return the hashes, of persons or members, for which the warehouse has any data."""
    rows = await connection.fetch(_KNOWN, list(hashes))
    return {row["hash"] for row in rows}


async def count_excluded(
    connection: asyncpg.Connection, persons: Iterable[int], members: Iterable[int]
) -> int:
    """Count the restricted persons who are among `persons` or linked with one of `members`."""
    counted: int = await connection.fetchval(_EXCLUDED, list(persons), list(members))
    return counted


async def erase(
    connection: asyncpg.Connection, persons: Collection[int], members: Collection[int]
) -> int:
    """Erase the data of persons and members; return how many rows this affected.

    Requires a transaction. All memberships of `members` end, including those in operators' lists.
    """
    listed = list(persons)
    rows = await connection.fetch(
        "delete from person_link where person = any($1) or member = any($2) returning member",
        listed,
        list(members),
    )
    removed = len(rows)
    for statement in (
        "delete from person_audience where person = any($1) or person in"
        " (select anonymous from person_alias where person = any($1)) returning 1",
        "delete from person_alias where anonymous = any($1) or person = any($1) returning 1",
        "delete from person_restriction where person = any($1) returning 1",
    ):
        removed += len(await connection.fetch(statement, listed))
    await refresh(connection, (), [row["member"] for row in rows])
    await hold(connection)
    ended = await connection.fetch(
        "update audience_member set until = now(), revision = nextval('audience_revision')"
        " where member = any($1) and until > now() returning 1",
        list(members),
    )
    return removed + len(ended)


# Persons are renewed once a day.
_RENEW: Final = """
update person_link set person_seen_at = now()
where person = any($1) and person_seen_at < now() - interval '1 day'
"""
# Ids of persons in an audience, and of restricted ones, are kept.
_UNSEEN: Final = """
delete from {table} where ctid = any(array(
    select ctid from {table} t
    where {seen_at} < now() - make_interval(days => $1)
        and not exists (select from person_audience a where a.person = t.person)
        and not exists (select from person_restriction r where r.person = t.person and r.holds)
    limit $2 for update skip locked))
"""


async def fetch_longest_window(connection: asyncpg.Connection) -> int:
    """Fetch the longest time (days) for which a person's click or event can count."""
    days: int = await connection.fetchval(
        "select greatest($1, (select max(attribution_days) from campaign),"
        " (select max(within_days) from audience))",
        conversions.WINDOW_DAYS,
    )
    return days


async def discard(connection: asyncpg.Connection, days: int) -> int:
    """Delete a batch of expired rows; return how many were deleted, 0 once none is left.

    Memberships, and persons' counts for audiences, expire KEPT_DAYS after their end. A link expires
    once its person has not been seen for `days` days, and an alias once its anonymous id and person
    have not been seen together for that long. Links and aliases are kept while their person has
    counts for an audience or is restricted.
    """
    deleted = 0
    for table, seen_at in (("person_link", "person_seen_at"), ("person_alias", "seen_at")):
        unseen = _UNSEEN.format(table=table, seen_at=seen_at)
        status: str = await connection.execute(unseen, days, DISCARDED)
        deleted += int(status.split()[1])
    for table, ends in (("person_audience", "fades_at"), ("audience_member", "until")):
        status = await connection.execute(
            f"delete from {table} where ctid in (select ctid from {table}"
            f" where {ends} < now() - interval '{KEPT_DAYS} days' limit {DISCARDED})"
        )
        deleted += int(status.split()[1])
    return deleted


# -- what workers look up -------------------------------------------------------------------------


async def fetch_revision(connection: asyncpg.Connection) -> int:
    """Fetch the highest revision of any membership; 0 if there are none."""
    revision: int = await connection.fetchval(
        "select coalesce(max(revision), 0) from audience_member"
    )
    return revision


async def fetch_names(connection: asyncpg.Connection) -> Names:
    """Fetch the names behind the audience numbers in `audience_member`."""
    rows = await connection.fetch("select number, id, product from audience")
    return Names(
        {row["number"]: row["id"] for row in rows if row["id"] is not None},
        {row["number"]: row["product"] for row in rows if row["id"] is None},
    )


async def fetch_present(connection: asyncpg.Connection, listed: Iterable[int]) -> list[Member]:
    """Fetch the current memberships of the `listed` members, ordered by member and audience."""
    rows = await connection.fetch(
        "select member, audience, until, revision from audience_member"
        " where member = any($1) and until > now() order by member, audience",
        list(listed),
    )
    return [Member(*row) for row in rows]


async def fetch_members(connection: asyncpg.Connection, revision: int) -> list[Member]:
    """Fetch the memberships that changed after a revision."""
    rows = await connection.fetch(
        "select member, audience, until, revision from audience_member where revision > $1",
        revision,
    )
    return [Member(*row) for row in rows]


async def record_base(connection: asyncpg.Connection) -> str:
    """Record a new base (a full copy of the members) and return its id.

    The warehouse keeps the record for at least KEPT_DAYS.
    """
    await connection.execute(
        f"delete from audience_base where made_at < now() - interval '{KEPT_DAYS} days'"
    )
    id = await connection.fetchval("insert into audience_base default values returning id")
    return str(id)


async def has_base(connection: asyncpg.Connection, id: str) -> bool:
    """Return whether this warehouse has recorded the base of members with this id.

    If not, the base was made from other data, such as the data before a restore.
    """
    has: bool = await connection.fetchval(
        "select exists (select from audience_base where id = $1::text::uuid)", id
    )
    return has
