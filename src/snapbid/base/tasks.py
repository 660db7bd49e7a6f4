"""Helpers for ending tasks reliably, and for waiting between rounds."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

AGAIN_S: Final = 0.1


async def end(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait until all have ended; their results and errors are dropped.

    Cancels repeatedly: redis-py swallows a cancellation while it connects, and waiting for such a
    task would never end.
    """
    waiting = {task for task in tasks if not task.done()}
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)


async def pause(stopping: asyncio.Event, seconds: float) -> None:
    """Wait for `seconds`, or until `stopping` is set."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)


async def run_until(stopping: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine until it ends or `stopping` is set. Raises the coroutine's errors."""
    running, waiting = asyncio.create_task(work), asyncio.create_task(stopping.wait())
    await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
    await end(running, waiting)
    if not running.cancelled():
        running.result()


class LoopThread:
    """A thread that runs a coroutine in its own event loop until stopped."""

    def __init__(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Cancel the work and all tasks that it created; return once they have ended."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._loop.close()  # only here: the work may have ended before, by itself or by an error

    def _run(self) -> None:
        self._loop.run_until_complete(self._until_stopped())

    async def _until_stopped(self) -> None:
        try:
            await run_until(self._stopping, self._work())
        finally:  # `gather` waits for one of the tasks that it cancels, not for all
            await end(*asyncio.all_tasks() - {asyncio.current_task()})
