"""All our changes to Granian 2.8, made through its internals, which no other module uses.

Granian could adopt each of them (README.md, "What we change in Granian"):

- `GranianServer` keeps a worker until its replacement listens, restarts workers however often they
  crash, and waits for a worker's exit through a pipe that closes with the process.
- `install` hands a worker's requests to `RequestRunner`, which runs most of them without a task.

`unit/test_granian.py` fails if a release of Granian changes the internals that we use, and
pyproject.toml excludes the next minor version.
"""

import logging
import time
from _thread import start_new_thread
from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import Any, Final, TypeAlias

from granian._granian import CallbackScheduler
from granian.server import mp
from granian.server.mp import MPServer

from snapbid.base.http import Receive, Scope, Send
from snapbid.server._running import RequestRunner

POLL_S: Final = 0.05
SHORT_LIFE_S: Final = 5.0  # a worker that crashes sooner is restarted after a pause
PAUSE_S: Final = 1.0

logger = logging.getLogger(__name__)


class GranianServer(MPServer):
    """Runs worker processes until SIGTERM or SIGINT.

    Each worker calls the `target_loader` given to `serve` with the sending end of a pipe, and
    writes to the pipe once the worker is listening. `respawn_interval`: how long a replacement may
    take until it listens (s).
    """

    def signal_handler_interrupt(self, *_: object) -> None:
        self.interrupt_signal = True
        self._wake()

    def signal_handler_reload(self, *_: object) -> None:
        self.reload_signal = True
        self._wake()

    def _wake(self) -> None:
        """Set the event that wakes the main loop, from another thread.

        A signal may interrupt that loop while it holds the event's lock; a handler that set the
        event itself would wait for the lock forever.
        """
        start_new_thread(self.main_loop_interrupt.set, ())

    def _spawn_worker(  # type: ignore[override]  # MPServer, too, differs from its base class
        self, idx: int, target: Any, callback_loader: Callable[..., Any]
    ) -> Any:
        receiver, sender = Pipe(duplex=False)
        worker: Any = super()._spawn_worker(idx, target, partial(callback_loader, sender))
        worker.listening = receiver
        return worker

    def _respawn_workers(
        self,
        workers: Iterable[int],
        spawn_target: Any,
        target_loader: Any,
        delay: float = 0,
    ) -> None:
        """Restart crashed workers or, given a `delay`, replace running ones."""
        if not delay:
            for idx in workers:
                self._restart(idx, spawn_target, target_loader)
            self._look_again()
            return
        logger.info("SIGHUP: replacing the workers")
        for idx in workers:
            if not self._replace(idx, spawn_target, target_loader, delay):
                break
        else:
            logger.info("SIGHUP: replaced the workers")
        self._look_again()

    def _look_again(self) -> None:
        """Wake the main loop if a signal is pending, since Granian may have lost its wake-up."""
        if self.interrupt_signal or self.reload_signal:
            self.main_loop_interrupt.set()

    def _restart(self, idx: int, spawn_target: Any, target_loader: Any) -> None:
        crashed: Any = self.wrks[idx]
        if crashed.is_alive():  # this is the replacement of the worker that crashed
            return
        if time.monotonic() - crashed.birth < SHORT_LIFE_S:
            time.sleep(PAUSE_S)
        if not self.interrupt_signal:
            self.wrks[idx] = worker = self._spawn_worker(idx, spawn_target, target_loader)
            worker.start()

    def _replace(self, idx: int, spawn_target: Any, target_loader: Any, timeout_s: float) -> bool:
        """Replace a worker; return False if the old one is kept."""
        old, new = self.wrks[idx], self._spawn_worker(idx, spawn_target, target_loader)
        new.interrupt_by_parent = True  # until it takes over, only we handle its exit
        new.start()
        listens = self._await_listening(new, timeout_s)
        new.interrupt_by_parent = False
        if not listens or not new.is_alive():
            self._stop(new)
            if not self.interrupt_signal:
                logger.error(
                    "SIGHUP: the replacement of worker %(worker)d did not start; "
                    "the workers not yet replaced keep serving (send SIGHUP to retry)",
                    {"worker": idx + 1},
                )
            return False
        self.wrks[idx] = new
        self._stop(old)
        return True

    def _await_listening(self, worker: Any, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and not self.interrupt_signal:
            if worker.listening.poll(POLL_S):
                try:
                    worker.listening.recv_bytes()
                except EOFError:  # it exited first
                    return False
                return True
        return False

    def _stop_workers(self) -> None:
        workers: list[Any] = self.wrks
        for worker in workers:
            worker.terminate()
        deadline = time.monotonic() + (self.workers_kill_timeout or 0)
        for worker in workers:
            self._await_end(worker, deadline)
        workers.clear()

    def _stop(self, worker: Any) -> None:
        worker.terminate()
        self._await_end(worker, time.monotonic() + (self.workers_kill_timeout or 0))

    def _await_end(self, worker: Any, deadline: float) -> None:
        ended = [worker.inner.sentinel]
        if not wait(ended, max(deadline - time.monotonic(), 0)):
            logger.warning(
                "worker %(worker)d did not stop within %(limit_s)d s; killing it",
                {"worker": worker.idx + 1, "limit_s": self.workers_kill_timeout or 0},
            )
            worker.kill()
            wait(ended)


AsgiApplication: TypeAlias = Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]


def install(application: AsgiApplication, kind_of: Callable[[str], int]) -> None:
    """Make the server that is about to start in this process use a RequestRunner for requests.

    `kind_of`: see RequestRunner.
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
