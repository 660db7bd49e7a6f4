"""Slots: memory-mapped files in which processes count, one file per process.

Each process claims one slot, a file `worker-N.metrics`, with a file lock that it holds until it
exits; the next process to claim the slot continues its counts, so they survive restarts. A slot is
a run of 64 KiB chunks, mapped one by one and never moved, each a sequence of entries

    key length (int64) | key, UTF-8, zero-padded to 8 bytes | value (int64)

ended by a length of 0. The key is the Prometheus sample name with sorted labels. Its length is
written last, and a value is written in one aligned 8-byte store. So readers in other processes
never see half an entry or half a number. A damaged slot is reset.

A histogram's entry `…_bucket{le="x"}` counts the values of that bucket alone, and `…_sum` is an
integer in units of 1/`resolution`; `exposition` converts both to the Prometheus format.
"""

import fcntl
import mmap
import os
import struct
import threading
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from snapbid.metrics._cells import Counter, Histogram
from snapbid.metrics.definitions import OVERFLOW, definition_of
from snapbid.metrics.keys import key_of

MAX_SERIES = 20_000
"""Limit on the entries in a slot; beyond it, `snapbid_metrics_overflow_total` counts instead."""

MAX_KEY = 1024

_CHUNK = 1 << 16
_MAGIC = b"SNAPMET1"
_HEADER = 16
_SLOTS = 1024


class Metrics:
    """This process's slot in a directory of slots.

    Raises OSError if the directory or a slot cannot be written.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._lock = threading.Lock()
        self._series: dict[str, Counter] = {}
        self._chunks: list[tuple[mmap.mmap, memoryview[int]]] = []
        self._end = _HEADER  # of the entries in the last chunk
        Path(directory).mkdir(parents=True, exist_ok=True)
        self.path, self._fd = _claim(Path(directory))
        try:
            self._load()
            self._overflow = self._counter(OVERFLOW)
        except BaseException:
            self.close()
            raise

    def counter(self, name: str, **labels: object) -> Counter:
        """Return the counter with these label values, always the same object.

        Once the slot is full, returns `snapbid_metrics_overflow_total` instead of a new counter.
        Raises ValueError for a name or labels that are not in `DEFINITIONS`.
        """
        definition_of("counter", name, labels)
        with self._lock:
            return self._counter(key_of(name, labels))

    def histogram(self, name: str, buckets: Sequence[float], **labels: object) -> Histogram:
        """Return a histogram with these upper bounds for its buckets, and `+Inf`.

        Raises ValueError for a name or labels that are not in `DEFINITIONS`, and if the bounds do
        not ascend.
        """
        definition = definition_of("histogram", name, labels)
        bounds = tuple(map(float, buckets))
        if any(low >= high for low, high in pairwise(bounds)):
            raise ValueError(f"{name}: histogram bounds must ascend")
        keys = [key_of(f"{name}_bucket", labels | {"le": le}) for le in map(repr, bounds)]
        keys += [key_of(f"{name}_bucket", labels | {"le": "+Inf"}), key_of(f"{name}_sum", labels)]
        with self._lock:
            *counters, total = map(self._counter, keys)
        if self._overflow in (*counters, total):
            spare = Counter(memoryview(array("q", [0])))
            return Histogram((), [self._overflow], spare, definition.resolution)
        return Histogram(bounds, counters, total, definition.resolution)

    def values(self, name: str) -> dict[str, int]:
        """Return the values of a labelled counter in this slot, by series key (see keys.py)."""
        with self._lock:
            return {
                key: counter.value
                for key, counter in self._series.items()
                if key.startswith(f"{name}{{")
            }

    def close(self) -> None:
        """Release the slot. Its counts remain, but its counters must no longer be used."""
        for counter in self._series.values():
            counter.release()
        for mapping, cells in self._chunks:
            cells.release()
            mapping.close()
        self._series, self._chunks = {}, []
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _load(self) -> None:
        size = os.fstat(self._fd).st_size
        content = os.pread(self._fd, size, 0)
        try:
            entries = list(_entries(content))
        except ValueError:
            os.ftruncate(self._fd, 0)
            size, entries = 0, []
        for _ in range(max(1, -(-size // _CHUNK))):
            self._map_chunk()
        self._chunks[0][0][: len(_MAGIC)] = _MAGIC
        self._end = _HEADER if len(self._chunks) == 1 else 0
        for key, offset in entries:
            chunk, within = divmod(offset, _CHUNK)
            self._series[key] = self._cell(chunk, within)
            if chunk == len(self._chunks) - 1:
                self._end = within + 8
        # A crash may have left a key without its length.
        self._chunks[-1][0][self._end :] = bytes(_CHUNK - self._end)

    def _map_chunk(self) -> None:
        offset = len(self._chunks) * _CHUNK
        # Space is reserved first: a store into a hole of a full disk would kill the process.
        os.posix_fallocate(self._fd, offset, _CHUNK)
        mapping = mmap.mmap(self._fd, _CHUNK, offset=offset)
        self._chunks.append((mapping, memoryview(mapping).cast("q")))

    def _cell(self, chunk: int, within: int) -> Counter:
        index = within >> 3
        return Counter(self._chunks[chunk][1][index : index + 1])

    def _counter(self, key: str) -> Counter:
        counter = self._series.get(key)
        if counter is not None:
            return counter
        text = key.encode()
        if len(self._series) >= MAX_SERIES or len(text) > MAX_KEY:
            return self._overflow
        padded = (len(text) + 7) & ~7
        if self._end + padded + 16 > _CHUNK:
            try:
                self._map_chunk()
            except OSError:
                return self._overflow
            self._end = 0
        mapping, cells = self._chunks[-1]
        start = self._end
        mapping[start + 8 : start + 8 + len(text)] = text
        self._end = start + 16 + padded
        cells[start >> 3] = len(text)
        self._series[key] = counter = self._cell(len(self._chunks) - 1, self._end - 8)
        return counter


def read(directory: str | os.PathLike[str]) -> dict[str, int]:
    """Sum up the values of all slots, by key. Unreadable slots are skipped."""
    sums: defaultdict[str, int] = defaultdict(int)
    for path in sorted(Path(directory).glob("worker-*.metrics")):
        try:
            content = path.read_bytes()
            values = [
                (key, struct.unpack_from("=q", content, at)[0]) for key, at in _entries(content)
            ]
        except (OSError, ValueError):
            continue
        for key, value in values:
            sums[key] += value
    return dict(sums)


def _claim(directory: Path) -> tuple[Path, int]:
    for number in range(_SLOTS):
        path = directory / f"worker-{number}.metrics"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            continue
        return path, fd
    raise OSError(f"{directory}: all {_SLOTS} metric slots are taken")


def _entries(content: bytes) -> Iterator[tuple[str, int]]:
    """Yield the key and the value's offset of each entry. Raises ValueError for a damaged slot."""
    if content and content[: len(_MAGIC)] not in (_MAGIC, bytes(len(_MAGIC))):
        raise ValueError("not a metric slot")
    for start in range(0, len(content), _CHUNK):
        offset = start or _HEADER
        end = min(start + _CHUNK, len(content))
        while offset + 8 <= end:
            (length,) = struct.unpack_from("=q", content, offset)
            if length == 0:
                break
            value = offset + 8 + ((length + 7) & ~7)
            if not 0 < length <= MAX_KEY or value + 8 > end:
                raise ValueError("damaged metric slot")
            yield content[offset + 8 : offset + 8 + length].decode(), value
            offset = value + 8
