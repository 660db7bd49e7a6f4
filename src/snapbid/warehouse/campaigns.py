"""Campaigns as they are stored: the imported documents, their status, and what changed when.

A document goes in and comes out as JSON text; what it means is not known here. Each change of a
campaign gives it a new revision, a number that only grows, and a deleted campaign leaves its id
and a revision behind, so that a reader can ask for what has changed since the last one it saw.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import Literal, NamedTuple

import asyncpg
import msgspec

Status = Literal["active", "paused"]


class UnknownCampaignError(LookupError):
    """There is no campaign with that id."""


class Replaced(msgspec.Struct, frozen=True):
    """How many campaigns an import added, changed, and left as they were."""

    added: int
    changed: int
    unchanged: int


class Copied(NamedTuple):
    """One campaign, its texts in UTF-8; the rest as in `Stored`."""

    id: bytes
    document: bytes
    number: int
    created_at_ms: int


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One campaign; `document` is its JSON, whose "status" is the status that holds now.

    `number` is the id's own and never another's, also after the campaign is gone; `created_at_ms`
    is when it was first imported (UTC epoch ms).
    """

    id: str
    document: str
    status: Status
    revision: int
    number: int
    created_at_ms: int

    def copied(self) -> Copied:
        return Copied(self.id.encode(), self.document.encode(), self.number, self.created_at_ms)


class Changes(msgspec.Struct, frozen=True):
    """What changed after a revision, and the revision to ask with the next time."""

    revision: int
    changed: tuple[Stored, ...]
    deleted: tuple[str, ...]


class Standing(msgspec.Struct, frozen=True):
    """How a warehouse stands: who it is, its newest revision, and how many campaigns it has.

    A warehouse of the same name has gone through all revisions in turn: it is another one where it
    was made anew or went back to a backup.
    """

    warehouse: str
    revision: int
    campaigns: int


_CREATED_AT_MS = "floor(extract(epoch from created_at) * 1000)::bigint"
_STORED = (
    "select id, document::text as document, status, revision, number,"
    f" {_CREATED_AT_MS} as created_at_ms from campaign join campaign_number using (id)"
)
_COPIED = (
    f"select number, {_CREATED_AT_MS}, id, document::text"
    " from campaign join campaign_number using (id)"
)
_COPY_MAGIC = b"PGCOPY\n\xff\r\n\0"
_COPY_HEAD = len(_COPY_MAGIC) + 8  # flags and the size of an extension, both 0
_ROW_HEAD = Struct(">hiiiqi")  # fields, then before each its size: int4, int8, text


async def replace_many(
    connection: asyncpg.Connection, documents: Iterable[tuple[str, str]]
) -> Replaced:
    """Add or replace campaigns, (id, JSON document) each, all of them or none.

    An id may occur only once. What is stored already in the same form keeps its revision. The
    documents are taken one by one; what their iterator raises ends the import.
    """
    async with connection.transaction():
        await connection.execute(
            "create temporary table incoming (id text primary key, document jsonb not null)"
            " on commit drop"
        )
        await connection.copy_records_to_table(
            "incoming", records=documents, columns=["id", "document"]
        )
        # The lock keeps the counts true: nobody else writes between the look and the change.
        await connection.execute("select catalog_lock()")
        total = await connection.fetchval("select count(*) from incoming")
        known = await connection.fetchval("select count(*) from incoming join campaign using (id)")
        done = await connection.execute(
            "insert into campaign (id, document) select id, document from incoming"
            " on conflict (id) do update set document = excluded.document,"
            " status = excluded.status where campaign.document is distinct from excluded.document"
        )
    added = total - known
    changed = int(done.rpartition(" ")[2]) - added
    return Replaced(added, changed, known - changed)


async def set_status(connection: asyncpg.Connection, campaign: str, status: Status) -> bool:
    """Pause or resume one campaign; False where it was so already.

    Raises UnknownCampaignError.
    """
    async with connection.transaction():
        await connection.execute("select catalog_lock()")
        before = await connection.fetchval("select status from campaign where id = $1", campaign)
        if before is None:
            raise UnknownCampaignError(f"there is no campaign with the id {campaign[:60]!a}")
        if before != status:
            await connection.execute(
                "update campaign set status = $2 where id = $1", campaign, status
            )
    return bool(before != status)


async def fetch_all(connection: asyncpg.Connection) -> AsyncIterator[Stored]:
    """Give every campaign in the order of the ids, as one moment saw them, without holding all."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        async for row in connection.cursor(f"{_STORED} order by id", prefetch=1000):
            yield Stored(*row)


async def copy_all(connection: asyncpg.Connection, take: Callable[[list[Copied]], None]) -> None:
    """Hand over every campaign, in no order, in lists as they come; needs a transaction.

    The warehouse is ahead by what a socket takes, so that both work at the same time.
    """

    async def read(data: bytes) -> None:
        take(list(_copied(data)))

    # Tables are joined by id: in memory, or else the documents go through temporary files.
    await connection.execute("set local work_mem = '256MB'")
    await connection.copy_from_query(_COPIED, output=read, format="binary")


def _copied(data: bytes) -> Iterator[Copied]:
    """Read rows of PostgreSQL's binary COPY format; a message of the warehouse holds whole rows."""
    at = _COPY_HEAD if data.startswith(_COPY_MAGIC) else 0
    end = len(data) - _ROW_HEAD.size  # behind which is at most the trailer
    while at < end:
        _, _, number, _, created_at_ms, size = _ROW_HEAD.unpack_from(data, at)
        start = at + _ROW_HEAD.size + size + 4
        at = start + int.from_bytes(data[start - 4 : start], "big")
        yield Copied(data[start - 4 - size : start - 4], data[start:at], number, created_at_ms)


async def fetch_standing(connection: asyncpg.Connection) -> Standing:
    return Standing(
        *await connection.fetchrow(
            "select (select format('%s/%s/%s', system_identifier, timeline_id, oid)"
            "  from pg_control_system(), pg_control_checkpoint(), pg_database"
            "  where datname = current_database()),"
            " greatest((select max(revision) from campaign),"
            "  (select max(revision) from campaign_gone), 0),"
            " (select count(*) from campaign)"
        )
    )


async def count_since(connection: asyncpg.Connection, revision: int, most: int) -> int:
    """Count what changed after a revision, up to `most`."""
    return int(
        await connection.fetchval(
            "select (select count(*) from"
            "  (select from campaign where revision > $1 limit $2) changed)"
            " + (select count(*) from"
            "  (select from campaign_gone where revision > $1 limit $2) gone)",
            revision,
            most,
        )
    )


async def fetch_some(connection: asyncpg.Connection, ids: Sequence[str]) -> list[Stored]:
    """Give the campaigns with these ids, as far as there are any, in no order."""
    rows = await connection.fetch(f"{_STORED} where id = any($1)", list(ids))
    return [Stored(*row) for row in rows]


async def fetch_since(connection: asyncpg.Connection, revision: int) -> Changes:
    """Give what changed after a revision, in the order of the changes; 0 gives everything."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        rows = await connection.fetch(f"{_STORED} where revision > $1 order by revision", revision)
        gone = await connection.fetch(
            "select id, revision from campaign_gone g where revision > $1"
            " and not exists (select from campaign c where c.id = g.id) order by revision",
            revision,
        )
    changed = tuple(Stored(*row) for row in rows)
    newest = max(
        revision,
        changed[-1].revision if changed else 0,
        gone[-1]["revision"] if gone else 0,
    )
    return Changes(newest, changed, tuple(row["id"] for row in gone))
