"""Waiting for a file to be renamed into a directory, by Linux' inotify."""

import asyncio
import contextlib
import ctypes
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_MOVED_TO: Final = 0x80  # IN_MOVED_TO (linux/inotify.h)
_READ_BYTES: Final = 4096


class Renames:
    """What is renamed into a directory, while this is entered, in an event loop.

    `are_told`: whether the system tells; a user may have only so many of these.
    """

    def __init__(self, directory: Path) -> None:
        libc = ctypes.CDLL(None)
        self._file = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        watch = libc.inotify_add_watch(self._file, os.fsencode(directory), _MOVED_TO)
        self.are_told: bool = watch >= 0
        self._happened = asyncio.Event()

    def __enter__(self) -> Self:
        if self.are_told:
            asyncio.get_running_loop().add_reader(self._file, self._read)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.are_told:
            asyncio.get_running_loop().remove_reader(self._file)
        if self._file >= 0:
            os.close(self._file)

    async def wait(self, timeout_s: float) -> None:
        """Return after a renaming since the last wait, or after the timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._happened.wait()
        self._happened.clear()

    def _read(self) -> None:
        os.read(self._file, _READ_BYTES)  # whatever it was
        self._happened.set()
