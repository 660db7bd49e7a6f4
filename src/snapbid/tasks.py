"""Ending tasks for good."""

import asyncio
from typing import Any, Final

AGAIN_S: Final = 0.1


async def end(*tasks: "asyncio.Task[Any]") -> None:
    """Cancels the tasks and waits for their end; how they ended does not matter any more.

    They are cancelled again and again: redis-py swallows a cancellation that comes while it
    connects, and who waits for such a task waits for ever.
    """
    waiting = {task for task in tasks if not task.done()}
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)
