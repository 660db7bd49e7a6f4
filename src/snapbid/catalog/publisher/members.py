"""The publisher of members, which reads changes in audiences and replaces the mapped files.

A change is usually in the file within a second. The file holds only the changes since a base of all
members was made. The base is rebuilt once a day, or after too many changes; changes are still
published meanwhile. If killed at any moment, the publisher leaves complete files behind, and the
next publisher continues from their base.
"""

import asyncio
import logging
import zlib
from pathlib import Path
from time import monotonic, time
from typing import Any, Final

import asyncpg

from snapbid.catalog import catalog, members
from snapbid.catalog._members import EPOCH_S, starts_of
from snapbid.catalog.catalog import CatalogError, Stamp
from snapbid.catalog.members import ENTRY, NEVER, MemberBase, until_of
from snapbid.warehouse import audiences, bases, fence, persons
from snapbid.warehouse.unavailable import session

LOOK_EVERY_S: Final = 0.5
MOST_BUSY: Final = 0.25  # share of the time spent on publishing
BASE_S: Final = 86_400.0  # age at which a base is rebuilt; less than audiences.KEPT_DAYS
LEAST: int = 100_000  # changed members allowed over any base, however small
SHARE: int = 32  # or 1/32 of the base, if that is more
PAGE: Final = 50_000  # members read at once

logger = logging.getLogger(__name__)

# A page of current members, encoded as in the file.
_PAGE: Final = f"""
select string_agg(
    int8send(member) || int4send(audience) || int4send(case when until = 'infinity' then {NEVER}
        else least(extract(epoch from until)::bigint - {EPOCH_S}, {NEVER})::int end),
    ''::bytea order by member, audience)
from (
    select member, audience, until from audience_member
    where (member, audience) > ($1::bigint, $2::int) order by member, audience limit {PAGE}
) as page
where until > now()
"""
_END: Final = f"""
select member, audience from audience_member where (member, audience) > ($1::bigint, $2::int)
order by member, audience offset {PAGE - 1} limit 1
"""


class MemberPublisher:
    """Publishes the members of audiences to the file `path`; for use on one event loop."""

    def __init__(self, dsn: str, path: Path) -> None:
        self._dsn = dsn
        self._path = path
        self._base: MemberBase | None = None
        self._changed: dict[tuple[int, int], tuple[int, int]] | None = None  # -> until, revision
        self._revision = 0
        self._warehouse = ""  # the name of the members' data
        self._published: tuple[Any, ...] = ()
        self._written: Stamp | None = None
        self.making: asyncio.Task[MemberBase] | None = None  # a base

    async def follow(self) -> None:
        """Publish after each change until the connection is lost."""
        connection = await bases.connect_following(self._dsn, bases.MEMBERS)
        try:
            while not connection.is_closed():
                began = monotonic()
                await self._publish(connection)
                await asyncio.sleep(max(LOOK_EVERY_S, (monotonic() - began) / MOST_BUSY))
        finally:
            connection.terminate()

    async def _publish(self, connection: asyncpg.Connection) -> None:
        """Read memberships, names and the key; replace the member file if any have changed."""
        await self._take_base(connection)
        assert self._changed is not None
        rows = await audiences.fetch_members(connection, self._revision)
        for row in rows:
            self._changed[row.member, row.audience] = until_of(row.until), row.revision
        self._revision = max([self._revision, *(row.revision for row in rows)])
        names = await audiences.fetch_names(connection)
        key = (await persons.fetch_key(connection)).key
        state = (names, key, self._revision, self._base)
        if state != self._published or self._written != catalog.stamp_of(self._path):
            changed = [(*at, until) for at, (until, _) in sorted(self._changed.items())]
            pieces = members.encode(key, *names, changed, self._base)
            self._written, self._published = catalog.write(self._path, pieces), state
            self._remove_others()
        if self._is_due():
            self._make_base()

    async def _take_base(self, connection: asyncpg.Connection) -> None:
        """Switch to the base being made, once it is ready.

        Before that, if the current base's file is gone, or the members were restored or rewritten,
        switch to the published base or, if that is old or unrecorded, to a new one.
        """
        warehouse = await fence.name_of(connection, "audience_member")
        if warehouse != self._warehouse:
            self._warehouse, self._changed, self._published = warehouse, None, ()
        if self._base is None or not self._path.with_name(self._base.name).exists():
            self._changed = None
        if self._changed is None:
            self._base = await asyncio.to_thread(self._published_base)
            if self._base is None or not await audiences.has_base(connection, self._base.id):
                self._base = await make_base(self._dsn, self._path)
            self._changed, self._revision = {}, self._base.revision
        if self.making is not None and self.making.done():
            making, self.making = self.making, None
            base = making.result()
            if await audiences.has_base(connection, base.id):
                self._base = base
                self._changed = {
                    at: row for at, row in self._changed.items() if row[1] > base.revision
                }

    def _published_base(self) -> MemberBase | None:
        try:
            base = members.open_members(self._path).base
        except (OSError, CatalogError):
            return None
        return base if base is not None and time() - base.made_at < BASE_S else None

    def _is_due(self) -> bool:
        assert self._base is not None
        assert self._changed is not None
        is_large = len(self._changed) > max(LEAST, self._base.count // SHARE)
        return is_large or time() - self._base.made_at > BASE_S

    def _make_base(self) -> None:
        if self.making is None:
            self.making = asyncio.create_task(make_base(self._dsn, self._path))

    def _remove_others(self) -> None:
        """Remove the files of all bases but the current one, unless a base is being made."""
        assert self._base is not None
        for path in self._path.parent.glob(f"{self._path.name}-*"):
            if path.name != self._base.name and self.making is None:
                path.unlink(missing_ok=True)


async def make_base(dsn: str, path: Path) -> MemberBase:
    """Write all current members to a new base beside `path`, and record it in the warehouse.

    Raises UnwritableError, and the errors of UNAVAILABLE.
    """
    async with session(dsn) as connection:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            revision = await audiences.fetch_revision(connection)
            name = f"{path.name}-{revision}-{time():.0f}"
            beside = path.with_name(f"{name}.tmp")
            size, checksum = 0, 0
            with catalog.writing(beside):
                with beside.open("wb") as file:
                    async for entries in _pages(connection):
                        file.write(entries)
                        size += len(entries)
                        checksum = zlib.crc32(entries, checksum)
                    file.flush()
                    starts = await asyncio.to_thread(_starts, beside, size)
                    file.write(starts)
                beside.replace(path.with_name(name))
        id = await audiences.record_base(connection)
    count = size // ENTRY.size
    logger.info("published a base of %(members)d audience members", {"members": count})
    return MemberBase(name, count, zlib.crc32(starts, checksum), revision, id, time())


async def _pages(connection: asyncpg.Connection) -> Any:
    """Yield the packed entries of all current members, a page at a time, in ascending order."""
    at: tuple[int, int] | None = (-(2**63), 0)
    while at is not None:
        entries = await connection.fetchval(_PAGE, *at)
        if entries:
            yield entries
        end = await connection.fetchrow(_END, *at)
        at = None if end is None else (end["member"], end["audience"])


def _starts(path: Path, size: int) -> bytes | bytearray:
    return starts_of(catalog.map_file(path) if size else b"")
