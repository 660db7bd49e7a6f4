"""Reads the values of an SSP's log as text, from CSV, JSON Lines or Parquet.

CSV may be separated by commas, semicolons, tabs or vertical bars. CSV and JSON Lines may be
gzipped. The format is detected from the content. Logs are untrusted: their lines, columns and size
are limited.
"""

import csv
import glob
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import duckdb
import msgspec

MOST_BYTES: Final = 16 << 30  # decompressed
MOST_OF_LINE: Final = 1 << 20  # characters, or bytes
MOST_OF_VALUE: Final = 64 << 10  # in Parquet, where one stored text may occur in many rows
MOST_COLUMNS: Final = 1_000
MOST_ABOVE: Final = 20  # lines of a CSV that are searched for the column names
NOT_UTF8: Final = (
    "are not UTF-8: convert them (iconv -f latin1 -t utf-8), or their ids may not match"
)
MARKED: Final = "begin with a second byte order mark, which is ignored"

_MARK: Final = b"\xef\xbb\xbf"
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_REPLACED: Final = "\N{REPLACEMENT CHARACTER}"
_FIRST: Final = re.compile(rb"\s*[\[{]")
_REFUSED: Final = {  # how a file begins -> what it is, and what to do
    b"PK\x03\x04": "a ZIP archive or an Excel workbook: unpack it, or save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "an Excel workbook: save the sheet as CSV",
    b"BZh": "compressed by bzip2: unpack it (bunzip2)",
    b"\xfd7zXZ": "compressed by xz: unpack it (unxz)",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: unpack it (unzstd)",
    b"%PDF": "a PDF document: ask for CSV, JSON Lines or Parquet",
    b"<": "HTML or XML: ask for CSV, JSON Lines or Parquet",
}
_decoded: Final = msgspec.json.Decoder(dict[str, Any]).decode
_DELIMITERS: Final = ",;\t|"
_SEPARATOR: Final = re.compile(r'"?sep=.?"?\s*$')  # for Excel, above the names

_SIZE: Final = """
SELECT coalesce(sum(total_uncompressed_size), 0), any_value(num_rows)
FROM parquet_file_metadata($1), parquet_metadata($1)
"""

Line: TypeAlias = tuple[int, Sequence[str] | None]
"""A line's number, from 1, and its values; None if it cannot be read."""


class LogError(ValueError):
    """A log cannot be read at all; the text says why and what to do."""


def _too_large() -> LogError:
    return LogError(f"it is over {MOST_BYTES >> 30} GiB, decompressed: split it")


class Export(NamedTuple):
    """The columns and lines of a log; `odd` counts unusual lines by what is unusual about them."""

    names: list[str]
    lines: Iterator[Line]
    odd: Counter[str]


class _Bounded(io.RawIOBase):
    """A stream that raises LogError beyond `MOST_BYTES`, or if its compression is damaged."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._left = MOST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            count: int = self._stream.readinto(buffer)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise LogError(
                "its gzip data is damaged or cut short: ask for the file again"
            ) from error
        self._left -= count
        if self._left < 0:
            raise _too_large()
        return count


@contextmanager
def opened(path: Path, is_heading: Callable[[list[str]], bool]) -> Iterator[Export]:
    """Open a log. Raises LogError or OSError, either here or while its lines are read.

    `is_heading` recognises a CSV's column names; lines before them, such as a title, are skipped.
    """
    with ExitStack() as stack:
        stream: Any = stack.enter_context(path.open("rb", buffering=0))
        head = stream.read(4)
        stream.seek(0)
        if head == b"PAR1":
            yield _parquet(stack.enter_context(duckdb.connect(config={"threads": 1})), path)
            return
        if head[:2] == b"\x1f\x8b":
            stream = stack.enter_context(gzip.open(stream))
        bounded: Any = _Bounded(stream)
        buffered = stack.enter_context(io.BufferedReader(bounded, 1 << 20))
        if buffered.peek(2)[:2] in _UTF16 or b"\0" in buffered.peek(256)[:4]:
            raise LogError("it is UTF-16: convert it to UTF-8 (iconv -f utf-16 -t utf-8)")
        begin = _unmarked(buffered.peek(256))
        for magic, what in _REFUSED.items():
            if begin.lstrip().startswith(magic):
                raise LogError(f"it is {what}")
        if _FIRST.match(begin):
            names = _names_of_json(buffered)
            stream.seek(0)
            again: Any = _Bounded(stream)
            yield _json_lines(stack.enter_context(io.BufferedReader(again, 1 << 20)), names)
        else:
            text = io.TextIOWrapper(buffered, "utf-8-sig", "replace", newline="")
            stack.callback(text.detach)
            yield _csv(text, is_heading)


class _Heading(NamedTuple):
    """The column names of a CSV."""

    names: list[str]
    delimiter: str
    end: int  # number of lines before the first line of values


def _csv(text: io.TextIOWrapper, is_heading: Callable[[list[str]], bool]) -> Export:
    odd: Counter[str] = Counter()
    lines = _lines_of(text, odd)
    above = list(islice(lines, MOST_ABOVE))
    headings = [_heading(above, at) for at, line in enumerate(above) if not _is_empty(line)]
    first = headings[0] if headings else _Heading([], ",", 0)
    heading = next((each for each in headings if is_heading(each.names)), first)
    _check_columns(heading.names)
    reader = csv.reader(chain(above[heading.end :], lines), delimiter=heading.delimiter)
    return Export(heading.names, _csv_lines(reader, len(heading.names), heading.end), odd)


def _is_empty(line: str) -> bool:
    return not line.strip(_DELIMITERS + " \r\n") or _SEPARATOR.match(line) is not None


def _heading(lines: list[str], at: int) -> _Heading:
    """Read column names from the line at an index; a quoted name may span several lines."""
    delimiter = max(_DELIMITERS, key=lines[at].count)
    reader = csv.reader(lines[at:], delimiter=delimiter)
    names: list[str] = []
    with suppress(csv.Error):
        names = next(reader, [])
    return _Heading(names, delimiter, at + reader.line_num)


def _lines_of(text: io.TextIOWrapper, odd: Counter[str]) -> Iterator[str]:
    """Yield the lines of `text` without byte order marks. Raises LogError if a line is too long."""
    while line := text.readline(MOST_OF_LINE + 1):
        if len(line) > MOST_OF_LINE:
            raise LogError(f"a line is over {MOST_OF_LINE >> 20} MiB: write one record per line")
        if line[0] == "\ufeff":
            odd[MARKED] += 1
            line = line.lstrip("\ufeff")
        if _REPLACED in line:
            odd[NOT_UTF8] += 1
        yield line


def _check_columns(names: list[str]) -> None:
    if len(names) > MOST_COLUMNS:
        raise LogError(
            f"it has {len(names)} columns; at most {MOST_COLUMNS} are allowed: leave some out"
        )


def _csv_lines(reader: Any, width: int, head: int) -> Iterator[Line]:
    while True:
        try:
            for values in reader:
                if values:
                    # A line may end with delimiters that the heading lacks.
                    is_whole = len(values) >= width and not any(values[width:])
                    yield reader.line_num + head, values if is_whole else None
        except csv.Error:
            yield reader.line_num + head, None
        else:
            return


def _names_of_json(stream: io.BufferedReader) -> list[str]:
    """Collect the field names from all lines, since a line may omit null fields and defaults."""
    names: dict[str, None] = {}
    first = _unmarked(stream.peek(1 << 20))
    for line in first[: first.rfind(b"\n") + 1 or None].split(b"\n")[:1_000]:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            names |= dict.fromkeys(_decoded(line))
    if not names:
        if first.lstrip().startswith(b"["):
            raise LogError("it is a JSON array: write one object per line (jq -c '.[]')")
        raise LogError("the first lines are not JSON objects: write one object per line")
    _check_columns(list(names))
    for _, line in _numbered(stream):
        try:
            found = _decoded(_unmarked(line)).keys()
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if not names.keys() >= found:
            names |= dict.fromkeys(found)
            _check_columns(list(names))
    return list(names)


def _json_lines(stream: io.BufferedReader, names: list[str]) -> Export:
    odd: Counter[str] = Counter()

    def lines() -> Iterator[Line]:
        for number, line in _numbered(stream):
            if line.startswith(_MARK):
                odd[MARKED] += number > 1 or line.startswith(_MARK * 2)
                line = _unmarked(line)
            if not line.strip():
                continue
            try:
                document = _decoded(line)
            except UnicodeDecodeError:
                odd[NOT_UTF8] += 1
                yield number, None
            except msgspec.DecodeError:
                yield number, None
            else:
                yield number, [_text(document.get(name)) for name in names]

    return Export(names, lines(), odd)


def _numbered(stream: io.BufferedReader) -> Iterator[tuple[int, bytes]]:
    """Yield lines with their numbers. Raises LogError if one is too long."""
    number = 0
    while line := stream.readline(MOST_OF_LINE + 1):
        number += 1
        if len(line) > MOST_OF_LINE:
            raise LogError(
                f"line {number} is over {MOST_OF_LINE >> 20} MiB: write one record per line"
            )
        yield number, line


def _unmarked(text: bytes) -> bytes:
    """Remove leading byte order marks."""
    while text.startswith(_MARK):
        text = text.removeprefix(_MARK)
    return text


def _text(value: Any) -> str:
    return value if type(value) is str else "" if value is None else str(value)


def _parquet(database: Any, path: Path) -> Export:
    source = "read_parquet($1, hive_partitioning = false)"
    named = [glob.escape(str(path))]
    try:
        database.execute("SET TimeZone = 'UTC'")
        columns = database.execute(f"DESCRIBE FROM {source}", named).fetchall()
        names = [name for name, *_ in columns]
        _check_columns(names)
        size, rows = database.execute(_SIZE, named).fetchone()
        if max(size, rows * len(names)) > MOST_BYTES:
            raise _too_large()
        texts = ", ".join(_text_of(name, kind) for name, kind, *_ in columns)
        found = database.execute(f"SELECT {texts} FROM {source}", named)
    except duckdb.Error as error:
        raise LogError(str(error)) from error

    def lines() -> Iterator[Line]:
        number = 0
        try:
            while rows := found.fetchmany(1_000):
                yield from enumerate(rows, number + 1)
                number += len(rows)
        except duckdb.Error as error:
            raise LogError(str(error)) from error

    return Export(names, lines(), Counter())


def _text_of(name: str, kind: str) -> str:
    """Return the SQL expression that converts a column to text.

    Nested values become an empty string; times without a zone are taken as UTC.
    """
    column = '"' + name.replace('"', '""') + '"'
    if kind.endswith(("]", ")")) and not kind.startswith("DECIMAL"):
        return "''"
    if kind.startswith("TIMESTAMP"):
        column = f"strftime({column}::TIMESTAMP, '%Y-%m-%dT%H:%M:%S.%fZ')"
    elif kind == "BLOB":
        column = f"try(decode({column}))"
    too_long = f"error('a value is over {MOST_OF_VALUE >> 10} KiB')"
    return (
        f"CASE WHEN strlen({column}::VARCHAR) > {MOST_OF_VALUE} THEN {too_long} "
        f"ELSE coalesce({column}::VARCHAR, '') END"
    )
