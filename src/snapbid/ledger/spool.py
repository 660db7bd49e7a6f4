"""Notices that came while Redis was away: on disk before they are answered, settled later.

A worker appends to a file of its own, synced before `write` returns (several notices share one
sync). When Redis is back, the file is set aside and its notices are settled; a notice that was
settled already counts as a repeat, so replaying twice does no harm. Files of workers that are gone
are recognised by their free lock and taken over.
"""

import asyncio
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

from snapbid.ledger.records import NOTICE

_ENTRY: Final = Struct(f"<HI{NOTICE.size}s")  # shard hash, checksum, notice
_SUFFIX: Final = ".spool"
_UNLOCKED: Final = ".new"  # being made; nobody looks at it


class SpoolFullError(Exception):
    """The spool cannot take the notice."""


class Spool:
    """One worker's spool in a directory that the workers of a server share.

    `max_bytes` bounds what it writes, together with what nobody writes to any longer.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._size = 0
        self._left = 0  # bytes in the directory that nobody writes to
        self._file: int | None = None
        self._unsynced: list[asyncio.Future[None]] = []
        self._syncing: asyncio.Task[None] | None = None

    @property
    def holds_own(self) -> bool:
        """Whether this worker has a file that was not set aside yet."""
        return self._file is not None

    async def write(self, shard: int, packed: bytes) -> None:
        """Returns when the notice is on disk. Raises SpoolFullError where it cannot be."""
        entry = _ENTRY.pack(shard, crc32(packed), packed)
        try:
            if self._file is None:
                self._open()
            assert self._file is not None
            if self._left + self._size + len(entry) > self._max_bytes:
                raise SpoolFullError("the spool is full")
            written = os.write(self._file, entry)
            if written != len(entry):
                os.ftruncate(self._file, self._size)
                raise SpoolFullError("the disk is full")
            self._size += written
        except OSError as error:
            raise SpoolFullError(f"the spool cannot be written: {error.strerror}") from error
        await self._synced()

    def _open(self) -> None:
        """A file of a name never used before, which others see only once it is locked."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._left = sum(spooled.size for spooled in self._kept())
        path = self._directory / f"{os.getpid()}-{secrets.token_hex(8)}{_SUFFIX}"
        unlocked = path.with_suffix(_UNLOCKED)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        file = os.open(unlocked, flags, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unlocked.rename(path)
            _sync_directory(self._directory)
        except OSError:
            unlocked.unlink(missing_ok=True)
            os.close(file)
            raise
        self._file, self._size = file, 0

    def _kept(self) -> Iterator["Spooled"]:
        for spooled in self.abandoned():
            yield spooled
            spooled.keep()

    async def _synced(self) -> None:
        done = asyncio.get_running_loop().create_future()
        self._unsynced.append(done)
        if self._syncing is None:
            self._syncing = asyncio.create_task(self._sync())
        await asyncio.shield(done)

    async def _sync(self) -> None:
        try:
            while self._unsynced:
                waiting, self._unsynced = self._unsynced, []
                assert self._file is not None
                try:
                    await asyncio.to_thread(os.fsync, self._file)
                except OSError as error:
                    failure = SpoolFullError(f"the spool cannot be written: {error.strerror}")
                    for one in waiting + self._unsynced:
                        one.set_exception(failure)
                    self._unsynced = []
                    self._close()  # what a later sync says of this file is not to be trusted
                else:
                    for one in waiting:
                        one.set_result(None)
        finally:
            self._syncing = None

    async def set_aside(self) -> None:
        """Closes what this worker has written, so that `abandoned` gives it."""
        while self._syncing is not None:
            await asyncio.shield(self._syncing)
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file, self._size = None, 0

    def abandoned(self) -> Iterator["Spooled"]:
        """Takes over the files that nobody writes to, one after the other."""
        for path in sorted(self._directory.glob(f"*{_SUFFIX}")):
            try:
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                continue
            if os.fstat(file).st_nlink == 0:  # another was faster, and is done with it
                os.close(file)
                continue
            yield Spooled(path, file)

    async def close(self) -> None:
        """Leaves what was written for the next worker."""
        await self.set_aside()


class Spooled:
    """A file that was taken over; `done` or `keep` gives it back."""

    def __init__(self, path: Path, file: int) -> None:
        self._path = path
        self._file = file

    @property
    def size(self) -> int:
        """Bytes."""
        return os.fstat(self._file).st_size

    def notices(self) -> list[tuple[int, bytes]]:
        """(shard hash, notice) each; an entry that a crash cut short was never answered."""
        data = self._path.read_bytes()
        whole = len(data) - len(data) % _ENTRY.size
        entries = _ENTRY.iter_unpack(data[:whole])
        return [(shard, packed) for shard, check, packed in entries if crc32(packed) == check]

    def done(self) -> None:
        """Removes the file: everything in it is settled."""
        self._path.unlink(missing_ok=True)
        os.close(self._file)

    def keep(self) -> None:
        """Leaves the file for another time."""
        os.close(self._file)


def _sync_directory(directory: Path) -> None:
    """So that the file's name survives too."""
    file = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
