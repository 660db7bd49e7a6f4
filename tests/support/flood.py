"""Many clients in a process of their own that ask for one thing again and again."""

import asyncio
import multiprocessing
from contextlib import AbstractContextManager
from itertools import count
from typing import Any

from support.lanes import Lane
from support.processes import eventually

_processes = multiprocessing.get_context("spawn")


class Flood(AbstractContextManager["Flood"]):
    """Clients that request `target`, in which `%d` is a number unique to each request."""

    def __init__(self, port: int, target: str, lanes: int) -> None:
        self.lanes = lanes
        self._count: Any = _processes.Value("q", 0)
        self._over = _processes.Event()
        self._process = _processes.Process(
            target=_run, args=(port, target, lanes, self._count, self._over), daemon=True
        )

    @property
    def answers(self) -> int:
        return int(self._count.value)

    def __enter__(self) -> "Flood":
        self._process.start()
        self.has_come(self.lanes)
        return self

    def has_come(self, more: int) -> None:
        """Wait until this many more requests were answered."""
        wanted = self.answers + more
        eventually(lambda: self.answers >= wanted, "the answers to a flood")

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._process.join()
        assert self._process.exitcode == 0, "the flood has failed"


def _run(port: int, target: str, lanes: int, answers: Any, over: Any) -> None:
    asyncio.run(_flood(port, target, lanes, answers, over))


async def _flood(port: int, target: str, lanes: int, answers: Any, over: Any) -> None:
    numbers = count()

    async def ask() -> None:
        lane = Lane(port)
        while not over.is_set():
            if await lane.get(target % next(numbers)):
                answers.value += 1
        lane.close()

    await asyncio.gather(*(ask() for _ in range(lanes)))
