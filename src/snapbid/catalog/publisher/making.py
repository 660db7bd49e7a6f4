"""Runner of the process that builds a base (`base`)."""

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Final

import msgspec

from snapbid.base.settings import without_settings
from snapbid.catalog.catalog import Base
from snapbid.catalog.publisher.base import Order
from snapbid.catalog.publisher.sharing import PREFIX, ObtainedBase

RETRY_S: Final = 5.0

logger = logging.getLogger(__name__)


async def make_base(dsn: str, folder: Path, *, urgent: bool, after: int = -1) -> ObtainedBase:
    """Build a base newer than the revision `after` in the folder, retrying until it succeeds.

    `urgent`: bids wait for it.
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
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "snapbid.catalog.publisher"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=without_settings(os.environ),
        start_new_session=True,  # Ctrl-C is for its parent
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(
            msgspec.json.encode(order) + b"\n"
        )  # and stays open: the child exits when we do
        output = await process.stdout.read()
        if await process.wait() == 0:
            return msgspec.json.decode(output, type=ObtainedBase)
        logger.error(
            "failed to build the base: exit status %(status)s",
            {"status": process.returncode},
        )
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def remove_others(folder: Path, kept: Base | None) -> None:
    """Remove the bases that the catalog no longer names; existing mappings stay valid."""
    for path in folder.glob(PREFIX + "*"):
        if kept is None or path.name != kept.name:
            path.unlink(missing_ok=True)
