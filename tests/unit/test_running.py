"""Requests that run without a task: what they may await, and how they end."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from snapbid.redisclient._wire import Turn
from snapbid.server._running import AT_ONCE, BEHIND, IN_TASK, MOST_BEHIND, SLICE, RequestRunner

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
Work = Callable[[], Coroutine[Any, Any, Any]]


class Scope(dict[str, Any]):
    """A scope that can be referred to weakly."""


class Watcher:
    """A request as Granian hands it over, and what it receives back."""

    def __init__(self, path: str) -> None:
        self.scope = Scope(path=path)
        self.proto = self
        self.told: list[Any] = []
        self.task: Any = None
        self.ended = asyncio.Event()

    def receive(self) -> None: ...

    def send(self) -> None: ...

    def done(self) -> None:
        self.told.append("done")
        self.ended.set()

    def err(self, error: BaseException) -> None:
        self.told.append(error)
        self.ended.set()

    def taskref(self, task: Any) -> None:
        self.task = task


class Runs:
    """A runner whose applications are the works by path; paths begin with their kinds."""

    def __init__(self, **works: Work) -> None:
        self.works = works
        self.wakes = 0
        loop: Any = asyncio.get_running_loop()
        self.runner = RequestRunner(loop, self.application, self.kind_of, self.in_task)

    def kind_of(self, path: str) -> int:
        return {"short": AT_ONCE, "behind": BEHIND}.get(path[1:].partition("-")[0], IN_TASK)

    def application(self, scope: Any, receive: Any, send: Any) -> Any:
        return self.works[scope["path"].partition("-")[2]]()

    async def in_task(self, watcher: Any) -> None:
        await self.application(watcher.scope, None, None)
        watcher.done()

    async def outcome(self, path: str) -> list[Any]:
        watcher = Watcher(path)
        self.runner.schedule(watcher)
        await asyncio.wait_for(watcher.ended.wait(), 60)
        await asyncio.sleep(0)
        return watcher.told


def future(after: Callable[[Any], None]) -> Any:
    """A future on which this is called in the next iteration."""
    loop = asyncio.get_running_loop()
    made: asyncio.Future[Any] = loop.create_future()
    loop.call_soon(after, made)
    return made


async def test_awaitable_kinds() -> None:
    async def nothing() -> None:
        assert asyncio.current_task() is None

    async def turns() -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    async def futures() -> None:
        assert await future(lambda it: it.set_result(7)) == 7
        there = future(lambda it: None)
        there.set_result(8)
        assert await there == 8

    async def replies() -> None:
        loop = asyncio.get_running_loop()
        turn = Turn(loop)
        first, second = turn.reply(), turn.reply()

        def answer() -> None:
            turn.begin()
            second.set_result("b")
            first.set_result("a")
            turn.end()

        loop.call_soon(answer)
        assert await first == "a"
        assert await second == "b"
        later = turn.reply()
        loop.call_soon(later.set_result, "c")
        assert await later == "c"

    async def tasks() -> None:
        async def inner() -> int:
            async with asyncio.timeout(60):
                await asyncio.sleep(0)
            return 9

        assert await asyncio.create_task(inner()) == 9

    async def threads() -> None:
        assert await asyncio.to_thread(lambda: 10) == 10

    works: dict[str, Work] = {
        work.__name__: work for work in (nothing, turns, futures, replies, tasks, threads)
    }
    runs = Runs(**works)
    for name in works:
        assert await runs.outcome(f"/short-{name}") == ["done"], name


async def test_failures() -> None:
    """An error of what is awaited is raised there; the request's own is told, once."""
    error = OSError("gone")

    async def fails() -> None:
        raise error

    async def awaits_an_error() -> None:
        await future(lambda it: it.set_exception(error))

    async def catches_it() -> None:
        with pytest.raises(OSError, match="gone"):
            await future(lambda it: it.set_exception(error))
        with pytest.raises(asyncio.CancelledError):
            await future(lambda it: it.cancel())
        reply = Turn(asyncio.get_running_loop()).reply()
        asyncio.get_running_loop().call_soon(reply.cancel)
        with pytest.raises(asyncio.CancelledError):
            await reply
        failing = Turn(asyncio.get_running_loop()).reply()
        asyncio.get_running_loop().call_soon(failing.set_exception, error)
        with pytest.raises(OSError, match="gone"):
            await failing
        assert await future(lambda it: it.set_result(1)) == 1

    class Odd:
        def __await__(self) -> Any:
            yield "no future"

    async def awaits_what_is_no_future() -> None:
        await Odd()

    runs = Runs(fails=fails, awaits=awaits_an_error, catches=catches_it,
                odd=awaits_what_is_no_future)  # fmt: skip
    assert await runs.outcome("/short-fails") == [error]
    assert await runs.outcome("/short-awaits") == [error]
    assert await runs.outcome("/short-catches") == ["done"]
    (told,) = await runs.outcome("/short-odd")
    assert isinstance(told, RuntimeError)
    (told,) = await runs.outcome("/short-unknown")
    assert isinstance(told, KeyError), "raised by the call itself"


async def test_any_other_request_runs_in_a_task() -> None:
    async def works() -> None:
        assert asyncio.current_task() is not None
        async with asyncio.timeout(60):
            await asyncio.sleep(0)

    runs, watcher = Runs(works=works), Watcher("/other-works")
    runs.runner.schedule(watcher)
    await asyncio.wait_for(watcher.ended.wait(), 60)
    assert isinstance(watcher.task, asyncio.Task)
    await watcher.task
    assert watcher.told == ["done"]


async def test_requests_start_in_order_from_any_thread() -> None:
    started: list[str] = []

    def work(name: str) -> Work:
        async def works() -> None:
            started.append(name)
            await future(lambda it: it.set_result(None))

        return works

    names = [f"n{number}" for number in range(100)]
    runs = Runs(**{name: work(name) for name in names})
    watchers = [Watcher(f"/short-{name}") for name in names]

    def schedule() -> None:
        for watcher in watchers:
            runs.runner.schedule(watcher)

    thread = threading.Thread(target=schedule)
    thread.start()
    for watcher in watchers:
        await asyncio.wait_for(watcher.ended.wait(), 60)
    thread.join()
    assert started == names
    assert all(watcher.told == ["done"] for watcher in watchers)


async def test_requests_leave_no_references() -> None:
    async def works() -> None:
        await future(lambda it: it.set_result(None))

    runs, watcher = Runs(works=works), Watcher("/short-works")
    scope = weakref.ref(watcher.scope)
    runs.runner.schedule(watcher)
    await asyncio.wait_for(watcher.ended.wait(), 60)
    await asyncio.sleep(0)
    del watcher
    gc.collect()  # the watcher is its own protocol
    assert scope() is None


async def test_waiting_requests_take_turns() -> None:
    """What comes later and waits for nobody is first; so many of the others are under way."""
    started: list[str] = []
    behind = [f"behind{number}" for number in range(3 * MOST_BEHIND)]
    tasks = [f"other{number}" for number in range(3 * SLICE)]

    over = asyncio.get_running_loop().create_future()
    most = running = 0

    def work(name: str) -> Work:
        async def works() -> None:
            nonlocal most, running
            started.append(name)
            if name in behind:
                running += 1
                most = max(most, running)
                await asyncio.shield(over)
                running -= 1

        return works

    runs = Runs(**{name: work(name) for name in (*behind, *tasks, "bid", "late")})
    flood = [Watcher(f"/behind-{name}") for name in behind]
    flood += [Watcher(f"/other-{name}") for name in tasks]
    bid, late = Watcher("/short-bid"), Watcher("/short-late")
    for watcher in (*flood, bid):
        runs.runner.schedule(watcher)
    await bid.ended.wait()
    assert started[0] == "bid"
    assert len(started) <= 1 + 2 * SLICE
    while running < MOST_BEHIND:
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    runs.runner.schedule(late)
    await late.ended.wait()
    assert len(started) == 2 + MOST_BEHIND + len(tasks)
    over.set_result(None)
    for watcher in flood:
        await asyncio.wait_for(watcher.ended.wait(), 60)
    assert most == MOST_BEHIND
    assert [name for name in started if name in behind] == behind
    assert [name for name in started if name in tasks] == tasks


async def test_a_failed_request_frees_its_slot() -> None:
    async def fails() -> None:
        raise OSError("gone")

    runs = Runs(fails=fails)
    watchers = [Watcher(f"/behind-{name}") for name in ("fails", "unknown") * MOST_BEHIND]
    for watcher in watchers:
        runs.runner.schedule(watcher)
    for watcher in watchers:
        await asyncio.wait_for(watcher.ended.wait(), 60)
    assert {type(error) for watcher in watchers for error in watcher.told} == {
        OSError,
        KeyError,
    }
