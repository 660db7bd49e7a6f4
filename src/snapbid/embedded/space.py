"""Reserve disk space for the next writes of Redis.

If the disk fills up in the middle of a write, and Redis is killed before there is space again, it
loses what it has just acknowledged. So blocks for the next `RESERVE` bytes of the append-only file
are allocated in advance; while that is impossible, Redis must accept no writes.
"""

import ctypes
import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

RESERVE: Final = 32 << 20  # bytes: more than Redis writes between two checks
STEP: Final = 8 << 20
KEEP_SIZE: Final = 1  # FALLOC_FL_KEEP_SIZE of linux/falloc.h
UNSUPPORTED: Final = (errno.EOPNOTSUPP, errno.ENOSYS)

_fallocate = ctypes.CDLL(None, use_errno=True).fallocate  # `os.posix_fallocate` resizes the file
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class DiskReserve:
    """Reserves space beyond the ends of growing files."""

    def __init__(self) -> None:
        self._reserved: dict[int, int] = {}  # inode -> end of its reserve

    def reserve(self, files: Iterable[Path]) -> bool:
        """Reserve `RESERVE` bytes beyond the end of each file; return False if the disk is full."""
        reserved = {}
        for path in files:
            try:
                file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # replaced; the new file is found next time
                continue
            try:
                status = os.fstat(file)
                end = -(-(status.st_size + RESERVE) // STEP) * STEP
                is_known = self._reserved.get(status.st_ino) == end
                if not is_known and not _allocate(file, status.st_size, end):
                    return False
            finally:
                os.close(file)
            reserved[status.st_ino] = end
        self._reserved = reserved
        return True


def _allocate(file: int, start: int, end: int) -> bool:
    """Allocate blocks for bytes `start` to `end`; False if the disk is full.

    If the file system cannot allocate, check for free space instead.
    """
    if _fallocate(file, KEEP_SIZE, start, end - start) == 0:
        return True
    if ctypes.get_errno() in UNSUPPORTED:
        disk = os.fstatvfs(file)
        return disk.f_bavail * disk.f_frsize >= end - start
    return False
