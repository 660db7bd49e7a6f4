"""What an SSP's log says: a claim per line, however the SSP exports it (contract 11).

CSV (comma, semicolon, tab or bar), JSON Lines or Parquet, each plain or gzipped; which it is, is
told by the content. Columns have names that are guessed, or are named by the operator.
"""

import csv
import gzip
import io
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

WIN: Final = "win"
BILLING: Final = "billing"
LOSS: Final = "loss"
BID: Final = "bid"

FIELDS: Final[Mapping[str, tuple[str, ...]]] = {  # what columns are called, the likeliest first
    "auction": ("auctionid", "bidrequestid", "requestid", "transactionid", "auction", "aid", "id"),
    "imp": ("impid", "impressionid", "imp", "slotid"),
    "time": ("time", "timestamp", "ts", "eventtime", "datetime", "date", "createdat"),
    "price": ("price", "clearingprice", "clearprice", "winprice", "auctionprice", "settlementprice",
              "pricecpm", "cpm", "amount", "cost"),
    "currency": ("currency", "cur"),
    "kind": ("kind", "event", "eventtype", "type", "notice"),
    "ssp": ("descriptor", "ssp", "sspid", "endpoint"),
}  # fmt: skip
KINDS: Final = {
    **dict.fromkeys(("win", "wins", "won", "nurl"), WIN),
    **dict.fromkeys(("billing", "bill", "billed", "burl", "imp", "impression", "view"), BILLING),
    **dict.fromkeys(("loss", "lost", "losses", "lurl"), LOSS),
    **dict.fromkeys(("bid", "bids", "response"), BID),
}
SCALES: Final = {"cpm": 1_000_000, "impression": 1_000_000_000, "micros": 1}  # to micros of a CPM

_MARK: Final = b"\xef\xbb\xbf"
_FIRST: Final = re.compile(rb"\s*[\[{]")
_DELIMITERS: Final = ",;\t|"


class LogError(ValueError):
    """A log that cannot be read at all; the text says why and what to name."""


class Claim(NamedTuple):
    """A line. `price`: in millionths of its currency, a CPM. `mistake`: what is wrong with it."""

    line: int
    kind: str
    auction: str
    imp: str | None
    time_ms: int | None
    price: int | None
    currency: str
    descriptor: str | None
    mistake: str


class Form(NamedTuple):
    """How to read a log: names of columns by field, and what stands where a column is missing."""

    columns: Mapping[str, str]
    kind: str = WIN
    currency: str = "USD"
    scale: int = SCALES["cpm"]


def read(path: Path, form: Form) -> Iterator[Claim]:
    """Yield the claims of a log, by line from 1. Raises LogError or OSError."""
    with ExitStack() as stack:
        stream: Any = stack.enter_context(path.open("rb", buffering=0))
        head = stream.read(4)
        stream.seek(0)
        if head == b"PAR1":
            names, rows = _parquet(path)
        else:
            if head[:2] == b"\x1f\x8b":
                stream = stack.enter_context(gzip.open(stream))
            buffered = stack.enter_context(io.BufferedReader(stream, 1 << 20))
            is_json = _FIRST.match(buffered.peek(256).removeprefix(_MARK))
            if is_json:
                names, rows = _json_lines(buffered)
            else:
                text = io.TextIOWrapper(buffered, "utf-8-sig", "replace", newline="")
                stack.callback(text.detach)
                names, rows = _csv(text)
        yield from _claims(rows, _places(names, form.columns), form)


def _places(names: list[str], columns: Mapping[str, str]) -> dict[str, int]:
    """Where each field stands. Raises LogError."""
    places = {}
    plain: dict[str, int] = {}
    for at, name in enumerate(names):
        plain.setdefault(re.sub(r"[^a-z0-9]", "", name.lower()), at)
    for field, guesses in FIELDS.items():
        if field in columns:
            if columns[field] not in names:
                raise LogError(f"there is no column {columns[field]!a} among {', '.join(names)}")
            places[field] = names.index(columns[field])
        else:
            guessed = next((plain[guess] for guess in guesses if guess in plain), None)
            if guessed is not None and guessed not in places.values():
                places[field] = guessed
    if "auction" not in places:
        raise LogError(f"which column has auction ids? --column auction=NAME ({', '.join(names)})")
    return places


Row = tuple[int, list[Any] | None]  # line and values; None where it could not be read


def _csv(text: io.TextIOWrapper) -> tuple[list[str], Iterator[Row]]:
    first = text.readline()
    delimiter = max(_DELIMITERS, key=first.count)
    names = next(csv.reader([first], delimiter=delimiter), [])
    reader = csv.reader(text, delimiter=delimiter)

    def rows() -> Iterator[Row]:
        while True:
            try:
                values = next(reader)
            except StopIteration:
                return
            except csv.Error:
                yield reader.line_num + 1, None
                continue
            if values:
                yield reader.line_num + 1, values if len(values) == len(names) else None

    return names, rows()


def _json_lines(stream: io.BufferedReader) -> tuple[list[str], Iterator[Row]]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    names: dict[str, None] = {}  # of the first lines: one alone may lack what is null
    first = stream.peek(1 << 20).removeprefix(_MARK)
    for line in first[: first.rfind(b"\n") + 1 or None].split(b"\n")[:1_000]:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            names |= dict.fromkeys(decode(line))
    if not names:
        raise LogError("the first lines are no JSON objects")

    def rows() -> Iterator[Row]:
        for number, line in enumerate(stream, 1):
            if number == 1:
                line = line.removeprefix(_MARK)
            if line.strip():
                try:
                    document = decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    yield number, None
                else:
                    yield number, [document.get(name) for name in names]

    return list(names), rows()


def _parquet(path: Path) -> tuple[list[str], Iterator[Row]]:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)

    def rows() -> Iterator[Row]:
        number = 0
        for batch in file.iter_batches(20_000):
            columns = [column.to_pylist() for column in batch.columns]
            for values in zip(*columns, strict=True):
                number += 1
                yield number, list(values)

    return list(file.schema_arrow.names), rows()


def _claims(rows: Iterator[Row], places: Mapping[str, int], form: Form) -> Iterator[Claim]:
    own = [places.get(name) for name in FIELDS]
    auction_at, imp_at, time_at, price_at, currency_at, kind_at, ssp_at = own
    for line, values in rows:
        if values is None:
            yield Claim(line, form.kind, "", None, None, None, "", None, "cannot be read")
            continue
        mistake = ""
        auction = _text(values[auction_at]) if auction_at is not None else ""
        imp = _text(values[imp_at]) or None if imp_at is not None else None
        kind: str | None = form.kind
        if kind_at is not None:
            kind = KINDS.get(_text(values[kind_at]).lower())
        time_ms = price = None
        try:
            if time_at is not None:
                time_ms = _time_ms(values[time_at])
            if price_at is not None:
                price = _price(values[price_at], form.scale)
        except (ValueError, OverflowError) as error:
            mistake = str(error)
        currency = _text(values[currency_at]).upper() if currency_at is not None else ""
        descriptor = _text(values[ssp_at]) if ssp_at is not None else None
        if not auction:
            mistake = "has no auction id"
        elif kind is None:
            mistake = f"is of an unknown kind, {_text(values[kind_at])[:40]!a}"  # type: ignore[index]
        yield Claim(
            line, kind or form.kind, auction, imp, time_ms, price, currency or form.currency,
            descriptor, mistake,
        )  # fmt: skip


def _text(value: Any) -> str:
    return value.strip() if type(value) is str else "" if value is None else str(value)


def _price(value: Any, scale: int) -> int | None:
    if value is None or value == "":
        return None
    text = str(value).strip()
    if "," in text and "." not in text:
        text = text.replace(",", ".")
    try:
        return round(float(text) * scale)
    except ValueError:
        raise ValueError(f"has no price, but {text[:40]!a}") from None


def _time_ms(value: Any) -> int | None:
    """Epoch seconds, ms, µs or ns, told by their size, or RFC 3339; without a zone it is UTC."""
    if value is None or value == "":
        return None
    if isinstance(value, datetime):
        return round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)
    try:
        number = float(value)
    except ValueError:
        try:
            moment = datetime.fromisoformat(value.strip().removesuffix(" UTC"))
        except ValueError:
            raise ValueError(f"has no time, but {str(value)[:40]!a}") from None
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if not 0 < number < 1e20:
        raise ValueError(f"has no time, but {str(value)[:40]!a}")
    for size, per_ms in ((1e17, 1e6), (1e14, 1e3), (1e11, 1)):
        if number >= size:
            return round(number / per_ms)
    return round(number * 1000)
