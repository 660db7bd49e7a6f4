"""Makes a base of all campaigns of a warehouse, in a process of its own.

A million campaigns take half a minute of a core and a gigabyte; here they delay nobody and leave
nothing behind. The process reads an `Order` from its stdin, tells of its progress in the log,
prints the `Base` that it made, and ends early where its stdin does: with whoever wanted the base.

    python -m snapbid.publisher
"""

import asyncio
import gc
import logging
import os
import secrets
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import BinaryIO, Final, cast

import asyncpg
import msgspec

from snapbid.match.catalog import Base
from snapbid.match.compile import Builder
from snapbid.match.stored import new_builder
from snapbid.publisher.overlay import insert
from snapbid.warehouse import campaigns

PREFIX: Final = "base-"
PIECE: Final = 1 << 20  # bytes written and read at once
TELL_EVERY_S: Final = 2.0
NICENESS: Final = 10  # bids come first, where there are any

logger = logging.getLogger("snapbid")


class Order(msgspec.Struct, frozen=True):
    """The warehouse, the folder in which the base is wanted, and whether bids wait for it."""

    dsn: str
    folder: str
    urgent: bool


async def make(dsn: str, folder: Path) -> Base:
    """Puts a new base into the folder.

    Raises OSError, asyncpg's errors, or ValueError where the campaigns are too many.
    """
    with tempfile.TemporaryFile(dir=folder, buffering=PIECE) as file:
        payloads = cast("BinaryIO", file)
        builder = new_builder(payloads)
        connection = await asyncpg.connect(dsn, timeout=10)
        try:
            standing = await _load(connection, builder)
        finally:
            connection.terminate()
        return _write(folder, builder, payloads, standing)


async def _load(connection: asyncpg.Connection, builder: Builder) -> campaigns.Standing:
    """Reads the campaigns as one moment saw them."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        standing = await campaigns.fetch_standing(connection)
        read, told = 0, monotonic()

        def take(rows: list[campaigns.Copied]) -> None:
            nonlocal read, told
            for row in rows:
                insert(builder, row)
            read += len(rows)
            if monotonic() - told > TELL_EVERY_S:
                told = monotonic()
                share = f"{read / standing.campaigns:.0%}"
                logger.info(f"read {read:,} of {standing.campaigns:,} campaigns ({share})")

        await campaigns.copy_all(connection, take)
    return standing


def _write(
    folder: Path, builder: Builder, payloads: BinaryIO, standing: campaigns.Standing
) -> Base:
    name = PREFIX + secrets.token_hex(8)
    path, beside = folder / name, folder / f"{name}.new"
    logger.info(f"writing the index of {len(builder):,} campaigns")
    size = checksum = 0
    with beside.open("wb") as file:
        for piece in _pieces(builder, payloads):
            file.write(piece)
            size += len(piece)
            checksum = zlib.crc32(piece, checksum)
        file.flush()
        os.fsync(file.fileno())  # whoever maps it trusts its name
    beside.replace(path)
    return Base(name, size, checksum, len(builder), standing.revision, standing.warehouse)


def _pieces(builder: Builder, payloads: BinaryIO) -> Iterator[bytes | bytearray]:
    yield builder.build()
    payloads.seek(0)
    while piece := payloads.read(PIECE):
        yield piece


def _end_with_stdin() -> None:
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    if not order.urgent:
        os.nice(NICENESS)
    gc.disable()  # what is read is kept, or free at once
    try:
        base = asyncio.run(make(order.dsn, Path(order.folder)))
    except (OSError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        logger.error("no base could be made: %s", error)
        sys.exit(1)
    sys.stdout.buffer.write(msgspec.json.encode(base))
    sys.stdout.buffer.flush()
