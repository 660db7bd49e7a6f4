"""The text in an SSP's log: CSV (comma, semicolon, tab or bar), JSON Lines or Parquet.

Each may be gzipped; which it is, is told by the content. Values are columns of text, a batch of
lines at a time.
"""

import csv
import gzip
import io
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

BATCH: Final = 50_000  # lines that are columns at once

_MARK: Final = b"\xef\xbb\xbf"
_FIRST: Final = re.compile(rb"\s*[\[{]")
_DELIMITERS: Final = ",;\t|"


class LogError(ValueError):
    """A log that cannot be read at all; the text says why and what to name."""


class Lines(NamedTuple):
    """Some lines: their numbers from 1, a column of text for each name, lines without values."""

    numbers: list[int]
    columns: list[pa.Array]
    unreadable: list[int]


class Export(NamedTuple):
    """The names of a log's columns, and its lines."""

    names: list[str]
    batches: Iterator[Lines]


@contextmanager
def opened(path: Path) -> Iterator[Export]:
    """Open a log. Raises LogError or OSError, also while its lines are read."""
    with ExitStack() as stack:
        stream: Any = stack.enter_context(path.open("rb", buffering=0))
        head = stream.read(4)
        stream.seek(0)
        if head == b"PAR1":
            yield _parquet(stream)
            return
        if head[:2] == b"\x1f\x8b":
            stream = stack.enter_context(gzip.open(stream))
        buffered = stack.enter_context(io.BufferedReader(stream, 1 << 20))
        if _FIRST.match(buffered.peek(256).removeprefix(_MARK)):
            yield _json_lines(buffered)
        else:
            text = io.TextIOWrapper(buffered, "utf-8-sig", "replace", newline="")
            stack.callback(text.detach)
            yield _csv(text)


def _csv(text: io.TextIOWrapper) -> Export:
    first = text.readline()
    delimiter = max(_DELIMITERS, key=first.count)
    names = next(csv.reader([first], delimiter=delimiter), [])
    return Export(names, _csv_lines(csv.reader(text, delimiter=delimiter), len(names)))


def _csv_lines(reader: Any, width: int) -> Iterator[Lines]:
    numbers: list[int] = []
    rows: list[list[str]] = []
    unreadable: list[int] = []
    while True:
        try:
            for values in reader:
                if len(values) == width:
                    numbers.append(reader.line_num + 1)
                    rows.append(values)
                elif values:
                    unreadable.append(reader.line_num + 1)
                if len(numbers) + len(unreadable) >= BATCH:
                    yield _columns(numbers, rows, unreadable, width)
                    numbers, rows, unreadable = [], [], []
        except csv.Error:
            unreadable.append(reader.line_num + 1)
        else:
            yield _columns(numbers, rows, unreadable, width)
            return


def _columns(numbers: list[int], rows: list[Any], unreadable: list[int], width: int) -> Lines:
    columns = zip(*rows, strict=True) if rows else [()] * width
    return Lines(numbers, [pa.array(column, pa.string()) for column in columns], unreadable)


def _json_lines(stream: io.BufferedReader) -> Export:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    names: dict[str, None] = {}  # of the first lines: one alone may lack what is null
    first = stream.peek(1 << 20).removeprefix(_MARK)
    for line in first[: first.rfind(b"\n") + 1 or None].split(b"\n")[:1_000]:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            names |= dict.fromkeys(decode(line))
    if not names:
        raise LogError("the first lines are no JSON objects")

    def lines() -> Iterator[Lines]:
        numbers: list[int] = []
        rows: list[list[str | None]] = []
        unreadable: list[int] = []
        for number, line in enumerate(stream, 1):
            if number == 1:
                line = line.removeprefix(_MARK)
            if not line.strip():
                continue
            try:
                document = decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                unreadable.append(number)
            else:
                numbers.append(number)
                rows.append([_text(document.get(name)) for name in names])
            if len(numbers) + len(unreadable) >= BATCH:
                yield _columns(numbers, rows, unreadable, len(names))
                numbers, rows, unreadable = [], [], []
        yield _columns(numbers, rows, unreadable, len(names))

    return Export(list(names), lines())


def _text(value: Any) -> str | None:
    return value if value is None or type(value) is str else str(value)


def _parquet(stream: Any) -> Export:
    try:
        file = pq.ParquetFile(stream)
    except pa.ArrowException as error:
        raise LogError(str(error)) from error
    names = list(file.schema_arrow.names)

    def lines() -> Iterator[Lines]:
        first = 1
        try:
            for batch in file.iter_batches(BATCH):
                numbers = list(range(first, first + len(batch)))
                yield Lines(numbers, list(map(_as_text, batch.columns)), [])
                first += len(batch)
        except pa.ArrowException as error:
            raise LogError(str(error)) from error

    return Export(names, lines())


def _as_text(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    if pa.types.is_nested(kind):
        return pa.nulls(len(column), pa.string())
    return column.cast(pa.string())
