"""A reply of the ledger: an `asyncio.Future` that may wake in the turn in which it is set."""

import asyncio
import contextvars
import gc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import uvloop

from snapbid.redisclient._wire import Reply, Turn

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
HERE: contextvars.ContextVar[str] = contextvars.ContextVar("HERE", default="outside")


def both() -> list[Any]:
    """A reply, and the future that it must be like."""
    loop = asyncio.get_running_loop()
    return [Turn(loop).reply(), loop.create_future()]


def outcome(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except (asyncio.CancelledError, asyncio.InvalidStateError, OSError) as error:
        return type(error)


def seen(of: Any) -> list[Any]:
    return [
        outcome(look)
        for look in (of.done, of.cancelled, of.result, of.exception, of.cancel, of.get_loop)
    ]


ERROR = OSError("gone")
CHANGES: list[tuple[Any, ...]] = [
    ("done",),
    ("set_result", "k"),
    ("set_result", None),
    ("set_exception", ERROR),
    ("cancel",),
]


def do(of: Any, name: str, *arguments: Any) -> Any:
    return outcome(lambda: getattr(of, name)(*arguments))


@pytest.mark.parametrize("change", CHANGES, ids=str)
async def test_state_matches_a_future(change: tuple[Any, ...]) -> None:
    reply, future = both()
    assert do(reply, *change) == do(future, *change)
    assert seen(reply) == seen(future)
    for again in CHANGES:
        assert do(reply, *again) == do(future, *again), again
    assert do(reply, "exception") is do(future, "exception")


@pytest.mark.parametrize("value", ["k", None, False, (1, 2), (), StopIteration(3)], ids=repr)
async def test_awaiting_gives_the_result(value: Any) -> None:
    reply, _ = both()
    waiting = [asyncio.ensure_future(_awaited(reply)) for _ in range(3)]
    await asyncio.sleep(0)
    reply.set_result(value)
    assert await asyncio.gather(*waiting) == [value] * 3
    assert await _awaited(reply) == value, "also afterwards"


async def _awaited(reply: Any) -> Any:
    return await reply


async def test_awaiting_a_failed_reply() -> None:
    for end in (("set_exception", ERROR), ("cancel",)):
        reply, _ = both()
        waiting = asyncio.ensure_future(_awaited(reply))
        await asyncio.sleep(0)
        do(reply, *end)
        with pytest.raises((OSError, asyncio.CancelledError)):
            await waiting


async def test_a_task_that_is_cancelled_cancels_it() -> None:
    reply, _ = both()
    waiting = asyncio.ensure_future(_awaited(reply))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert reply.cancelled()
    with pytest.raises(asyncio.InvalidStateError):
        reply.set_result("late")


async def test_asyncio_helpers_accept_it() -> None:
    replies = [both()[0] for _ in range(4)]
    for number, reply in enumerate(replies):
        reply.set_result(number)
    assert await asyncio.gather(*replies[:2]) == [0, 1]
    assert await asyncio.wait_for(replies[2], 10) == 2
    assert await asyncio.shield(replies[3]) == 3
    late, _ = both()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(late, 0)
    assert late.cancelled()


async def test_callbacks() -> None:
    """In their order, each once, in their contexts, and not in the turn that set it."""

    for of in both():
        called: list[Any] = []

        def first(done: Any, called: list[Any] = called) -> None:
            called.append((1, HERE.get(), done.result()))

        def second(done: Any, called: list[Any] = called) -> None:
            called.append((2, HERE.get(), done.result()))

        inside = contextvars.copy_context()
        inside.run(HERE.set, "inside")
        of.add_done_callback(first, context=inside)
        for _ in range(2):
            of.add_done_callback(print)
        of.add_done_callback(second)
        assert of.remove_done_callback(print) == 2
        assert of.remove_done_callback(print) == 0
        of.set_result("k")
        assert called == []
        await asyncio.sleep(0)
        of.add_done_callback(first)
        expected = [(1, "inside", "k"), (2, "outside", "k")]
        assert called == expected
        await asyncio.sleep(0)
        assert called == [*expected, (1, "outside", "k")]


def in_a_callback(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> Any:
    """Run it outside any task, as when Redis' answer is read."""
    done: asyncio.Future[None] = loop.create_future()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    loop.call_soon(run)
    return done


async def test_replies_wake_at_the_end_of_the_iteration() -> None:
    loop = asyncio.get_running_loop()
    own = Turn(loop)
    replies = [own.reply() for _ in range(3)]
    woken: list[int] = []

    async def wait(number: int) -> None:
        woken.append(await replies[number])
        if number == 0:  # goes on in the same turn, and awaits what is set already
            woken.append(10 + await replies[2])

    tasks = [loop.create_task(wait(number)) for number in range(3)]
    await asyncio.sleep(0)

    def answer() -> None:
        own.begin()
        for number in (2, 0, 1):
            replies[number].set_result(number)
        assert woken == []
        own.end()
        assert woken == [2, 0, 12, 1]

    await in_a_callback(loop, answer)
    await asyncio.gather(*tasks)


async def test_waiters_inside_a_task_wake_later() -> None:
    own = Turn(asyncio.get_running_loop())
    reply, woken = own.reply(), asyncio.Event()

    async def wait() -> None:
        await reply
        woken.set()

    waiting = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    own.begin()
    reply.set_result("k")
    own.end()
    assert not woken.is_set()
    await waiting


async def test_a_failing_callback_does_not_stop_others() -> None:
    loop = asyncio.get_running_loop()
    own = Turn(loop)
    told: list[Any] = []
    called: list[Any] = []
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
    error = ValueError("a callback's own")

    def fail(_: Any) -> None:
        raise error

    replies = [own.reply() for _ in range(2)]
    for reply in replies:
        reply.add_done_callback(fail)
        reply.add_done_callback(called.append)

    def answer() -> None:
        own.begin()
        for reply in replies:
            reply.set_result("k")
        own.end()

    await in_a_callback(loop, answer)
    assert called == replies
    assert told == [error, error]


async def test_an_entered_context_delays_its_waiter() -> None:
    loop = asyncio.get_running_loop()
    own, inside = Turn(loop), contextvars.Context()
    called: list[Any] = []
    reply = own.reply()
    reply.add_done_callback(called.append, context=inside)

    def answer() -> None:
        own.begin()
        reply.set_result("k")
        inside.run(own.end)
        assert called == []

    await in_a_callback(loop, answer)
    await asyncio.sleep(0)
    assert called == [reply]


def _take(*_: Any) -> None: ...


async def test_no_references_are_kept() -> None:
    class Kept:
        pass

    loop = asyncio.get_running_loop()
    own = Turn(loop)
    kept: list[weakref.ref[Any]] = []
    for _ in range(1_000):
        reply: Reply[Any] = own.reply()
        result, callback = Kept(), Kept()
        kept += (weakref.ref(result), weakref.ref(callback))
        reply.add_done_callback(partial(_take, callback))
        reply.set_result(result)
        await reply
    del reply, result, callback
    await asyncio.sleep(0)
    gc.collect()
    assert not any(each() for each in kept)
