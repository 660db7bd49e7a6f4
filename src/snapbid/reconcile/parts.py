"""Splits what does not fit into memory by auction, into parts on disk."""

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

PARTS: Final = 32


class Parts:
    """Rows of one schema with a column `auction`; all of an auction are in one part.

    First everything is added, then parts are read; close it when done.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._directory = TemporaryDirectory(prefix="snapbid-reconcile-")
        self._path = str(Path(self._directory.name, "parts.arrow"))
        self._sink = pa.OSFile(self._path, "wb")
        self._writer = pa.ipc.new_file(self._sink, schema)
        self._written = 0
        self._places: list[list[int]] = [[] for _ in range(PARTS)]  # the numbers of batches
        self._reader: pa.ipc.RecordBatchFileReader | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows that have an auction."""
        ids = batch["auction"].cast(pa.binary()).to_pylist()
        parts = pa.array([crc32(each) % PARTS for each in ids], pa.uint8())
        counts = {entry["values"]: entry["counts"] for entry in parts.value_counts().to_pylist()}
        ordered, start = batch.take(pc.sort_indices(parts)), 0
        for part in sorted(counts):
            self._writer.write_batch(ordered.slice(start, counts[part]))
            start += counts[part]
            self._places[part].append(self._written)
            self._written += 1

    def read(self, part: int) -> pa.RecordBatch:
        """The rows of a part, in the order in which they were added."""
        if self._reader is None:
            self._finish()
            self._reader = pa.ipc.open_file(pa.OSFile(self._path))
        return joined(map(self._reader.get_batch, self._places[part]), self._schema)

    def _finish(self) -> None:
        if not self._sink.closed:
            self._writer.close()
            self._sink.close()

    def close(self) -> None:
        self._finish()
        self._reader = None
        self._directory.cleanup()


def joined(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Batches of a schema as one."""
    return pa.concat_batches([pa.RecordBatch.from_pylist([], schema=schema), *batches])
