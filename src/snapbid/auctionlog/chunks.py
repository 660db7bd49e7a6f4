"""Chunk files: a worker creates, locks and fills them; the writer converts and removes them.

A machine's chunks are in `spool/MACHINE` below the log's directory, named `TOKEN-NUMBER.rows`. A
token belongs to one worker, and is never reused.
"""

import fcntl
import mmap
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from snapbid.auctionlog.layout import CHUNK_SIZE, HEADER_SIZE, new_header

SUFFIX: Final = ".rows"
_UNLOCKED: Final = ".new"
MOST_CHUNKS: Final = 128  # waiting in a machine's spool: 512 MiB
HELD: Final = 2  # chunks of a worker: the one it fills, and the next


class SpoolCrowdedError(OSError):
    """An error for a full spool: the writer cannot keep up, or is not running."""

    def __init__(self) -> None:
        super().__init__(None, f"{MOST_CHUNKS} chunks are waiting for the writer")


class RowChunk:
    """A mapped chunk; `token` and `number` are parts of its name."""

    def __init__(self, path: Path, file: int) -> None:
        self.path = path
        token, _, number = path.stem.rpartition("-")
        self.token, self.number = token, int(number)
        self._file = file
        try:
            self.mapped = mmap.mmap(file, 0)
        except (OSError, ValueError):
            os.close(file)
            raise

    @classmethod
    def create(cls, spool: Path, token: str, number: int, workers: int) -> "RowChunk":
        """Create a locked chunk with all its disk space allocated.

        `workers`: the number of workers that share the spool. Raises OSError.
        """
        spool.mkdir(mode=0o700, parents=True, exist_ok=True)
        if count_waiting(spool, workers) >= MOST_CHUNKS:
            raise SpoolCrowdedError
        path = spool / f"{token}-{number:06d}{SUFFIX}"
        unlocked = path.with_suffix(_UNLOCKED)
        file = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(file, 0, CHUNK_SIZE)
            os.pwrite(file, new_header(), 0)
            unlocked.rename(path)
        except OSError:
            os.close(file)
            unlocked.unlink(missing_ok=True)
            raise
        return cls(path, file)

    def is_abandoned(self) -> bool:
        """Return whether no worker holds the chunk's lock."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return True

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        self.mapped.close()
        os.close(self._file)


def machine() -> str:
    """Return this machine's name, as used in rows and directories."""
    return socket.gethostname()


def spool_of(directory: Path) -> Path:
    """Return the directory of this machine's chunks."""
    return directory / "spool" / machine()


def count_waiting(spool: Path, workers: int) -> int:
    """Return how many chunks wait for the writer, besides those that the workers hold."""
    return max(sum(1 for _ in spool.glob(f"*{SUFFIX}")) - HELD * workers, 0)


def fair_share(workers: int) -> int:
    """Return how many bytes of rows each of the workers may have waiting for the writer.

    Together they take a quarter of the spool, so if the writer keeps up, most of it stays free.
    """
    return MOST_CHUNKS * CHUNK_SIZE // 4 // workers


def open_all(spool: Path, known: set[Path]) -> Iterator[RowChunk]:
    """Open the chunks that are not in `known`, ordered by name."""
    for path in sorted(spool.glob(f"*{SUFFIX}")):
        if path not in known:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            if os.fstat(file).st_size < HEADER_SIZE:
                os.close(file)
                continue
            yield RowChunk(path, file)
