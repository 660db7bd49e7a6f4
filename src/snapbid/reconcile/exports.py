"""The text in an SSP's log: CSV (comma, semicolon, tab or bar), JSON Lines or Parquet.

Each may be gzipped; which it is, is told by the content. Values are columns of text, a batch of
lines at a time. A log may come from anybody: its lines, columns and size are bounded.
"""

import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

BATCH: Final = 50_000  # lines that are columns at once
MOST_BYTES: Final = 16 << 30  # decompressed
MOST_OF_LINE: Final = 1 << 20  # characters, or bytes
MOST_OF_BATCH: Final = 256 << 20  # of a column in Parquet, whose texts may be repeated
MOST_COLUMNS: Final = 1_000
NOT_UTF8: Final = "are not UTF-8: convert them (iconv -f latin1 -t utf-8), their ids may not fit"
MARKED: Final = "begin with a second byte order mark, which is ignored"

_MARK: Final = b"\xef\xbb\xbf"
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_REPLACED: Final = "\N{REPLACEMENT CHARACTER}"
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
    """The names of a log's columns, its lines, and how many of these are odd in which way."""

    names: list[str]
    batches: Iterator[Lines]
    odd: Counter[str]


class _Bounded(io.RawIOBase):
    """A stream that refuses to give more than `MOST_BYTES`."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._left = MOST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self._stream.readinto(buffer)
        self._left -= count
        if self._left < 0:
            raise LogError(f"it is over {MOST_BYTES >> 30} GiB, decompressed")
        return count


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
        bounded: Any = _Bounded(stream)
        buffered = stack.enter_context(io.BufferedReader(bounded, 1 << 20))
        if buffered.peek(2)[:2] in _UTF16 or b"\0" in buffered.peek(256)[:4]:
            raise LogError("it is UTF-16: convert it to UTF-8 (iconv -f utf-16 -t utf-8)")
        if _FIRST.match(_unmarked(buffered.peek(256))):
            yield _json_lines(buffered)
        else:
            text = io.TextIOWrapper(buffered, "utf-8-sig", "replace", newline="")
            stack.callback(text.detach)
            yield _csv(text)


def _csv(text: io.TextIOWrapper) -> Export:
    odd: Counter[str] = Counter()
    lines = _lines_of(text, odd)
    first = next(lines, "")
    delimiter = max(_DELIMITERS, key=first.count)
    names = next(csv.reader([first], delimiter=delimiter), [])
    _check_columns(names)
    reader = csv.reader(lines, delimiter=delimiter)
    return Export(names, _csv_lines(reader, len(names), odd), odd)


def _lines_of(text: io.TextIOWrapper, odd: Counter[str]) -> Iterator[str]:
    """The lines of a text, without marks before them. Raises LogError."""
    while line := text.readline(MOST_OF_LINE + 1):
        if len(line) > MOST_OF_LINE:
            raise LogError(f"a line is over {MOST_OF_LINE >> 20} MiB")
        if line[0] == "\ufeff":
            odd[MARKED] += 1
            line = line.lstrip("\ufeff")
        yield line


def _check_columns(names: list[str]) -> None:
    if len(names) > MOST_COLUMNS:
        raise LogError(f"it has {len(names)} columns, {MOST_COLUMNS} at most")


def _csv_lines(reader: Any, width: int, odd: Counter[str]) -> Iterator[Lines]:
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
                    yield _noted(_columns(numbers, rows, unreadable, width), odd)
                    numbers, rows, unreadable = [], [], []
        except csv.Error:
            unreadable.append(reader.line_num + 1)
        else:
            yield _noted(_columns(numbers, rows, unreadable, width), odd)
            return


def _noted(lines: Lines, odd: Counter[str]) -> Lines:
    """The lines, once it is noted how many of them were no UTF-8."""
    masks = [pc.match_substring(column, _REPLACED) for column in lines.columns]
    if any(pc.any(mask, min_count=0).as_py() for mask in masks):
        odd[NOT_UTF8] += max(pc.sum(mask).as_py() or 0 for mask in masks)
    return lines


def _columns(numbers: list[int], rows: list[Any], unreadable: list[int], width: int) -> Lines:
    columns = zip(*rows, strict=True) if rows else [()] * width
    return Lines(numbers, [pa.array(column, pa.string()) for column in columns], unreadable)


def _json_lines(stream: io.BufferedReader) -> Export:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    names: dict[str, None] = {}  # of the first lines: one alone may lack what is null
    odd: Counter[str] = Counter()
    first = _unmarked(stream.peek(1 << 20))
    for line in first[: first.rfind(b"\n") + 1 or None].split(b"\n")[:1_000]:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            names |= dict.fromkeys(decode(line))
    if not names:
        raise LogError("the first lines are no JSON objects")
    _check_columns(list(names))

    def lines() -> Iterator[Lines]:
        numbers: list[int] = []
        rows: list[list[str | None]] = []
        unreadable: list[int] = []
        number = 0
        while line := stream.readline(MOST_OF_LINE + 1):
            number += 1
            if len(line) > MOST_OF_LINE:
                raise LogError(f"line {number} is over {MOST_OF_LINE >> 20} MiB")
            if line.startswith(_MARK):
                odd[MARKED] += number > 1 or line.startswith(_MARK * 2)
                line = _unmarked(line)
            if not line.strip():
                continue
            try:
                document = decode(line)
            except UnicodeDecodeError:
                odd[NOT_UTF8] += 1
                unreadable.append(number)
            except msgspec.DecodeError:
                unreadable.append(number)
            else:
                numbers.append(number)
                rows.append([_text(document.get(name)) for name in names])
            if len(numbers) + len(unreadable) >= BATCH:
                yield _columns(numbers, rows, unreadable, len(names))
                numbers, rows, unreadable = [], [], []
        yield _columns(numbers, rows, unreadable, len(names))

    return Export(list(names), lines(), odd)


def _unmarked(text: bytes) -> bytes:
    """A text without the byte order marks before it."""
    while text.startswith(_MARK):
        text = text.removeprefix(_MARK)
    return text


def _text(value: Any) -> str | None:
    return value if value is None or type(value) is str else str(value)


def _parquet(stream: Any) -> Export:
    try:
        schema = pq.read_schema(stream)
        texts = [field.name for field in schema if pa.types.is_string(field.type)]
        file = pq.ParquetFile(stream, read_dictionary=texts)
    except pa.ArrowException as error:
        raise LogError(str(error)) from error
    names = list(file.schema_arrow.names)
    _check_columns(names)
    groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
    size = sum(group.total_byte_size for group in groups)
    if max(size, file.metadata.num_rows * len(names)) > MOST_BYTES:
        raise LogError(f"it is over {MOST_BYTES >> 30} GiB, decompressed")

    def lines() -> Iterator[Lines]:
        first = 1
        try:
            for batch in file.iter_batches(BATCH):
                numbers = list(range(first, first + len(batch)))
                yield Lines(numbers, list(map(_as_text, batch.columns)), [])
                first += len(batch)
        except pa.ArrowException as error:
            raise LogError(str(error)) from error

    return Export(names, lines(), Counter())


def _as_text(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type):
        lengths = pc.binary_length(column.dictionary).take(column.indices)
        if (pc.sum(lengths).as_py() or 0) > MOST_OF_BATCH:
            raise LogError(f"{BATCH} lines have over {MOST_OF_BATCH >> 20} MiB in a column")
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    if pa.types.is_nested(kind):
        return pa.nulls(len(column), pa.string())
    return column.cast(pa.string())
