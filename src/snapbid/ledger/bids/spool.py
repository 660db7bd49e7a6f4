"""The spool: notices that Redis did not settle in time, kept on disk until they are settled.

Each worker appends notices to its own file, and syncs the file before it answers them (several
notices may share a sync). Once Redis is back, the file is set aside and its notices are settled; a
notice settled before counts as a duplicate, so replaying it twice does no harm. The files of ended
workers are recognised by their released locks, and taken over.

A hold does not end while a notice of its bid may still be spooled (clock.lua). So each process
registers in the ledger with a token, and keeps a locked file that shows it is alive. A process that
ends leaves its unconfirmed batches (shard.py) in the same directory.
"""

import asyncio
import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

import msgspec

from snapbid.base.outputs import sync
from snapbid.ledger.bids.records import NOTICE, BidBatch, NoticeVerdict
from snapbid.redisclient.trips import Pending

MAGIC: Final = b"snapbid\x01"  # at the start of a file; the last byte is the format number
_ENTRY: Final = Struct(f"<HI{NOTICE.size}s")  # shard, checksum, notice
_OWN_TIME: Final = 1 << 15  # flag beside the shard: times are by this machine's clock, not Redis'
_SUFFIX: Final = ".spool"
_PROCESS: Final = ".process"
_BATCHES: Final = ".doubt"
_UNLOCKED: Final = ".new"  # being created; ignored by readers


class SpoolFullError(Exception):
    """A notice cannot be spooled: the spool or the disk is full, or a file cannot be written."""


class Spool:
    """A worker's spool in a directory shared by the workers of a server.

    `max_bytes` limits the size of this worker's file and all abandoned files together. `token`
    identifies this process.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._size = 0
        self._left = 0  # bytes of abandoned files in the directory
        self._file: int | None = None
        self._path = directory
        self._aside: list[Path] = []
        self._process: SpoolFile | None = None
        self._unsynced: list[Pending[str | None]] = []
        self._syncing: asyncio.Task[None] | None = None
        self.token = secrets.token_hex(8)

    @property
    def holds_own(self) -> bool:
        """Whether this worker has notices in an open file, which `set_aside` closes."""
        return self._file is not None

    @property
    def is_empty(self) -> bool:
        """Whether all notices written by this worker are settled."""
        if self._aside:
            self._aside = [path for path in self._aside if path.exists()]
        return self._file is None and not self._aside

    # -- writing ----------------------------------------------------------------------------------

    def append(
        self,
        notices: Sequence[tuple[int, bytes]],
        done: "Pending[str | None]",
        *,
        own_time: bool = False,
    ) -> None:
        """Append notices, each with its shard; `done` resolves to SPOOLED once they are synced.

        `done` raises SpoolFullError if they cannot be written. `own_time`: whether the notices have
        times by this machine's clock instead of that of Redis.
        """
        marks = _OWN_TIME if own_time else 0
        try:
            self._append(
                b"".join(
                    [_ENTRY.pack(shard | marks, crc32(packed), packed) for shard, packed in notices]
                )
            )
        except SpoolFullError as error:
            if not done.done():
                done.set_exception(error)
            return
        self._unsynced.append(done)
        if self._syncing is None:
            self._syncing = asyncio.create_task(self._sync())

    def _append(self, entries: bytes) -> None:
        try:
            if self._file is None:
                self._open()
            assert self._file is not None
            if self._left + self._size + len(entries) > self._max_bytes:
                raise SpoolFullError("the spool is full")
            written = os.write(self._file, entries)
            if written != len(entries):
                os.ftruncate(self._file, self._size)
                raise SpoolFullError("the disk is full")
            self._size += written
        except OSError as error:
            raise SpoolFullError(f"cannot write the spool: {error.strerror}") from error

    def _open(self) -> None:
        """Create a file under a new name, visible to others only once it is locked."""
        self._left = sum(spooled.size for spooled in self._kept())
        path = self._directory / f"{self.token}-{secrets.token_hex(8)}{_SUFFIX}"
        self._file = _create(path, MAGIC)
        self._path, self._size = path, len(MAGIC)

    def _kept(self) -> Iterator["SpoolFile"]:
        for spooled in self.abandoned():
            yield spooled
            spooled.keep()

    async def _sync(self) -> None:
        try:
            while self._unsynced:
                waiting, self._unsynced = self._unsynced, []
                assert self._file is not None
                try:
                    await asyncio.to_thread(os.fsync, self._file)
                except OSError as error:
                    failure = SpoolFullError(f"cannot write the spool: {error.strerror}")
                    for done in waiting + self._unsynced:
                        if not done.done():
                            done.set_exception(failure)
                    self._unsynced = []
                    self._close()  # a later sync of this file might falsely report success
                else:
                    for done in waiting:
                        if not done.done():
                            done.set_result(NoticeVerdict.SPOOLED.value)
        finally:
            self._syncing = None

    async def set_aside(self) -> None:
        """Close this worker's file, so that any process may take it over with `abandoned`."""
        while self._syncing is not None:
            await asyncio.shield(self._syncing)
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._aside.append(self._path)
            self._file, self._size = None, 0

    async def close(self) -> None:
        """Close this worker's files, leaving unsettled notices to other workers."""
        await self.set_aside()
        if self._process is not None:
            self._process.keep()
            self._process = None

    # -- files of ended processes -----------------------------------------------------------------

    def look(self) -> list[str]:
        """List the files in the directory, except the one that marks this process as alive."""
        try:
            names = sorted(os.listdir(self._directory))
        except FileNotFoundError:
            return []
        own = f"{self.token}{_PROCESS}"
        return [name for name in names if name != own]

    def abandoned(self, names: Sequence[str] | None = None) -> Iterator["SpoolFile"]:
        """Take over abandoned files of notices, one by one.

        `names`: the files to take over; if None, those that `look` returns.
        """
        return self._take_over(names, _SUFFIX)

    def abandoned_batches(self, names: Sequence[str] | None = None) -> Iterator["SpoolFile"]:
        """Take over files with unconfirmed batches of ended processes, one by one."""
        return self._take_over(names, _BATCHES)

    def leave_unconfirmed(self, batches: Sequence[tuple[int, BidBatch]]) -> None:
        """Leave batches, with their shards, for another process to roll back. Raises OSError."""
        path = self._directory / f"{secrets.token_hex(8)}{_BATCHES}"
        os.close(_create(path, msgspec.msgpack.encode(batches)))

    # -- processes --------------------------------------------------------------------------------

    def join(self) -> None:
        """Create and lock the file that marks this process as alive. Raises OSError."""
        path = self._directory / f"{self.token}{_PROCESS}"
        self._process = SpoolFile(path, _create(path, b""))

    def leave(self) -> None:
        """Remove the file that marks this process as alive.

        Call this only after deregistering the process from the ledger.
        """
        if self._process is not None:
            self._process.done()
            self._process = None

    def gone(self, names: Sequence[str] | None = None) -> Iterator["SpoolFile"]:
        """Take over, one by one, the files that mark processes as alive although they have ended.

        `names`: the files to try; None: all files in the directory.
        """
        return self._take_over(names, _PROCESS)

    def has_notices_of(self, token: str) -> bool:
        """Whether a process has spooled notices that are not yet settled."""
        return any(self._directory.glob(f"{token}-*{_SUFFIX}"))

    def _take_over(self, names: Sequence[str] | None, suffix: str) -> Iterator["SpoolFile"]:
        for name in self.look() if names is None else names:
            if not name.endswith(suffix):
                continue
            path = self._directory / name
            try:
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                continue
            if os.fstat(file).st_nlink == 0:  # another process finished and removed it meanwhile
                os.close(file)
                continue
            yield SpoolFile(path, file)


class SpoolFile:
    """A locked file in the spool directory; `done` or `keep` releases it."""

    def __init__(self, path: Path, file: int) -> None:
        self._path = path
        self._file = file

    @property
    def size(self) -> int:
        return os.fstat(self._file).st_size

    @property
    def token(self) -> str:
        """The token of the ended process that held this file.

        Only for a file from `Spool.gone`.
        """
        return self._path.stem

    def notices(self, behind_ms: int = 0) -> list[tuple[int, bytes]] | None:
        """Read (shard, notice) pairs; skip a truncated entry, whose sender got no answer.

        Times read from this machine's clock, which is `behind_ms` behind Redis' clock, are
        converted to Redis' clock. Returns None for a file in another format, which is left to the
        release that wrote it.
        """
        data = self._path.read_bytes()
        if not data.startswith(MAGIC):
            return None
        return [
            (shard & ~_OWN_TIME, _later(packed, behind_ms) if shard & _OWN_TIME else packed)
            for shard, packed in _entries(data[len(MAGIC) :])
        ]

    def batches(self) -> list[tuple[int, BidBatch]]:
        """Read the file's (shard, batch) pairs; return an empty list if the file is truncated."""
        try:
            return _decode_batches(self._path.read_bytes())
        except msgspec.DecodeError:
            return []

    def done(self) -> None:
        """Remove the fully processed file."""
        self._path.unlink(missing_ok=True)
        os.close(self._file)

    def keep(self) -> None:
        """Unlock the file but do not remove it, so that it can be taken over again."""
        os.close(self._file)


_decode_batches: Final = msgspec.msgpack.Decoder(list[tuple[int, BidBatch]]).decode


def _entries(data: bytes) -> Iterator[tuple[int, bytes]]:
    whole = len(data) - len(data) % _ENTRY.size
    for shard, check, packed in _ENTRY.iter_unpack(data[:whole]):
        if crc32(packed) == check:
            yield shard, packed


def _later(packed: bytes, by_ms: int) -> bytes:
    kind, reason, digest, seconds, ms, *run = NOTICE.unpack(packed)
    came = divmod(max(seconds * 1000 + ms + by_ms, 0), 1000)
    return NOTICE.pack(kind, reason, digest, *came, *run)


def _create(path: Path, content: bytes) -> int:
    """Create a file, locked and synced before others can see it; return its descriptor."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unlocked = path.with_suffix(_UNLOCKED)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
    file = os.open(unlocked, flags, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if content:
            if os.write(file, content) != len(content):
                raise OSError(28, os.strerror(28))
            os.fsync(file)
        unlocked.rename(path)
        sync(path.parent)
    except OSError:
        unlocked.unlink(missing_ok=True)
        os.close(file)
        raise
    return file
