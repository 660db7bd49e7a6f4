from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, final, type_check_only

from snapbid.base.http import Receive, Scope, Send

IN_TASK: Final[int]
AT_ONCE: Final[int]
BEHIND: Final[int]
MOST_BEHIND: Final[int]
"""Limit on BEHIND requests in progress."""
SLICE: Final[int]
"""Limit on BEHIND requests, and on tasks, that begin in one iteration of the loop."""

@type_check_only
class GranianWatcher(Protocol):
    """A request from Granian; either `done` or `err` ends it."""

    @property
    def scope(self) -> dict[str, Any]: ...
    @property
    def proto(self) -> Any: ...
    def done(self) -> None: ...
    def err(self, error: BaseException) -> None: ...
    def taskref(self, task: object) -> None: ...

@final
class RequestRunner:
    """Runs the requests of a worker on its event loop, each in a way that depends on its path.

    AT_ONCE   runs before all others, and without a task, which would cost more than most requests
              themselves. Such a request may await only futures of the loop and `asyncio.sleep(0)`;
              anything else, such as a timeout, must be awaited in a task.
    BEHIND    also runs without a task, but queues behind AT_ONCE requests, in order of arrival, so
              a flood of BEHIND requests does not delay AT_ONCE requests.
    IN_TASK   runs in a task, from the coroutine that `in_task` returns.

    `kind_of` returns one of these for a path.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        application: Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]],
        kind_of: Callable[[str], int],
        in_task: Callable[[GranianWatcher], Coroutine[Any, Any, None]],
    ) -> None: ...
    def schedule(self, watcher: GranianWatcher) -> None:
        """Schedule a request for the loop's next iteration. Thread-safe."""

    def start(self) -> None:
        """Run all scheduled AT_ONCE requests; queue all others, to start a few per iteration."""

    def start_scheduled(self) -> None:
        """Start the next slice of queued requests."""
