"""Stored campaigns: the imported documents, their status, and the history of changes.

A document is stored and fetched as JSON text, its normalised form as bytes; the package `campaigns`
interprets both. Each change gives a campaign a new revision, a number that only grows. A deleted
campaign leaves its id and a revision behind, so readers can fetch all changes since the last
revision they saw.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import Literal, NamedTuple

import asyncpg
import msgspec

from snapbid.warehouse import fence

Status = Literal["active", "paused"]


class UnknownCampaignError(LookupError):
    """There is no campaign with that id."""


class ImportCounts(msgspec.Struct, frozen=True):
    """The numbers of campaigns that an import added, changed and left unchanged."""

    added: int
    changed: int
    unchanged: int


class CampaignRow(NamedTuple):
    """A campaign as the catalog loads it.

    `number` belongs to the id, and is never reused; `created_at_ms`: the first import (epoch ms).
    """

    id: bytes
    content: bytes  # the normalised form, or else the document in UTF-8
    is_normalised: bool
    is_active: bool
    number: int
    created_at_ms: int


class StoredCampaign(msgspec.Struct, frozen=True, gc=False):
    """A campaign as imported or written by plain SQL."""

    id: str
    document: str  # JSON, in which "status" is the current status
    status: Status
    revision: int
    number: int  # belongs to the id, and is never reused
    created_at_ms: int  # when it was first imported (epoch ms)
    normalised: bytes | None = None  # None if written by plain SQL, or if not fetched
    rules: int | None = None  # the version of the rules by which it was normalised

    def row(self, rules: int) -> CampaignRow:
        """Return the row that the catalog loads.

        Its content is the normalised form if that was made by version `rules` of the rules,
        otherwise the document.
        """
        form = self.normalised if self.rules == rules else None
        content = self.document.encode() if form is None else form
        active = self.status == "active"
        return CampaignRow(
            self.id.encode(), content, form is not None, active, self.number, self.created_at_ms
        )


class Changes(msgspec.Struct, frozen=True):
    """The changes after a revision, and the revision to pass next time."""

    revision: int
    changed: tuple[StoredCampaign, ...]
    deleted: tuple[str, ...]


class WarehouseState(msgspec.Struct, frozen=True):
    """The state of the stored campaigns, deleted ones included.

    `warehouse` identifies the campaigns' data (`fence.name_of`); `revision`: the highest so far.
    Revisions can be compared only if `warehouse` is the same.
    """

    warehouse: str
    revision: int


_CREATED_AT_MS = "floor(extract(epoch from created_at) * 1000)::bigint"
_COLUMNS = (
    f"id, document::text as document, status, revision, number, {_CREATED_AT_MS} as created_at_ms"
)
_FROM = "from campaign join campaign_number using (id)"
_COPIED = (
    f"select number, {_CREATED_AT_MS}, status = 'active', coalesce(rules = $1, false), id,"
    " case when rules = $1 then normalised else convert_to(document::text, 'UTF8') end"
    f" {_FROM}"
)
_COPY_MAGIC = b"PGCOPY\n\xff\r\n\0"
_COPY_HEAD = len(_COPY_MAGIC) + 8  # flags and the size of an extension, both 0
# The number of columns, then the columns, each after its size: int4, int8, two booleans, and of the
# id only the size.
_ROW_HEAD = Struct(">hiiiqi?i?i")


async def replace_many(
    connection: asyncpg.Connection,
    documents: Iterable[tuple[str, str] | tuple[str, str, bytes]],
    rules: int | None = None,
) -> ImportCounts:
    """Add or replace campaigns, all or none.

    `documents` are tuples of id, JSON document and, with `rules`, the form normalised under that
    version of the rules. Ids must be unique. A campaign keeps its revision if its document and
    rules stay the same, and keeps its status if the document has no `status`. Documents are
    consumed one by one; an error raised by their iterator undoes the import.
    """
    async with connection.transaction():
        await connection.execute(
            "create temporary table incoming"
            " (id text primary key, document jsonb not null, normalised bytea)"
            " with (toast_tuple_target = 8160) on commit drop"
        )
        columns = ["id", "document"] if rules is None else ["id", "document", "normalised"]
        copied = await connection.copy_records_to_table(
            "incoming", records=documents, columns=columns
        )
        total = int(copied.removeprefix("COPY "))
        # The lock keeps the counts exact: no other writer comes between reading and writing.
        await connection.execute("select catalog_lock()")
        known = await connection.fetchval("select count(*) from incoming join campaign using (id)")
        before = await connection.fetchval(
            "select case when is_called then last_value else 0 end from campaign_revision"
        )
        await connection.execute(
            "insert into campaign (id, document, status, normalised, rules)"
            " select i.id, i.document, coalesce(i.document ->> 'status', c.status), i.normalised,"
            " $1::int from incoming i left join campaign c using (id)"
            " on conflict (id) do update set document = excluded.document,"
            " status = excluded.status, normalised = excluded.normalised, rules = excluded.rules"
            " where campaign.document <> excluded.document or campaign.rules <> excluded.rules"
            " or (campaign.rules is null and excluded.rules is not null)",
            rules,
        )
        written = await connection.fetchval(
            "select count(*) from campaign where revision > $1", before
        )
    added = total - known
    return ImportCounts(added, written - added, total - written)


async def set_status(connection: asyncpg.Connection, campaign: str, status: Status) -> bool:
    """Pause or resume one campaign; return False if it already had that status.

    Raises UnknownCampaignError.
    """
    async with connection.transaction():
        await connection.execute("select catalog_lock()")
        before = await connection.fetchval("select status from campaign where id = $1", campaign)
        if before is None:
            raise _unknown(campaign)
        if before != status:
            await connection.execute(
                "update campaign set status = $2 where id = $1", campaign, status
            )
    return bool(before != status)


async def delete(connection: asyncpg.Connection, campaign: str) -> None:
    """Delete one campaign; its figures are kept. Raises UnknownCampaignError."""
    async with connection.transaction():
        await connection.execute("select catalog_lock()")
        deleted = await connection.fetchval(
            "delete from campaign where id = $1 returning id", campaign
        )
    if deleted is None:
        raise _unknown(campaign)


def _unknown(campaign: str) -> UnknownCampaignError:
    return UnknownCampaignError(f"there is no campaign with the id {campaign[:60]!a}")


async def fetch_all(connection: asyncpg.Connection) -> AsyncGenerator[StoredCampaign]:
    """Fetch all campaigns from one snapshot, ordered by id, a thousand at a time."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        async for row in connection.cursor(f"select {_COLUMNS} {_FROM} order by id", prefetch=1000):
            yield StoredCampaign(*row)


async def copy_all(
    connection: asyncpg.Connection, rules: int | None, take: Callable[[list[CampaignRow]], None]
) -> None:
    """Pass all campaigns to `take`, unordered, in lists as they arrive; requires a transaction.

    A row's `content` is the normalised form if one is stored for this version of the `rules`,
    otherwise the document. While `take` works, PostgreSQL continues to send until the socket's
    buffer is full.
    """

    async def read(data: bytes) -> None:
        take(list(_rows(data)))

    # Enough to join the tables in memory: otherwise the documents go through temporary files.
    await connection.execute("set local work_mem = '256MB'")
    await connection.copy_from_query(_COPIED, rules, output=read, format="binary")


def _rows(data: bytes) -> Iterator[CampaignRow]:
    """Parse a message of whole rows in PostgreSQL's binary COPY format."""
    offset = _COPY_HEAD if data.startswith(_COPY_MAGIC) else 0
    end = len(data) - _ROW_HEAD.size  # after it there is at most the trailer
    while offset < end:
        _, _, number, _, created_at_ms, _, is_active, _, is_normalised, size = (
            _ROW_HEAD.unpack_from(data, offset)
        )
        start = offset + _ROW_HEAD.size + size + 4
        offset = start + int.from_bytes(data[start - 4 : start], "big")
        yield CampaignRow(
            data[start - 4 - size : start - 4],
            data[start:offset],
            is_normalised,
            is_active,
            number,
            created_at_ms,
        )


async def fetch_state(connection: asyncpg.Connection) -> WarehouseState:
    revision = await connection.fetchval(
        "select greatest((select max(revision) from campaign),"
        " (select max(revision) from campaign_gone), 0)"
    )
    return WarehouseState(await fence.name_of(connection, "campaign"), revision)


async def count_all(connection: asyncpg.Connection) -> int:
    """Count all campaigns, active and paused."""
    return int(await connection.fetchval("select count(*) from campaign"))


async def count_since(connection: asyncpg.Connection, revision: int, most: int) -> int:
    """Count campaigns changed or deleted after a revision, up to `most` of either kind."""
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


async def fetch_some(connection: asyncpg.Connection, ids: Sequence[str]) -> list[StoredCampaign]:
    """Fetch the existing campaigns with these ids, in no particular order."""
    rows = await connection.fetch(f"select {_COLUMNS} {_FROM} where id = any($1)", list(ids))
    return [StoredCampaign(*row) for row in rows]


async def fetch_naming(connection: asyncpg.Connection, audience: str) -> list[str]:
    """Fetch the ids of campaigns whose targeting names an audience."""
    rows = await connection.fetch(
        "select id from campaign where jsonb_path_exists("
        "document, '$.targeting.audience.*[*] ? (@ == $id)', jsonb_build_object('id', $1::text))"
        " order by id",
        audience,
    )
    return [row["id"] for row in rows]


async def fetch_since(connection: asyncpg.Connection, revision: int) -> Changes:
    """Fetch the changes after a revision, in order; revision 0 returns everything."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        rows = await connection.fetch(
            f"select {_COLUMNS}, normalised, rules {_FROM} where revision > $1 order by revision",
            revision,
        )
        gone = await connection.fetch(
            "select id, revision from campaign_gone g where revision > $1"
            " and not exists (select from campaign c where c.id = g.id) order by revision",
            revision,
        )
    changed = tuple(StoredCampaign(*row) for row in rows)
    newest = max(
        revision,
        changed[-1].revision if changed else 0,
        gone[-1]["revision"] if gone else 0,
    )
    return Changes(newest, changed, tuple(row["id"] for row in gone))
