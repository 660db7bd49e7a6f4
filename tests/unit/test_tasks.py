"""Work that goes on until it is told to stop."""

import asyncio
import contextlib
import threading

import pytest

from snapbid.base.tasks import LoopThread, run_until


async def test_stops_though_cancellation_is_swallowed() -> None:
    """As by `asyncio.wait_for` of Python 3.11, where what is awaited happens at that moment."""
    stopping, swallowed = asyncio.Event(), 0

    async def work() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 2:
                    raise

    asyncio.get_running_loop().call_soon(stopping.set)
    async with asyncio.timeout(60):
        await run_until(stopping, work())
    assert swallowed == 2


async def test_errors_propagate() -> None:
    async def work() -> None:
        raise OSError(28, "full")

    with pytest.raises(OSError, match="full"):
        await run_until(asyncio.Event(), work())


async def test_may_end_on_its_own() -> None:
    await run_until(asyncio.Event(), asyncio.sleep(0))


def test_a_thread_ends_all_its_tasks_before_its_loop() -> None:
    """A cancelled query of PostgreSQL, say, takes a round trip to end."""
    begun, ended = threading.Event(), []

    async def slow() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            begun.set()
            await asyncio.Event().wait()
        for _ in range(9):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        ended.append("slow")

    async def work() -> None:
        await asyncio.gather(asyncio.Event().wait(), slow())

    thread = LoopThread("worker", work)
    thread.start()
    assert begun.wait(60)
    thread.stop()
    assert ended == ["slow"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("error", [None, OSError(28, "full")])
def test_a_thread_whose_work_has_ended_can_be_stopped(error: OSError | None) -> None:
    ended = threading.Event()

    async def work() -> None:
        ended.set()
        if error:
            raise error

    thread = LoopThread("worker", work)
    thread.start()
    assert ended.wait(60)
    thread._thread.join()
    thread.stop()
