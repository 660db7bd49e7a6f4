"""The writer, which converts workers' rows to Parquet files; a gap row stands for lost rows.

It may be killed at any moment: chunks and file names record its progress, and an interrupted
conversion is repeated. Chunks are removed once all their rows are in files.

The machine may stop at any moment, too. So rows are synced before they are written to a file, and
the record of their conversion is synced before their chunk is removed.
"""

import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Final

from snapbid.auctionlog.chunks import RowChunk, fair_share, machine, open_all, spool_of
from snapbid.auctionlog.files import FileSet, last_begun, remove_incomplete
from snapbid.auctionlog.layout import (
    GAP,
    HEADER_SIZE,
    ChunkState,
    LoggedRow,
    boot,
    note_converted,
    rows,
)
from snapbid.auctionlog.table import KILLED, STOPPED, UNKNOWN

MOST_BYTES: Final = 32 * 1024 * 1024  # of rows converted at once, at about 120 bytes each
IN_FLIGHT_MS: Final = 2_000  # an answer or a notice takes at most this long

logger = logging.getLogger(__name__)


class WorkerChunks:
    """The chunks of one worker in order, and how far they have been converted."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.chunks: list[RowChunk] = []
        self.offsets: dict[Path, int] = {}
        self.converted = self.last_row = 0  # sequence numbers
        self.waits_since: float | None = None  # monotonic time of the oldest unconverted rows

    def add(self, chunk: RowChunk) -> None:
        self.chunks.append(chunk)
        self.chunks.sort(key=lambda chunk: chunk.number)
        self.offsets[chunk.path] = HEADER_SIZE
        self.converted = max(self.converted, ChunkState.read(chunk.mapped).converted)

    def waiting(self) -> int:
        """Return the total size of unconverted rows in bytes."""
        return sum(
            ChunkState.read(chunk.mapped).end - self.offsets[chunk.path] for chunk in self.chunks
        )

    def lacks(self, first: int) -> bool:
        """Return whether row `first` was in a chunk that has been removed."""
        for chunk in self.chunks:
            end = ChunkState.read(chunk.mapped).end
            for row, _ in rows(chunk.mapped, HEADER_SIZE, end):
                if row.sequence >= first:
                    return row.sequence - (row.cost if row.kind == GAP else 0) > first
        return False

    def sync(self) -> None:
        for chunk in self.chunks:
            chunk.mapped.flush()

    def note_converted(self, sequence: int) -> None:
        """Record durably, in all chunks, that the rows up to `sequence` are in Parquet files."""
        for chunk in self.chunks:
            note_converted(chunk.mapped, sequence)
        self.sync()
        self.converted = sequence

    def remove(self, chunk: RowChunk) -> None:
        self.chunks.remove(chunk)
        del self.offsets[chunk.path]
        chunk.remove()


class LogWriter:
    """A converter of this machine's chunks below `directory`.

    A worker's rows are converted once they have waited for `rotate_s` seconds or fill much of the
    spool, and when the worker has ended.
    """

    def __init__(self, directory: Path, rotate_s: float) -> None:
        self._directory = directory
        self._spool = spool_of(directory)
        self._rotate_s = rotate_s
        self._machine = machine()
        self._boot = boot()
        self._lock: int | None = None
        self._workers: dict[str, WorkerChunks] = {}

    def open(self) -> None:
        """Lock the spool, and remove unfinished files left by an earlier writer.

        Raises OSError, for instance while another writer has the lock.
        """
        self._spool.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._spool / "writer.lock"
        lock = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise OSError(error.errno, "another process is already converting the log") from error
        self.close()
        self._lock = lock
        remove_incomplete(self._directory)

    def close(self) -> None:
        """Unlock the spool, so that another writer can take it over."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def look(self, *, everything: bool = False) -> None:
        """Convert the rows that have waited long enough, or all if `everything`. Raises OSError."""
        known = {chunk.path for worker in self._workers.values() for chunk in worker.chunks}
        for chunk in open_all(self._spool, known):
            worker = self._workers.setdefault(chunk.token, WorkerChunks(chunk.token))
            worker.add(chunk)
        workers = list(self._workers.values())
        for worker in workers:
            enough = 0 if everything else min(MOST_BYTES, fair_share(len(workers)))
            self._look_at(worker, enough)
            if not worker.chunks:
                del self._workers[worker.token]

    def _look_at(self, worker: WorkerChunks, enough: int) -> None:
        """Convert a worker's rows if they are due.

        Rows are due once they are old or take `enough` bytes, or once the worker has ended.
        """
        # Check before reading the ends: a worker that is gone by now writes no more.
        gone = all(chunk.is_abandoned() for chunk in worker.chunks)
        while waiting := worker.waiting():
            if worker.waits_since is None:
                worker.waits_since = monotonic()
            is_old = monotonic() - worker.waits_since >= self._rotate_s
            if not (gone or is_old or waiting >= enough):
                break
            self._convert(worker, gone)
        if gone and worker.chunks:
            self._convert(worker, gone)  # there may be a gap
        for chunk in list(worker.chunks):
            state = ChunkState.read(chunk.mapped)
            if worker.offsets[chunk.path] >= state.end and (state.closed or gone):
                worker.remove(chunk)

    def _convert(self, worker: WorkerChunks, gone: bool) -> None:
        """Convert up to MOST_BYTES of a worker's waiting rows to Parquet files."""
        first = worker.converted + 1
        last = last_begun(self._directory, worker.token, first)
        if last is not None and worker.lacks(first):
            worker.note_converted(last)  # it was complete, but its record in the chunks was lost
            return
        conversion = _ChunkRows(worker, self._boot, gone, last)
        with FileSet(self._directory, self._machine, worker.token) as files:
            files.add(conversion)
            if conversion.last:
                worker.sync()
                files.finish(first, conversion.last)
        if conversion.last:
            worker.note_converted(conversion.last)
        worker.waits_since = None
        worker.offsets.update(conversion.offsets)


class _ChunkRows:
    """The rows of one conversion; `offsets` and `last` record its progress."""

    def __init__(self, worker: WorkerChunks, boot_id: bytes, gone: bool, until: int | None) -> None:
        self._worker = worker
        self._boot = boot_id
        self._gone = gone
        self._until = until
        self.offsets = dict(worker.offsets)
        self.last = 0

    def __iter__(self) -> Iterator[LoggedRow]:
        worker, until, taken, broken = self._worker, self._until, 0, False
        for chunk in worker.chunks:
            end = ChunkState.read(chunk.mapped).end
            for row, following in rows(chunk.mapped, self.offsets[chunk.path], end):
                if until is not None and row.sequence > until:
                    return
                taken += following - self.offsets[chunk.path]
                self.offsets[chunk.path] = following
                worker.last_row = row.sequence
                if row.sequence > worker.converted:
                    self.last = row.sequence
                    yield row
                    if taken >= MOST_BYTES and until is None:
                        return
            broken = broken or self.offsets[chunk.path] < end
            self.offsets[chunk.path] = end
        if self._gone and (gap := self._gap(broken)) is not None:
            self.last = gap.sequence
            yield gap

    def _gap(self, broken: bool) -> LoggedRow | None:
        """Return the gap row to add after the last row; None if no rows are missing there."""
        states = [ChunkState.read(chunk.mapped) for chunk in self._worker.chunks]
        used = [state for state in states if state.first]
        if not used:
            return None
        sequence = max(self._worker.last_row, used[-1].first - 1) + 1
        if sequence <= self._worker.converted or (self._until and sequence > self._until):
            return None
        return _gap(used[-1], sequence, self._boot, broken)


def _gap(state: ChunkState, sequence: int, boot_id: bytes, broken: bool) -> LoggedRow | None:
    """Build a gap row, which says how many rows were lost and why; None if none were lost.

    `broken`: whether some of the worker's rows are unreadable.
    """
    since, until = state.begun_ms - IN_FLIGHT_MS, state.begun_ms
    if state.lost:
        since = min(since, state.lost_since_ms)
    if broken or (state.boot != boot_id and not state.closed):
        missing, why = UNKNOWN, STOPPED
    elif not state.closed and (missing := state.in_flight + state.lost):
        why = KILLED
    else:
        return None
    return LoggedRow(GAP, why, 0, 0, sequence, until, since, missing, 0, [])
