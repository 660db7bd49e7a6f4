"""Sharing of bases between machines through the warehouse: one builds, the others fetch and verify.

If bids are waiting for a base and no stored one fits, a machine builds one at once instead of
waiting for another machine, and does not store it.
"""

import hashlib
import logging
import os
import platform
import secrets
import sys
import zlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import asyncpg
import msgspec

import snapbid
from snapbid.catalog.catalog import Base
from snapbid.catalog.publisher.overlay import LEAST, SHARE
from snapbid.warehouse import bases, campaigns
from snapbid.warehouse.unavailable import UNAVAILABLE

PREFIX: Final = "base-"
PART: Final = 4 << 20  # bytes
WAIT_S: Final = 120.0  # for the building machine; a million campaigns take half a minute
FEWEST: int = 20_000  # campaigns worth sharing; fewer are built in a second

logger = logging.getLogger(__name__)


class ObtainedBase(msgspec.Struct, frozen=True):
    """A base, and whether it was fetched from another machine."""

    base: Base
    is_fetched: bool


def layout() -> str:
    """Return a digest of machine type, Python version and code.

    Machines with equal digests share bases. A publisher replaces a base that has another digest.
    """
    digest = hashlib.sha256(f"{sys.byteorder} {platform.machine()} {sys.version}".encode())
    for package in ("campaigns", "catalog", "reference"):
        folder = Path(*snapbid.__path__, package)
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                digest.update(str(path.relative_to(folder)).encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


async def obtain(
    connection: asyncpg.Connection,
    folder: Path,
    after: int,
    build: Callable[[], Awaitable[Base]],
    *,
    urgent: bool,
) -> ObtainedBase:
    """Fetch a base newer than the revision `after`, or build one.

    `urgent`: do not wait for another machine that is building one. A base built while this machine
    holds the lock (`bases.lock`) is stored for other machines, if there are any.
    """
    if await campaigns.count_all(connection) < FEWEST:
        return ObtainedBase(await build(), is_fetched=False)
    this = layout()
    try:
        if base := await _fetch(connection, folder, this, after):
            return ObtainedBase(base, is_fetched=True)
        if urgent:
            return ObtainedBase(await build(), is_fetched=False)
        if not await bases.lock(connection, this, WAIT_S):
            logger.warning(
                "no base from another machine within %(limit_s)d s; building one here",
                {"limit_s": WAIT_S},
            )
            return ObtainedBase(await build(), is_fetched=False)
        if base := await _fetch(connection, folder, this, after):
            return ObtainedBase(base, is_fetched=True)
    except asyncpg.PostgresError as error:  # no such table, no rights, a read that fails
        logger.warning("failed to fetch a base: %(reason)s; building one here", {"reason": error})
        return ObtainedBase(await build(), is_fetched=False)
    base = await build()
    try:
        if await bases.count_publishers(connection) > 1:
            await _store(connection, folder / base.name, base, this)
    except UNAVAILABLE as error:
        logger.warning(
            "failed to store the base: %(reason)s; other machines will build their own",
            {"reason": error},
        )
    return ObtainedBase(base, is_fetched=False)


async def _fetch(
    connection: asyncpg.Connection, folder: Path, this: str, after: int
) -> Base | None:
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        state = await campaigns.fetch_state(connection)
        row = await bases.find(connection, this, state.warehouse)
        if row is None or not after < row[1].revision <= state.revision:
            return None
        id, stored = row
        most = max(LEAST, stored.campaigns // SHARE) // 2
        if await campaigns.count_since(connection, stored.revision, most + 1) > most:
            return None
        name = PREFIX + secrets.token_hex(8)
        unfinished = folder / f"{name}.new"
        digest, size, checksum = hashlib.sha256(), 0, 0
        with unfinished.open("wb") as file:
            async for part in bases.read(connection, id):
                size += len(part)
                if size > stored.size:
                    break
                file.write(part)
                digest.update(part)
                checksum = zlib.crc32(part, checksum)
            file.flush()
            os.fsync(file.fileno())
    if (size, digest.digest()) != (stored.size, stored.sha256):
        unfinished.unlink()
        logger.error(
            "the base stored by %(machine)s is damaged; building one here",
            {"machine": stored.built_by},
        )
        return None
    unfinished.replace(folder / name)
    logger.info(
        "fetched the base of %(campaigns)d campaigns from %(machine)s",
        {"campaigns": stored.campaigns, "machine": stored.built_by},
    )
    return Base(name, size, checksum, stored.campaigns, stored.revision, stored.warehouse, this)


async def _store(connection: asyncpg.Connection, path: Path, base: Base, this: str) -> None:
    digest = hashlib.sha256()
    for part in _parts(path):
        digest.update(part)
    stored = bases.StoredBase(
        *(this, base.warehouse, base.revision, base.campaigns, base.size),
        *(digest.digest(), platform.node()),
    )
    await bases.replace(connection, stored, _parts(path))


def _parts(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while part := file.read(PART):
            yield part
