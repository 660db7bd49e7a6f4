"""Makes Granian run a worker's requests through `RequestRunner`, most of them without a task.

Granian has its own scheduler for each kind of task, and no setting to replace it, so its factory is
replaced in the worker. `unit/test_granian.py` fails if a release changes what this relies on.
"""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from granian._granian import CallbackScheduler
from granian.server import mp

from snapbid.base.http import Receive, Scope, Send
from snapbid.server._running import RequestRunner

AsgiApplication: TypeAlias = Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]


def install(application: AsgiApplication, kind_of: Callable[[str], int]) -> None:
    """Make the server that is about to run this application in this process use the runner.

    `kind_of` maps a path to how its requests run (`RequestRunner`).
    """

    class Scheduler(CallbackScheduler):
        def __init__(self, loop: AbstractEventLoop, in_task: Any, *_: object) -> None:
            super().__init__()
            runner = RequestRunner(loop, application, kind_of, in_task)
            self._schedule_fn = runner.schedule

    def new_scheduler(
        loop: AbstractEventLoop, in_task: Any, impl_asyncio: bool = False
    ) -> Scheduler:
        return Scheduler(loop, in_task, None, None, None)

    mp._new_cbscheduler = new_scheduler  # type: ignore[attr-defined]
