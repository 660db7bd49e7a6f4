"""The log's Parquet files: `date=2026-11-22/TOKEN-FIRST-LAST.parquet`, complete or absent.

The name has a worker's token, and the sequence numbers of the first and the last of its rows that
were converted together. A file is written under a temporary name, synced and renamed. An
interrupted conversion is repeated with the same names.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Final

import duckdb

from snapbid.auctionlog.layout import LoggedRow
from snapbid.auctionlog.table import COLUMNS, LOGGED, VERSION, values_of
from snapbid.base.outputs import sync

BATCH: Final = 4_096  # rows added at once
DAY_MS: Final = 86_400_000
_DAYS: Final = f"""
SELECT time_ms // {DAY_MS} AS day, count(*), count(*) FILTER (kind = 'gap')
FROM logged GROUP BY day ORDER BY day
"""
_COPY: Final = f"""
COPY ({COLUMNS} WHERE time_ms // {DAY_MS} = $day) TO $path (
    FORMAT parquet, COMPRESSION zstd, KV_METADATA {{
        "snapbid.base.version": $version, "snapbid.rows": $rows, "snapbid.gaps": $gaps
    }}
)
"""
_NAME: Final = re.compile(r"[0-9a-f]{16}-(\d+)-(\d+)\.parquet")
_TMP: Final = ".tmp"


class FileSet:
    """The Parquet files that a conversion writes: one for each day with rows. Raises OSError."""

    def __init__(self, directory: Path, machine: str, worker: str) -> None:
        self._directory = directory
        self._machine = machine
        self._worker = worker
        self._database = duckdb.connect(config={"threads": 1})
        self._database.execute(LOGGED)
        self._rows = self._database.appender("logged")

    def __enter__(self) -> "FileSet":
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def add(self, rows: Iterable[LoggedRow]) -> None:
        with as_os_error():
            values = map(values_of, rows)
            while batch := list(islice(values, BATCH)):
                self._rows.append_rows(batch)
                self._rows.flush()

    def finish(self, first: int, last: int) -> None:
        """Write the files; `first` and `last` are the sequence numbers in their names."""
        with as_os_error():
            for day, rows, gaps in self._database.execute(_DAYS).fetchall():
                self._write(day, rows, gaps, f"{self._worker}-{first:012d}-{last:012d}.parquet")

    def _write(self, day: int, rows: int, gaps: int, name: str) -> None:
        name_day = datetime.fromtimestamp(day * DAY_MS // 1000, UTC).date()
        directory = self._directory / f"date={name_day}"
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{self._worker}{_TMP}"
        values = {"day": day, "path": str(path), "version": VERSION, "rows": str(rows)}
        values |= {"gaps": str(gaps), "machine": self._machine, "worker": self._worker}
        try:
            self._database.execute(_COPY, values)
            publish(path, directory / name)
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def as_os_error() -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise OSError(None, str(error)) from error


def publish(path: Path, target: Path) -> None:
    """Sync a finished file and rename it to its final name."""
    sync(path)
    path.replace(target)
    sync(target.parent)


def files_of(directory: Path, first: date | None, last: date | None) -> list[Path]:
    """Return the files of the days from `first` to `last`, and of the adjacent days.

    A bid and its notices may be on different days. None for `first` or `last` sets no limit.
    """
    since = (first - timedelta(days=1)).isoformat() if first else ""
    until = (last + timedelta(days=1)).isoformat() if last else "9999-12-31"
    return [
        path
        for day in sorted(directory.glob("date=*"))
        if since <= day.name.removeprefix("date=") <= until
        for path in sorted(day.glob("*.parquet"))
    ]


def last_begun(directory: Path, worker: str, first: int) -> int | None:
    """Return the last row of an earlier conversion that began with row `first`.

    Both rows are given by their sequence numbers. None if no conversion began with that row.
    """
    for path in directory.glob(f"date=*/{worker}-{first:012d}-*.parquet"):
        name = _NAME.fullmatch(path.name)
        if name is not None:
            return int(name[2])
    return None


def remove_incomplete(directory: Path) -> None:
    """Remove the unfinished files of a killed writer."""
    for path in directory.glob(f"date=*/*{_TMP}"):
        path.unlink(missing_ok=True)
