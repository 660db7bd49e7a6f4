"""Campaigns that have room again, from the one reader of a machine (server/allocating.py) to its
workers.

A file that all of them map is a ring of announcements:

    number of announcements (uint64) | SLOTS of (campaign uint32, shard uint32)

The reader writes the slots first and the number after them, so that a worker sees none half
written. A worker that has fallen behind by a whole ring lets all campaigns bid again: those that
have no budget are refused once more. Workers look without a system call, as often as they like.
"""

import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

SLOTS: Final = 1 << 14
ALL: Final = 2**32 - 1  # in place of a campaign: all of that shard
DAILY: Final = 2**32 - 2  # those that have a daily budget: a day has begun

_NUMBER: Final = Struct("<Q")
_SLOT: Final = Struct("<II")
_SIZE: Final = _NUMBER.size + SLOTS * _SLOT.size


class Vacancy(NamedTuple):
    """A campaign, by number, has room in a shard."""

    campaign: int
    shard: int


def room_path(runtime_dir: Path) -> Path:
    """The file of a machine, in the directory that its processes share."""
    return runtime_dir / "room"


class RoomWriter:
    """Begins a new file at `path`."""

    def __init__(self, path: Path) -> None:
        beside = path.with_suffix(f".{os.getpid()}")
        beside.write_bytes(bytes(_SIZE))
        with beside.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE)
        beside.replace(path)
        self._number = 0

    def announce(self, rooms: Iterable[Vacancy]) -> None:
        for room in rooms:
            _SLOT.pack_into(self._map, _place(self._number), *room)
            self._number += 1
        _NUMBER.pack_into(self._map, 0, self._number)

    def close(self) -> None:
        self._map.close()


class RoomReader:
    """Reads what is announced from now on. Raises OSError where there is no file."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE, access=mmap.ACCESS_READ)
        self._read = self._number()

    def read(self) -> list[Vacancy] | None:
        """What was announced since; None where that is no longer known."""
        before, number = self._read, self._number()
        self._read = number
        rooms = [
            Vacancy(*_SLOT.unpack_from(self._map, _place(each)))
            for each in range(max(before, number - SLOTS), number)
        ]
        return rooms if self._number() - before <= SLOTS else None

    def _number(self) -> int:
        number: int = _NUMBER.unpack_from(self._map)[0]
        return number

    def close(self) -> None:
        self._map.close()


def _place(number: int) -> int:
    return _NUMBER.size + number % SLOTS * _SLOT.size
