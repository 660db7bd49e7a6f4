"""Whether the disks on which this machine writes have room."""

import os
from pathlib import Path
from typing import Final, NamedTuple

FEW_FILES: Final = 100


class Disk(NamedTuple):
    """The disk of a setting's directory: what is free, and may be needed at once (bytes)."""

    setting: str
    path: Path
    free: int
    needed: int
    files: int | None  # that can still be made; None where there is no limit

    @property
    def is_full(self) -> bool:
        return self.free < self.needed or (self.files is not None and self.files < FEW_FILES)


def look_at(setting: str, path: Path, needed: int) -> Disk | None:
    """Look at the disk of a directory; None where that is not there."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    files = found.f_favail if found.f_files else None
    return Disk(setting, path, found.f_bavail * found.f_frsize, needed, files)
