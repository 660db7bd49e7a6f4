from asyncio import AbstractEventLoop
from collections.abc import Callable, Generator, Iterable
from contextvars import Context
from typing import Any, Generic, Self, TypeVar, final

from typing_extensions import disjoint_base

_T = TypeVar("_T")

def pack_command(command: tuple[bytes | str | int, ...]) -> bytes:
    """Encode a command in the Redis protocol.

    Raises TypeError or OverflowError for arguments other than bytes, str and 64-bit integers.
    """

def unanswered(requests: list[_T]) -> list[_T]:
    """Return the requests whose `done` is still pending."""

def answer(requests: list[_T], results: Iterable[object]) -> None:
    """Set the `done` of each request to its result, if that `done` is still pending."""

@disjoint_base
class Waiter:
    """Base of native callbacks for a reply, called without entering a `contextvars` context."""

@final
class Turn:
    """A scope in which code awaiting replies resumes in the loop iteration that reads them.

    Code awaiting a reply that is set between `begin` and `end` resumes in `end`. It resumes in the
    next iteration if `end` is called within a task, or if the reply is set at any other time.
    """

    def __init__(self, loop: AbstractEventLoop) -> None: ...
    def begin(self) -> None: ...
    def end(self) -> None: ...
    def reply(self) -> Reply[Any]: ...

@final
class Reply(Generic[_T]):
    """A future for a Redis reply, at a third of the cost of `asyncio.Future`.

    It has only the methods that setting, awaiting and cancelling need.
    """

    def done(self) -> bool: ...
    def set_result(self, result: _T) -> None: ...
    def set_exception(self, error: BaseException) -> None: ...
    def cancel(self, msg: object = None) -> bool: ...
    def cancelled(self) -> bool: ...
    def result(self) -> _T: ...
    def exception(self) -> BaseException | None: ...
    def get_loop(self) -> AbstractEventLoop: ...
    def add_done_callback(
        self, callback: Callable[[Reply[_T]], object], *, context: Context | None = None
    ) -> None: ...
    def remove_done_callback(self, callback: Callable[[Reply[_T]], object]) -> int: ...
    def __await__(self) -> Generator[Any, None, _T]: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Self: ...
