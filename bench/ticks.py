"""A callback every fraction of a millisecond; uvloop's own timers know whole milliseconds only."""

import asyncio
import ctypes
import os
from collections.abc import Callable
from time import CLOCK_MONOTONIC
from typing import Final

TFD_NONBLOCK: Final = os.O_NONBLOCK
NS: Final = 1_000_000_000

_libc: Final = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (("s", ctypes.c_long), ("ns", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Ticks:
    """Within the context `call` is called every `period_s` on the running loop (timerfd_create(2));
    ticks that came due meanwhile count as one.
    """

    def __init__(self, period_s: float, call: Callable[[], None]) -> None:
        self._period = _Timespec(*divmod(round(period_s * NS), NS))
        self._call = call

    def __enter__(self) -> None:
        self._timer = _checked(_libc.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK))
        setting = _Itimerspec(self._period, self._period)
        _checked(_libc.timerfd_settime(self._timer, 0, ctypes.byref(setting), None))
        asyncio.get_running_loop().add_reader(self._timer, self._tick)

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._timer)
        os.close(self._timer)

    def _tick(self) -> None:
        os.read(self._timer, 8)
        self._call()


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
