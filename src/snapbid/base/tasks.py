"""Helpers for ending tasks reliably."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

AGAIN_S: Final = 0.1


async def end(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait until they have ended, whatever the outcome.

    Cancels repeatedly: redis-py swallows a cancellation while it connects, and waiting for such a
    task would never end.
    """
    waiting = {task for task in tasks if not task.done()}
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)


async def run_until(stopping: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine until it ends, raising what it raises, or until `stopping` is set."""
    running, waiting = asyncio.create_task(work), asyncio.create_task(stopping.wait())
    await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
    await end(running, waiting)
    if not running.cancelled():
        running.result()
