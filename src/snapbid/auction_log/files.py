"""The log's Parquet files: `date=2026-11-22/TOKEN-FIRST-LAST.parquet`, whole or not there.

The name says whose rows a file has, from which sequence number to which. A file is written aside,
synced and renamed, so a conversion that was interrupted is done again with the same names.
"""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from snapbid.auction_log.layout import GAP, LoggedRow
from snapbid.auction_log.table import SCHEMA, VERSION, record_batch

BATCH: Final = 20_000  # rows that are made into columns at once
DAY_MS: Final = 86_400_000
_NAME: Final = re.compile(r"[0-9a-f]{16}-(\d+)-(\d+)\.parquet")
_TMP: Final = ".tmp"


class FileSet:
    """The files of one conversion, one for each day on which it has rows. Raises OSError."""

    def __init__(self, directory: Path, machine: str, worker: str) -> None:
        self._directory = directory
        self._machine = machine
        self._worker = worker
        self._open: dict[int, DayFile] = {}

    def add(self, rows: Iterable[LoggedRow]) -> None:
        """Write rows, each to the file of its day."""
        days: dict[int, list[LoggedRow]] = {}
        for row in rows:
            days.setdefault(row.time_ms // DAY_MS, []).append(row)
        for day, of_day in days.items():
            if day not in self._open:
                self._open[day] = DayFile(self._directory, day, self._worker)
            self._open[day].add(record_batch(of_day, self._machine, self._worker), of_day)

    def finish(self, first: int, last: int) -> None:
        """Complete the files, which have the rows from one sequence number to another."""
        for file in self._open.values():
            file.finish(f"{self._worker}-{first:012d}-{last:012d}.parquet")

    def discard(self) -> None:
        """Remove what is incomplete."""
        for file in self._open.values():
            file.discard()


class DayFile:
    """A Parquet file that is being written."""

    def __init__(self, directory: Path, day: int, worker: str) -> None:
        date = datetime.fromtimestamp(day * DAY_MS // 1000, UTC).date()
        self._directory = directory / f"date={date}"
        self._directory.mkdir(parents=True, exist_ok=True)
        self._path = self._directory / f"{worker}{_TMP}"
        self._sink = open(self._path, "wb")  # noqa: SIM115
        self._writer: Any = pq.ParquetWriter(self._sink, SCHEMA, compression="zstd")
        self._rows = self._gaps = 0

    def add(self, batch: pa.RecordBatch, rows: list[LoggedRow]) -> None:
        self._writer.write_batch(batch)
        self._rows += len(rows)
        self._gaps += sum(row.kind == GAP for row in rows)

    def finish(self, name: str) -> None:
        self._writer.add_key_value_metadata(
            {
                "snapbid.version": VERSION,
                "snapbid.rows": str(self._rows),
                "snapbid.gaps": str(self._gaps),
            }
        )
        self._writer.close()
        self._sink.flush()
        os.fsync(self._sink.fileno())
        self._sink.close()
        self._path.replace(self._directory / name)
        _sync(self._directory)

    def discard(self) -> None:
        with suppress(OSError, ValueError):
            self._writer.close()
        self._sink.close()
        self._path.unlink(missing_ok=True)


def last_begun(directory: Path, worker: str, first: int) -> int | None:
    """The last row of an interrupted conversion that began with this one; None without any."""
    for path in directory.glob(f"date=*/{worker}-{first:012d}-*.parquet"):
        name = _NAME.fullmatch(path.name)
        if name is not None:
            return int(name[2])
    return None


def remove_incomplete(directory: Path) -> None:
    """Remove what a writer that was killed left."""
    for path in directory.glob(f"date=*/*{_TMP}"):
        path.unlink(missing_ok=True)


def _sync(directory: Path) -> None:
    file = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
