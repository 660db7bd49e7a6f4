from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, final, type_check_only

from snapbid.base.http import Receive, Scope, Send

IN_TASK: Final[int]
AT_ONCE: Final[int]
BEHIND: Final[int]
MOST_BEHIND: Final[int]
"""So many requests that take turns are under way at a time."""
SLICE: Final[int]
"""So many of them, and so many tasks, begin in one iteration of the loop."""

@type_check_only
class GranianWatcher(Protocol):
    """A request as Granian hands it over; one of `done` and `err` ends it."""

    @property
    def scope(self) -> dict[str, Any]: ...
    @property
    def proto(self) -> Any: ...
    def done(self) -> None: ...
    def err(self, error: BaseException) -> None: ...
    def taskref(self, task: object) -> None: ...

@final
class RequestRunner:
    """Runs the requests of a worker on its event loop, each kind of path in its own way.

    AT_ONCE   without a task, which costs more than what most requests need of one, before all that
              came along. All that it may await are futures of the loop (and `asyncio.sleep(0)`):
              they call it back. What it awaits else, a time-out for example, takes a task of its
              own.
    BEHIND    the same in turns, behind those: a flood waits here, in the order in which it came.
    IN_TASK   in a task, by `in_task`.

    `kind_of` gives the kind of a path.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        application: Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]],
        kind_of: Callable[[str], int],
        in_task: Callable[[GranianWatcher], Coroutine[Any, Any, None]],
    ) -> None: ...
    def schedule(self, watcher: GranianWatcher) -> None:
        """Have a request run in the loop's next iteration; called by any thread."""

    def start(self) -> None:
        """Run what was scheduled, as far as it need not take turns."""

    def start_scheduled(self) -> None:
        """Begin with the next of those that take turns."""
