"""Processes that share the runs of `make simulate`, each with its own Redis and PostgreSQL."""

import contextlib
import itertools
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing.util import Finalize
from typing import Final, TypeVar

from support.simulator.servers import Servers, started

AHEAD: Final = 4  # runs of each process that wait, so that none is idle

T = TypeVar("T")
R = TypeVar("R")

_servers: list[Servers] = []  # of this process


def shared(
    work: Callable[[Servers, T], R], todo: Iterable[T], processes: int
) -> Generator[R, None, None]:
    """What `work` returns for each, in their order; what has not begun is left out at a `close`."""
    context = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(processes, context, initializer=_begin)
    waiting: deque[Future[R]] = deque()
    todo = iter(todo)
    try:
        while True:
            for one in itertools.islice(todo, processes * AHEAD - len(waiting)):
                waiting.append(pool.submit(_do, work, one))
            if not waiting:
                return
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run under way is brought to its end
    stack = contextlib.ExitStack()
    _servers.append(stack.enter_context(started()))
    Finalize(None, stack.close, exitpriority=1)


def _do(work: Callable[[Servers, T], R], one: T) -> R:
    return work(_servers[0], one)
