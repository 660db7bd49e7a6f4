"""An event loop on virtual time, and processes on it that can be killed.

When nothing is ready the clock jumps to the next timer, so that an hour without work takes no time.
What runs for a process carries its name in the context: a killed process takes not one step more,
not even those that clean up, and its files are closed as the system would.
"""

import asyncio
import errno
import heapq
import itertools
import os
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, NamedTuple, Protocol, TypeVar

PROCESS: Final[ContextVar["Process | None"]] = ContextVar("process", default=None)
THREAD_S: Final = (0.0002, 0.002)  # how long work in a thread takes, an fsync above all

T = TypeVar("T")


class SimulationError(Exception):
    """The simulator itself cannot go on; not a difference in the books."""


class Connects(Protocol):
    """Makes simulated connections; see network.py."""

    def connect(
        self, process: "Process", factory: Callable[[], asyncio.Protocol], path: str
    ) -> "asyncio.Future[tuple[asyncio.Transport, asyncio.Protocol]]": ...


class Process:
    """Something that can be killed: its tasks, its files and what it has connected."""

    def __init__(self, name: str, machine: str, loop: "VirtualLoop") -> None:
        self.name = name
        self.machine = machine
        self.alive = True
        self.on_kill: list[Callable[[], None]] = []
        self._loop = loop
        self._context = copy_context()
        self._context.run(PROCESS.set, self)
        self._files: set[int] = set()

    def run(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a task of this process."""
        task: asyncio.Task[T] = self._loop.create_task(work, context=self._context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        return task

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function as this process."""
        return self._context.run(function, *args)

    @property
    def context(self) -> Context:
        return self._context

    def kill(self) -> None:
        """Kill it: no task of it runs again."""
        self.alive = False
        for file in sorted(self._files):
            _close(file)
        self._files.clear()
        for action in self.on_kill:
            action()

    def opened(self, file: int) -> None:
        self._files.add(file)

    def close(self, file: int) -> None:
        """Raises OSError where the file is not its own."""
        if file not in self._files:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        self._files.discard(file)
        _close(file)


_close: Final = os.close


class Sleeper(NamedTuple):
    """Who sleeps until `due`, which changes."""

    due: Callable[[], float]
    awake: "asyncio.Future[None]"
    process: Process | None


class Turn:
    """A callback that is due; what `asyncio.Handle` is, in fewer steps."""

    __slots__ = ("args", "callback", "context", "is_cancelled")

    def __init__(self, callback: Any, args: tuple[Any, ...], context: Context) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self.callback, self.args = None, ()

    def cancelled(self) -> bool:
        return self.is_cancelled


class VirtualLoop(asyncio.BaseEventLoop):
    """`network` makes the connections. Time begins at 0."""

    def __init__(self, seed: Callable[[], float]) -> None:
        super().__init__()
        self.network: Connects | None = None
        self.turns = 0
        self.graveyard: list[Any] = []  # nothing of a killed process may be collected, and so run
        self._virtual_s = 0.0
        self._draw = seed
        self.set_exception_handler(self._note)
        self.unhandled: list[str] = []
        self._timers: list[tuple[float, int, Turn]] = []
        self._numbers = itertools.count()
        self._sleepers: list[Sleeper] = []

    def time(self) -> float:
        return self._virtual_s

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "exception" in context:
            self.unhandled.append(f"{context['message']}: {context['exception']!r}")

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> Turn:
        turn = Turn(callback, args, copy_context() if context is None else context)
        self._ready.append(turn)  # type: ignore[attr-defined]
        return turn

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Turn:
        """As the original; those of one moment are called in the order in which they were set."""
        turn = Turn(callback, args, copy_context() if context is None else context)
        heapq.heappush(self._timers, (when, next(self._numbers), turn))
        return turn

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Turn:
        return self.call_at(self._virtual_s + delay, callback, *args, context=context)

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> "asyncio.Task[Any]":
        return asyncio.Task(coro, loop=self, name=name, context=context)

    async def until(self, due: Callable[[], float]) -> None:
        """Sleep until a time that may become another one with all that happens meanwhile."""
        sleeper = Sleeper(due, self.create_future(), PROCESS.get())
        self._sleepers.append(sleeper)
        try:
            await sleeper.awake
        finally:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)

    def _next(self) -> float:
        """When something happens next."""
        timers = self._timers
        while timers and timers[0][2].is_cancelled:
            heapq.heappop(timers)
        at = timers[0][0] if timers else float("inf")
        for sleeper in list(self._sleepers):
            if sleeper.process is not None and not sleeper.process.alive:
                self._sleepers.remove(sleeper)
                self.graveyard.append(sleeper)
            elif (due_at := sleeper.due()) <= at:
                self._sleepers.remove(sleeper)
                self.call_at(due_at, _succeed, sleeper.awake, None, context=Context())
                at = due_at
        if not timers:
            raise SimulationError("nothing will ever happen again")
        return timers[0][0]

    def _run_once(self) -> None:
        """Run iterations until stopped; if nothing is ready, the clock jumps to what is next."""
        ready: Any = self._ready  # type: ignore[attr-defined]
        timers = self._timers
        while True:
            if not ready:
                self._virtual_s = max(self._virtual_s, self._next())
            now = self._virtual_s
            while timers and timers[0][0] <= now:
                ready.append(heapq.heappop(timers)[2])
            for _ in range(len(ready)):
                turn = ready.popleft()
                if turn.is_cancelled:
                    continue
                context = turn.context
                process = context.get(PROCESS)
                if process is not None and not process.alive:
                    self.graveyard.append(turn)
                    continue
                self.turns += 1
                try:
                    context.run(turn.callback, *turn.args)
                except Exception as error:
                    message = f"in callback {turn.callback!r}"
                    self.call_exception_handler({"message": message, "exception": error})
            if self._stopping:  # type: ignore[attr-defined]
                return

    def forget(self) -> None:
        """Drop everything that is scheduled."""
        self._timers.clear()
        self._sleepers.clear()
        self._ready.clear()  # type: ignore[attr-defined]
        self.graveyard.clear()

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> Any:
        """Call it at once; the result is available a moment later."""
        future = self.create_future()
        shortest, longest = THREAD_S
        delay_s = shortest + (longest - shortest) * self._draw()
        try:
            result = func(*args)
        except Exception as error:
            self.call_later(delay_s, _fail, future, error)
        else:
            self.call_later(delay_s, _succeed, future, result)
        return future

    async def create_unix_connection(
        self, protocol_factory: Any, path: Any = None, **more: Any
    ) -> Any:
        process = PROCESS.get()
        assert process is not None
        assert self.network is not None
        return await self.network.connect(process, protocol_factory, os.fsdecode(path))

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **more: Any
    ) -> Any:
        return await self.create_unix_connection(protocol_factory, f"{host}:{port}")

    def _write_to_self(self) -> None:
        """Do nothing: nobody waits in a system call."""

    def _asyncgen_finalizer_hook(self, generator: Any) -> None:
        """Leave the generators of killed processes alone."""


def _succeed(future: "asyncio.Future[Any]", result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
