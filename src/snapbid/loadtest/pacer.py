"""Calls a function at given times, to within about 50 µs, without spinning.

The timers of uvloop and epoll have a resolution of a millisecond: 5,000 requests a second would be
sent in bursts of five, which would add up to a millisecond to every latency. A Linux timerfd has a
resolution of nanoseconds, and uses the clock of `perf_counter` (CLOCK_MONOTONIC).
"""

import asyncio
import ctypes
import os
from collections.abc import Callable
from time import perf_counter
from typing import Final

_CLOCK_MONOTONIC: Final = 1
_NONBLOCK: Final = os.O_NONBLOCK
_CLOEXEC: Final = os.O_CLOEXEC
_ABSTIME: Final = 1
_LEAST_S: Final = 20e-6  # between two wake-ups, so that answers are read in between

_libc = ctypes.CDLL(None, use_errno=True)


class _Spec(ctypes.Structure):
    """The C library's struct itimerspec."""

    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "at_s", "at_ns")]


class Pacer:
    """Calls `tick(now)`, then again at the time (perf_counter) that each call returns.

    After a call that returns None, `tick` is not called again.
    """

    def __init__(self, tick: Callable[[float], float | None]) -> None:
        self._tick = tick
        self._loop = asyncio.get_running_loop()
        self._fd = _libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK | _CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = _Spec()
        self._pointer = ctypes.byref(self._spec)
        self._loop.add_reader(self._fd, self._wake)

    def start(self) -> None:
        self._arm(perf_counter())

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _arm(self, at: float) -> None:
        seconds = int(at)
        self._spec.at_s = seconds
        self._spec.at_ns = int((at - seconds) * 1e9)
        _libc.timerfd_settime(self._fd, _ABSTIME, self._pointer, None)

    def _wake(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        now = perf_counter()
        due = self._tick(now)
        if due is not None:
            self._arm(max(due, now + _LEAST_S))
