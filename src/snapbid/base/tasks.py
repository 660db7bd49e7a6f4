"""Ending tasks reliably."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

AGAIN_S: Final = 0.1


async def end(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel the tasks and wait until they have ended, however they end.

    They are cancelled repeatedly: redis-py swallows a cancellation while it connects, and waiting
    for such a task would never end.
    """
    waiting = {task for task in tasks if not task.done()}
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)


async def run_until(stopping: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run until it ends, raising what it raises, or until it is to stop."""
    running, waiting = asyncio.create_task(work), asyncio.create_task(stopping.wait())
    await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
    await end(running, waiting)
    if not running.cancelled():
        running.result()
