"""Free space of the disks on which this machine writes."""

import os
from pathlib import Path
from typing import Final, NamedTuple

FEW_FILES: Final = 100


class Disk(NamedTuple):
    """The disk of a setting's directory: bytes that are free, and that may be needed at once."""

    setting: str
    path: Path
    free: int
    needed: int
    files: int | None  # inodes left; None if there is no limit

    @property
    def is_full(self) -> bool:
        return self.free < self.needed or (self.files is not None and self.files < FEW_FILES)


def look_at(setting: str, path: Path, needed: int) -> Disk | None:
    """Return the disk of a directory; None if the directory does not exist."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    files = found.f_favail if found.f_files else None
    return Disk(setting, path, found.f_bavail * found.f_frsize, needed, files)
