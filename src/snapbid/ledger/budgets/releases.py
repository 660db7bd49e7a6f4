"""Publish releases of refused campaigns to the workers of a machine, through a mapped file.

The machine's single reader of releases (server/allocating.py) writes them to a ring:

    number of releases (uint64) | SLOTS of (campaign uint32, shard uint32)

It writes slots before the number, so a worker never sees half a release. A worker that falls behind
by a whole ring reactivates all campaigns; those without headroom are refused once more. Reading
takes no system call.
"""

import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

SLOTS: Final = 1 << 14
ALL: Final = 2**32 - 1  # in place of a campaign: all campaigns in the shard
DAILY: Final = 2**32 - 2  # in place of a campaign: all with a daily budget, as a day has begun

_NUMBER: Final = Struct("<Q")
_SLOT: Final = Struct("<II")
_SIZE: Final = _NUMBER.size + SLOTS * _SLOT.size


class Release(NamedTuple):
    """A refused campaign (by number) that has headroom again in a shard."""

    campaign: int
    shard: int


def releases_path(runtime_dir: Path) -> Path:
    """Return the path of the file of releases in a server's runtime directory."""
    return runtime_dir / "releases"


class ReleaseWriter:
    """A writer of releases to a new file at `path`."""

    def __init__(self, path: Path) -> None:
        beside = path.with_suffix(f".{os.getpid()}")
        beside.write_bytes(bytes(_SIZE))
        with beside.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE)
        beside.replace(path)
        self._number = 0

    def publish(self, releases: Iterable[Release]) -> None:
        for release in releases:
            _SLOT.pack_into(self._map, _offset(self._number), *release)
            self._number += 1
        _NUMBER.pack_into(self._map, 0, self._number)

    def close(self) -> None:
        self._map.close()


class ReleaseReader:
    """A reader of new releases. Raises OSError if there is no file."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE, access=mmap.ACCESS_READ)
        self._read = self._number()

    def read(self) -> list[Release] | None:
        """Return the releases since the last call; None if some were overwritten."""
        before, number = self._read, self._number()
        self._read = number
        releases = [
            Release(*_SLOT.unpack_from(self._map, _offset(each)))
            for each in range(max(before, number - SLOTS), number)
        ]
        return releases if self._number() - before <= SLOTS else None

    def _number(self) -> int:
        number: int = _NUMBER.unpack_from(self._map)[0]
        return number

    def close(self) -> None:
        self._map.close()


def _offset(number: int) -> int:
    return _NUMBER.size + number % SLOTS * _SLOT.size
