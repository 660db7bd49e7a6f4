"""Ending tasks reliably."""

import asyncio
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
