"""Room on the disk for what Redis will write next.

A disk that becomes full amid a write takes what Redis has acknowledged just then, should Redis be
killed before there is room again. So the next `RESERVE` bytes of the append-only file have their
blocks before they are written, which nobody else can take; where they cannot be had any more, Redis
must take nothing until they can.
"""

import ctypes
import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

RESERVE: Final = 32 << 20  # bytes: more than Redis writes between two looks
STEP: Final = 8 << 20
KEEP_SIZE: Final = 1  # FALLOC_FL_KEEP_SIZE of linux/falloc.h
UNSUPPORTED: Final = (errno.EOPNOTSUPP, errno.ENOSYS)

_fallocate = ctypes.CDLL(None, use_errno=True).fallocate  # `os.posix_fallocate` changes the size
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class Room:
    """What is reserved beyond the ends of files that grow."""

    def __init__(self) -> None:
        self._reserved: dict[int, int] = {}  # inode: up to which byte

    def reserve(self, files: Iterable[Path]) -> bool:
        """Whether each of the files has room for `RESERVE` bytes more."""
        reserved = {}
        for path in files:
            try:
                file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # replaced by another one, which is seen next time
                continue
            try:
                status = os.fstat(file)
                end = -(-(status.st_size + RESERVE) // STEP) * STEP
                known = self._reserved.get(status.st_ino) == end
                if not known and not _allocate(file, status.st_size, end):
                    return False
            finally:
                os.close(file)
            reserved[status.st_ino] = end
        self._reserved = reserved
        return True


def _allocate(file: int, start: int, end: int) -> bool:
    """Whether the bytes from `start` to `end` have their blocks, or at least would find some."""
    if _fallocate(file, KEEP_SIZE, start, end - start) == 0:
        return True
    number = ctypes.get_errno()
    if number in UNSUPPORTED:
        disk = os.fstatvfs(file)
        return disk.f_bavail * disk.f_frsize >= end - start
    return False
