"""What programs take from the system, while a world is open: clocks, random numbers, files, logs.

Each process sees the clock of its machine, and what it opens is closed when it is killed.
"""

import contextlib
import errno
import gc
import logging
import os
import random
import secrets
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import redis.utils

from support.simulator.loop import PROCESS, VirtualLoop


class OwnClock(Protocol):
    """A machine."""

    ahead_s: float
    disk_is_full: bool


class System(Protocol):
    """A world."""

    loop: VirtualLoop
    surprises: list[str]
    is_over: bool

    @property
    def machines(self) -> Mapping[str, OwnClock]: ...

    def wall_s(self, ahead_s: float = 0.0) -> float: ...

    def note(self, *what: object) -> None: ...


def _ahead_s(world: System) -> float:
    """Of the machine whose process asks."""
    process = PROCESS.get()
    machine = world.machines.get(process.machine) if process is not None else None
    return machine.ahead_s if machine is not None else 0.0


@contextlib.contextmanager
def replaced(target: Any, **more: Any) -> Iterator[None]:
    kept = {name: getattr(target, name) for name in more}
    for name, value in more.items():
        setattr(target, name, value)
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(target, name, value)


@contextlib.contextmanager
def random_numbers(rng: random.Random) -> Iterator[None]:
    """What programs draw comes from the seed."""
    with (
        replaced(
            secrets,
            token_hex=lambda size=32: rng.randbytes(size).hex(),
            token_bytes=lambda size=32: rng.randbytes(size),
            randbits=rng.getrandbits,
            randbelow=rng.randrange,
        ),
        replaced(os, urandom=rng.randbytes),
    ):
        random.seed(rng.random())
        yield


@contextlib.contextmanager
def clocks(world: System) -> Iterator[None]:
    """The names by which the product's modules know the clocks."""
    virtual: dict[Any, Callable[[], Any]] = {
        time.time: lambda: world.wall_s(_ahead_s(world)),
        time.time_ns: lambda: int(world.wall_s(_ahead_s(world)) * 1e9),
        time.monotonic: world.loop.time,
        time.perf_counter: world.loop.time,
    }
    with contextlib.ExitStack() as stack:
        for name, module in sorted(sys.modules.items()):
            if name.startswith("snapbid."):
                own = {
                    key: virtual[value]
                    for key, value in vars(module).items()
                    if callable(value) and getattr(value, "__module__", "") == "time"
                    and value in virtual
                }  # fmt: skip
                stack.enter_context(replaced(module, **own))
        yield


@contextlib.contextmanager
def versions() -> Iterator[None]:
    """Each new connection tells Redis that of redis-py, which takes long to find."""
    version = redis.utils.get_lib_version()  # type: ignore[no-untyped-call]
    with replaced(redis.utils, get_lib_version=lambda: version):
        yield


@contextlib.contextmanager
def files(world: System) -> Iterator[None]:
    """Files belong to a process; its disk may be full."""
    really_open, really_close, really_write = os.open, os.close, os.write

    def open_file(*args: Any, **more: Any) -> int:
        file = really_open(*args, **more)
        process = PROCESS.get()
        if process is not None:
            process.opened(file)
        return file

    def close(file: int) -> None:
        process = PROCESS.get()
        if process is not None:
            process.close(file)
        elif not world.is_over:  # what is collected then has no files any more
            really_close(file)

    def write(file: int, data: bytes) -> int:
        process = PROCESS.get()
        machine = world.machines.get(process.machine) if process is not None else None
        if machine is not None and machine.disk_is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return really_write(file, data)

    own = {"open": open_file, "close": close, "write": write}
    with replaced(os, **own, getpid=lambda: 1, fsync=lambda file: None):
        yield


class _Surprises(logging.Handler):
    """Keeps tracebacks: nobody had foreseen them."""

    def __init__(self, world: System) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.note("log", record.levelname, record.msg)
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{record.getMessage()}: {record.exc_info[1]!r}"
            self._world.surprises.append(text)


@contextlib.contextmanager
def logs(world: System) -> Iterator[None]:
    logger = logging.getLogger("snapbid")
    handler, propagate = _Surprises(world), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    quiet = logging.getLogger("asyncio")
    level = quiet.level
    quiet.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
        quiet.setLevel(level)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """What a killed process has left is not collected, and so does not clean up.

    What is older than the run stays frozen after it, so that no run looks at that again (in a test
    run it is most of what there is); `gc.unfreeze` after the last one.
    """
    collect()  # what the run before still had at its end
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.enable()


def collect(leave: Callable[[], None] = lambda: None) -> None:
    """Let go of a run by calling `leave`; what it has left cleans up unheard."""
    with (
        warnings.catch_warnings(),
        replaced(sys, unraisablehook=lambda _: None),
        replaced(os, close=lambda _: None),
    ):
        warnings.simplefilter("ignore")
        logging.disable()
        leave()
        gc.collect()
        logging.disable(logging.NOTSET)
