"""Small disks to fill: a tmpfs mounted on a directory, if this user may."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

BALLAST: Final = "ballast"
PIECES: Final = (1 << 20, 4096)


class Disk:
    """A separate file system, whose content is lost with it."""

    def __init__(self, path: Path) -> None:
        self._ballast = path / BALLAST

    def fill(self) -> None:
        """Fill the disk to the last byte."""
        file = os.open(self._ballast, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = 0
            for piece in PIECES:
                with contextlib.suppress(OSError):
                    while True:
                        os.posix_fallocate(file, size, piece)
                        size += piece
        finally:
            os.close(file)

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


@contextlib.contextmanager
def mounted(path: Path, megabytes: int) -> Iterator[Disk | None]:
    """A new disk at `path`; None, and just a directory, if mounting is not allowed."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    options = f"size={megabytes}m,mode=0700"
    command = ["mount", "-t", "tmpfs", "-o", options, "snapbid-soak", str(path)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        yield None
        return
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
