"""Build a base of all campaigns in a warehouse, in a separate process.

A million campaigns take most of a gigabyte of memory and tens of seconds of CPU time. A separate
process does not slow down the publisher, and frees the memory when it ends. It reads an `Order`
from stdin, logs its progress, and prints the `ObtainedBase`.

    python -m snapbid.catalog.publisher.base
"""

import asyncio
import gc
import logging
import os
import secrets
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import BinaryIO, Final, cast

import asyncpg
import msgspec

from snapbid.base.child import exit_with_parent, run_child
from snapbid.base.logs import log_to_stderr
from snapbid.campaigns.normalised import RULES
from snapbid.catalog.catalog import Base
from snapbid.catalog.payload import Builder
from snapbid.catalog.publisher.overlay import insert
from snapbid.catalog.publisher.sharing import PREFIX, ObtainedBase, layout, obtain
from snapbid.warehouse import campaigns
from snapbid.warehouse.unavailable import UNAVAILABLE, session

CHUNK: Final = 1 << 20  # bytes written and read at a time
LOG_EVERY_S: Final = 2.0
NICENESS: Final = 10  # bids come first
RETRY_S: Final = 5.0
MODULE: Final = "snapbid.catalog.publisher.base"

logger = logging.getLogger(MODULE)  # not __main__


class Order(msgspec.Struct, frozen=True):
    """A request for a base in `folder` that is newer than the revision `after`.

    `dsn`: the warehouse; `urgent`: without the base, no campaign can bid.
    """

    dsn: str
    folder: str
    urgent: bool
    after: int = -1


async def make_base(dsn: str, folder: Path, *, urgent: bool, after: int = -1) -> ObtainedBase:
    """Put a base newer than the revision `after` into the folder; retry until that succeeds.

    `urgent`: whether bids are waiting for the base.
    """
    order = Order(dsn, str(folder.absolute()), urgent, after)
    while True:
        try:
            obtained = await _attempt(order)
            if obtained is not None:
                return obtained
        except (OSError, ValueError):
            logger.exception("failed to build the base; retrying")
        await asyncio.sleep(RETRY_S)


async def _attempt(order: Order) -> ObtainedBase | None:
    status, output = await run_child(MODULE, msgspec.json.encode(order))
    if status == 0:
        return msgspec.json.decode(output, type=ObtainedBase)
    logger.error("failed to build the base: exit status %(status)s; retrying", {"status": status})
    return None


def remove_others(folder: Path, kept: Base | None) -> None:
    """Remove all bases but the kept one from the folder; existing mappings stay valid."""
    for path in folder.glob(PREFIX + "*"):
        if kept is None or path.name != kept.name:
            path.unlink(missing_ok=True)


# -- in its own process ---------------------------------------------------------------------------


async def make(dsn: str, folder: Path, after: int = -1, *, urgent: bool = False) -> ObtainedBase:
    """Put a new base into the folder, fetched from another machine or built here.

    Raises OSError, asyncpg's errors, or ValueError if there are too many campaigns.
    """
    async with session(dsn) as connection:
        return await obtain(
            connection, folder, after, lambda: _build(connection, folder), urgent=urgent
        )


async def _build(connection: asyncpg.Connection, folder: Path) -> Base:
    with tempfile.TemporaryFile(dir=folder, buffering=CHUNK) as file:
        payloads = cast("BinaryIO", file)
        builder = Builder(payloads)
        state = await _load(connection, builder)
        return _write(folder, builder, payloads, state)


async def _load(connection: asyncpg.Connection, builder: Builder) -> campaigns.WarehouseState:
    """Put all campaigns of one warehouse snapshot into the builder; return the snapshot's state."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        state = await campaigns.fetch_state(connection)
        known = await campaigns.count_all(connection)
        count, logged_at = 0, monotonic()

        def take(rows: list[campaigns.CampaignRow]) -> None:
            nonlocal count, logged_at
            for row in rows:
                insert(builder, row)
            count += len(rows)
            if monotonic() - logged_at > LOG_EVERY_S:
                logged_at = monotonic()
                logger.info(
                    "read %(read)d of %(campaigns)d campaigns",
                    {"read": count, "campaigns": known},
                )

        await campaigns.copy_all(connection, RULES, take)
    return state


def _write(
    folder: Path, builder: Builder, payloads: BinaryIO, state: campaigns.WarehouseState
) -> Base:
    name = PREFIX + secrets.token_hex(8)
    path, unfinished = folder / name, folder / f"{name}.new"
    logger.info("writing the index of %(campaigns)d campaigns", {"campaigns": len(builder)})
    size = checksum = 0
    with unfinished.open("wb") as file:
        for chunk in _chunks(builder, payloads):
            file.write(chunk)
            size += len(chunk)
            checksum = zlib.crc32(chunk, checksum)
        file.flush()
        os.fsync(file.fileno())  # the final name guarantees complete content
    unfinished.replace(path)
    return Base(name, size, checksum, len(builder), state.revision, state.warehouse, layout())


def _chunks(builder: Builder, payloads: BinaryIO) -> Iterator[bytes | bytearray]:
    yield builder.build()
    payloads.seek(0)
    while chunk := payloads.read(CHUNK):
        yield chunk


def main() -> None:
    log_to_stderr()
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    exit_with_parent()
    if not order.urgent:
        os.nice(NICENESS)
    gc.disable()  # there is no cyclic garbage here
    try:
        folder = Path(order.folder)
        obtained = asyncio.run(make(order.dsn, folder, order.after, urgent=order.urgent))
    except (ValueError, *UNAVAILABLE) as error:
        logger.error("failed to build the base: %(reason)s", {"reason": error})
        sys.exit(1)
    sys.stdout.buffer.write(msgspec.json.encode(obtained))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
