"""Announce campaigns with headroom again to the workers of a machine, through a mapped file.

The one reader of a machine (server/allocating.py) writes a ring of announcements:

    number of announcements (uint64) | SLOTS of (campaign uint32, shard uint32)

It writes slots before the number, so that a worker never sees half of one. A worker that falls
behind by a whole ring reactivates all campaigns: those without budget are refused once more.
Reading takes no system call.
"""

import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

SLOTS: Final = 1 << 14
ALL: Final = 2**32 - 1  # instead of a campaign: all of that shard
DAILY: Final = 2**32 - 2  # all with a daily budget: a day has begun

_NUMBER: Final = Struct("<Q")
_SLOT: Final = Struct("<II")
_SIZE: Final = _NUMBER.size + SLOTS * _SLOT.size


class Vacancy(NamedTuple):
    """A campaign, by number, that has headroom in a shard."""

    campaign: int
    shard: int


def room_path(runtime_dir: Path) -> Path:
    """Return the path of a server's file, in the directory that its processes share."""
    return runtime_dir / "room"


class RoomWriter:
    """Writer of a new file at `path`."""

    def __init__(self, path: Path) -> None:
        beside = path.with_suffix(f".{os.getpid()}")
        beside.write_bytes(bytes(_SIZE))
        with beside.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE)
        beside.replace(path)
        self._number = 0

    def announce(self, vacancies: Iterable[Vacancy]) -> None:
        for vacancy in vacancies:
            _SLOT.pack_into(self._map, _offset(self._number), *vacancy)
            self._number += 1
        _NUMBER.pack_into(self._map, 0, self._number)

    def close(self) -> None:
        self._map.close()


class RoomReader:
    """Reader of announcements from now on. Raises OSError if there is no file."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE, access=mmap.ACCESS_READ)
        self._read = self._number()

    def read(self) -> list[Vacancy] | None:
        """Return the announcements since the last call; None if some were overwritten."""
        before, number = self._read, self._number()
        self._read = number
        vacancies = [
            Vacancy(*_SLOT.unpack_from(self._map, _offset(each)))
            for each in range(max(before, number - SLOTS), number)
        ]
        return vacancies if self._number() - before <= SLOTS else None

    def _number(self) -> int:
        number: int = _NUMBER.unpack_from(self._map)[0]
        return number

    def close(self) -> None:
        self._map.close()


def _offset(number: int) -> int:
    return _NUMBER.size + number % SLOTS * _SLOT.size
