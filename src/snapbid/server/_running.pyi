from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, final, type_check_only

from snapbid.http import Receive, Scope, Send

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
    """Runs the requests of a worker on its event loop.

    A task costs more than what most requests need of one: a request whose path `is_short` is run
    without. All that it may await are futures of the loop (and `asyncio.sleep(0)`): they call it
    back. What it awaits else, a time-out for example, takes a task of its own. Any other request is
    run in a task, by `in_task`.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        application: Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]],
        is_short: Callable[[str], bool],
        in_task: Callable[[GranianWatcher], Coroutine[Any, Any, None]],
    ) -> None: ...
    def schedule(self, watcher: GranianWatcher) -> None:
        """Have a request run in the loop's next turn; called by any thread."""

    def start(self) -> None:
        """Run all requests that were scheduled."""
