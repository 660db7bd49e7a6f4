"""Reports this drain's health to Redis every few seconds (ledger/admin/drains.py)."""

import asyncio
import contextlib
import os
import platform
from collections.abc import Collection, Mapping
from time import time
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.base.version import version
from snapbid.ledger.admin.drains import DrainReport, remove_report, write_report
from snapbid.ledger.bids.clock import compare

EVERY_S: Final = 2.0


async def report(redis: Redis, troubles: Mapping[Any, str]) -> None:
    """Report until cancelled; `troubles` holds what blocks each duty, and may change meanwhile.

    While Redis is unavailable there is no report; other processes notice that themselves.
    """
    try:
        while True:
            with contextlib.suppress(RedisError, OSError):
                await _report(redis, troubles.values())
            await asyncio.sleep(EVERY_S)
    finally:
        with contextlib.suppress(RedisError, OSError):
            await remove_report(redis, os.getpid())


async def _report(redis: Redis, troubles: Collection[str]) -> None:
    ahead_s = (await compare(redis, 0)).ahead_s
    now = DrainReport(platform.node(), version(), time() - ahead_s, ahead_s, list(troubles))
    await write_report(redis, os.getpid(), now)
