"""The writer: converts workers' rows to Parquet files, and records gaps.

It may be killed at any moment: segments and file names record its progress, and an interrupted
conversion is repeated. Segments are removed once all their rows are in files.
"""

import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Final

from snapbid.auctionlog.files import FileSet, last_begun, remove_incomplete
from snapbid.auctionlog.layout import (
    GAP,
    HEADER_SIZE,
    LoggedRow,
    SegmentState,
    boot,
    note_converted,
    rows,
)
from snapbid.auctionlog.segments import RowSegment, machine, open_all, spool_of
from snapbid.auctionlog.table import KILLED, STOPPED, UNKNOWN

MOST_BYTES: Final = 32 * 1024 * 1024  # of rows converted at once, at about 120 bytes each
IN_FLIGHT_MS: Final = 2_000  # an answer or a notice takes at most this long

logger = logging.getLogger(__name__)


class WorkerSegments:
    """The segments of one worker in order, and the progress of their conversion."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.segments: list[RowSegment] = []
        self.offsets: dict[Path, int] = {}
        self.converted = self.last_row = 0  # sequence numbers
        self.waits_since: float | None = None  # monotonic time of the oldest unconverted rows

    def add(self, segment: RowSegment) -> None:
        self.segments.append(segment)
        self.segments.sort(key=lambda segment: segment.number)
        self.offsets[segment.path] = HEADER_SIZE
        self.converted = max(self.converted, SegmentState.read(segment.mapped).converted)

    def waiting(self) -> int:
        """The bytes of unconverted rows."""
        return sum(
            SegmentState.read(segment.mapped).end - self.offsets[segment.path]
            for segment in self.segments
        )

    def remove(self, segment: RowSegment) -> None:
        self.segments.remove(segment)
        del self.offsets[segment.path]
        segment.remove()


class LogWriter:
    """Converts the segments of this machine below `directory`, within `rotate_s`."""

    def __init__(self, directory: Path, rotate_s: float) -> None:
        self._directory = directory
        self._spool = spool_of(directory)
        self._rotate_s = rotate_s
        self._machine = machine()
        self._boot = boot()
        self._lock: int | None = None
        self._workers: dict[str, WorkerSegments] = {}

    def open(self) -> None:
        """Lock the spool, and remove unfinished files of an earlier writer.

        Raises OSError, also while another writer has the lock.
        """
        self._spool.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._spool / "writer.lock"
        lock = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise OSError(error.errno, "another process is converting it") from error
        self.close()
        self._lock = lock
        remove_incomplete(self._directory)

    def close(self) -> None:
        """Release the segments for another writer."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def look(self, *, everything: bool = False) -> None:
        """Convert rows that are due. Raises OSError if files cannot be written."""
        known = {segment.path for worker in self._workers.values() for segment in worker.segments}
        for segment in open_all(self._spool, known):
            worker = self._workers.setdefault(segment.token, WorkerSegments(segment.token))
            worker.add(segment)
        for worker in list(self._workers.values()):
            self._look_at(worker, everything)
            if not worker.segments:
                del self._workers[worker.token]

    def _look_at(self, worker: WorkerSegments, everything: bool) -> None:
        # Check before reading the ends: a worker that is gone by now writes no more.
        gone = all(segment.is_abandoned() for segment in worker.segments)
        while waiting := worker.waiting():
            if worker.waits_since is None:
                worker.waits_since = monotonic()
            is_old = monotonic() - worker.waits_since >= self._rotate_s
            if not (gone or everything or is_old or waiting >= MOST_BYTES):
                break
            self._convert(worker, gone)
        if gone and worker.segments:
            self._convert(worker, gone)  # a gap, perhaps
        for segment in list(worker.segments):
            state = SegmentState.read(segment.mapped)
            if worker.offsets[segment.path] >= state.end and (state.closed or gone):
                worker.remove(segment)

    def _convert(self, worker: WorkerSegments, gone: bool) -> None:
        """Convert waiting rows to files, MOST_BYTES at most."""
        first = worker.converted + 1
        last = last_begun(self._directory, worker.token, first)
        conversion = _SegmentRows(worker, self._boot, gone, last)
        with FileSet(self._directory, self._machine, worker.token) as files:
            files.add(conversion)
            if conversion.last:
                files.finish(first, conversion.last)
        worker.waits_since = None
        worker.offsets.update(conversion.offsets)
        if conversion.last:
            worker.converted = conversion.last
            for segment in worker.segments:
                note_converted(segment.mapped, conversion.last)


class _SegmentRows:
    """The rows of one conversion; `offsets` and `last` record its progress."""

    def __init__(
        self, worker: WorkerSegments, boot_id: bytes, gone: bool, until: int | None
    ) -> None:
        self._worker = worker
        self._boot = boot_id
        self._gone = gone
        self._until = until
        self.offsets = dict(worker.offsets)
        self.last = 0

    def __iter__(self) -> Iterator[LoggedRow]:
        worker, until, taken, broken = self._worker, self._until, 0, False
        for segment in worker.segments:
            end = SegmentState.read(segment.mapped).end
            for row, following in rows(segment.mapped, self.offsets[segment.path], end):
                if until is not None and row.sequence > until:
                    return
                taken += following - self.offsets[segment.path]
                self.offsets[segment.path] = following
                worker.last_row = row.sequence
                if row.sequence > worker.converted:
                    self.last = row.sequence
                    yield row
                    if taken >= MOST_BYTES and until is None:
                        return
            broken = broken or self.offsets[segment.path] < end
            self.offsets[segment.path] = end
        if self._gone and (gap := self._gap(broken)) is not None:
            self.last = gap.sequence
            yield gap

    def _gap(self, broken: bool) -> LoggedRow | None:
        """Return a gap row for rows missing after the last one, unless recorded or further on."""
        states = [SegmentState.read(segment.mapped) for segment in self._worker.segments]
        used = [state for state in states if state.first]
        if not used:
            return None
        sequence = max(self._worker.last_row, used[-1].first - 1) + 1
        if sequence <= self._worker.converted or (self._until and sequence > self._until):
            return None
        return _gap(used[-1], sequence, self._boot, broken)


def _gap(state: SegmentState, sequence: int, boot_id: bytes, broken: bool) -> LoggedRow | None:
    """Return a gap row for rows missing after the last one of a worker that was killed."""
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
