"""What an SSP's log says: a claim per line, however the SSP exports it (contract 11).

Columns have names that are guessed, or are named by the operator. Claims are columns of CLAIMS, a
batch at a time; what has the usual form is read in columns, and the rest value by value.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from snapbid.reconcile.exports import Lines, LogError, opened

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

CLAIMS: Final = pa.schema(
    [
        ("line", pa.int64()),
        ("kind", pa.string()),
        ("auction", pa.string()),
        ("imp", pa.string()),
        ("time_ms", pa.int64()),
        ("price", pa.int64()),
        ("currency", pa.string()),
        ("descriptor", pa.string()),
        ("mistake", pa.string()),
    ]
)

_NUMBER: Final = r"^\d{1,19}(\.\d*)?$"
_ZONE: Final = r"(Z|[+-]\d\d:?\d\d)$"
_MOMENT: Final = r"^(19[7-9]\d|20\d\d)-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?$"
_MOST_PRICE: Final = 1e15  # micros of a CPM


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

    columns: Mapping[str, str]  # "": no column, whatever could be guessed
    kind: str = WIN
    currency: str = "USD"
    scale: int = SCALES["cpm"]
    zone: tzinfo = UTC  # of times that say none


class Seen:
    """What was seen of a log: names of columns by field, those of no use, and what is odd."""

    def __init__(self) -> None:
        self.columns: dict[str, str] = {}
        self.unused: list[str] = []
        self.notes: list[str] = []


def read(path: Path, form: Form, seen: Seen | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the claims of a log, by line from 1; note what is seen. Raises LogError or OSError."""
    seen = Seen() if seen is None else seen
    with opened(path) as export:
        places = _places(export.names, form.columns)
        is_first = True
        for lines in export.batches:
            if is_first:
                _drop_wrong_guesses(lines, places, form, export.names, seen)
                seen.columns = {field: export.names[at] for field, at in places.items()}
                seen.unused = [
                    name for at, name in enumerate(export.names) if at not in places.values()
                ]
                is_first = False
            yield _claims(lines, places, form)
            if lines.unreadable:
                yield _unreadable(lines.unreadable, form)
        seen.notes += [f"{count} lines {what}" for what, count in export.odd.items()]


def _drop_wrong_guesses(
    lines: Lines, places: dict[str, int], form: Form, names: list[str], seen: Seen
) -> None:
    """Take a guessed column for what it is only where one of the first values can be read so."""
    for field, is_right in _TELLS.items():
        if field not in places or field in form.columns:
            continue
        texts = lines.columns[places[field]].unique().drop_null().to_pylist()
        texts = [text.strip() for text in texts if text.strip()]
        if texts and not any(map(is_right, texts)):
            name = names[places.pop(field)]
            seen.notes.append(f"the column {name!a} has no {field} that can be read")


def of_batch(batch: pa.RecordBatch) -> Iterator[Claim]:
    """The claims of a batch, one by one."""
    columns = (column.to_pylist() for column in batch.columns)
    return map(Claim._make, zip(*columns, strict=True))


def _places(names: list[str], columns: Mapping[str, str]) -> dict[str, int]:
    """Where each field stands. Raises LogError."""
    places = {}
    plain: dict[str, int] = {}
    for at, name in enumerate(names):
        plain.setdefault(re.sub(r"[^a-z0-9]", "", name.lower()), at)
    for field, guesses in FIELDS.items():
        if columns.get(field) == "":
            continue
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


def _claims(lines: Lines, places: Mapping[str, int], form: Form) -> pa.RecordBatch:
    size = len(lines.numbers)
    texts = {
        field: pc.fill_null(pc.utf8_trim_whitespace(lines.columns[at]), "")
        for field, at in places.items()
    }
    mistakes: dict[int, str] = {}
    columns = {
        "line": pa.array(lines.numbers, pa.int64()),
        "kind": _same(form.kind, size),
        "auction": texts["auction"],
        "imp": _none_if_empty(texts["imp"]) if "imp" in texts else None,
        "time_ms": _times(texts["time"], form.zone, mistakes) if "time" in texts else None,
        "price": _prices(texts["price"], form.scale, mistakes) if "price" in texts else None,
        "currency": _same(form.currency, size),
        "descriptor": texts.get("ssp"),
    }
    if "currency" in texts:
        columns["currency"] = _each_value(texts["currency"], lambda text: text.upper() or None)
        columns["currency"] = pc.fill_null(columns["currency"], form.currency)
    if "kind" in texts:
        kinds = _each_value(texts["kind"], lambda text: KINDS.get(text.lower()))
        columns["kind"] = pc.fill_null(kinds, form.kind)
        for at in _where(pc.is_null(kinds)):
            mistakes[at] = f"is of an unknown kind, {texts['kind'][at].as_py()[:40]!a}"
    for at in _where(pc.equal(texts["auction"], "")):
        mistakes[at] = "has no auction id"
    columns["mistake"] = _replaced(_same("", size), mistakes)
    arrays = [
        pa.nulls(size, field.type) if (column := columns[field.name]) is None else column
        for field in CLAIMS
    ]
    return pa.record_batch(arrays, schema=CLAIMS)


def _unreadable(numbers: list[int], form: Form) -> pa.RecordBatch:
    rows = [
        Claim(number, form.kind, "", None, None, None, "", None, "cannot be read")._asdict()
        for number in numbers
    ]
    return pa.RecordBatch.from_pylist(rows, schema=CLAIMS)


# -- columns -------------------------------------------------------------------------------------


def _same(value: str, size: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), size)


def _none_if_empty(texts: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def _each_value(texts: pa.Array, change: Callable[[str], str | None]) -> pa.Array:
    """Change texts that are repeated often."""
    encoded = texts.dictionary_encode()
    changed = [change(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(changed, pa.string()).take(encoded.indices)


def _where(mask: pa.Array) -> list[int]:
    places: list[int] = pc.indices_nonzero(mask).to_pylist()
    return places


def _replaced(column: pa.Array, values: Mapping[int, object]) -> pa.Array:
    """A column with some values replaced, by place."""
    if not values:
        return column
    mask = pc.is_in(pa.array(range(len(column))), value_set=pa.array(values, pa.int64()))
    replacements = [values[at] for at in sorted(values)]
    return pc.replace_with_mask(column, mask, pa.array(replacements, column.type))


def _odd_ones(
    texts: pa.Array,
    usual: pa.Array,
    change: Callable[[str], int | None],
    mistakes: dict[int, str],
) -> pa.Array:
    """What was read in columns, with what was not read one by one."""
    values: dict[int, int | None] = {}
    for at in _where(pc.and_(pc.is_null(usual), pc.not_equal(texts, ""))):
        values[at] = None
        try:
            values[at] = change(texts[at].as_py())
        except (ValueError, OverflowError) as error:
            mistakes.setdefault(at, str(error))
    return _replaced(usual, values)


def _only(texts: pa.Array, mask: pa.Array) -> pa.Array:
    return pc.if_else(mask, texts, pa.scalar(None, pa.string()))


def _prices(texts: pa.Array, scale: int, mistakes: dict[int, str]) -> pa.Array:
    numbers = _only(texts, pc.match_substring_regex(texts, _NUMBER)).cast(pa.float64())
    scaled = pc.round(pc.multiply(numbers, float(scale)), round_mode="half_to_even")
    small = pc.less(scaled, _MOST_PRICE)
    usual = pc.if_else(small, scaled, pa.scalar(None, pa.float64())).cast(pa.int64())
    return _odd_ones(texts, usual, lambda text: _price(text, scale), mistakes)


def _price(text: str, scale: int) -> int:
    if "," in text and "." not in text:
        text = text.replace(",", ".")
    try:
        price = float(text) * scale
        if abs(price) < _MOST_PRICE:
            return round(price)
    except ValueError:
        pass
    raise ValueError(f"has no price, but {text[:40]!a}") from None


def _times(texts: pa.Array, zone: tzinfo, mistakes: dict[int, str]) -> pa.Array:
    """Epoch ms, of epoch seconds, ms, µs or ns, told by their size, or of RFC 3339."""
    numbers = _only(texts, pc.match_substring_regex(texts, _NUMBER)).cast(pa.float64())
    numbers = pc.if_else(pc.greater(numbers, 0), numbers, pa.scalar(None, pa.float64()))
    ms = pc.multiply(numbers, 1000.0)
    for size, per_ms in ((1e11, 1.0), (1e14, 1e3), (1e17, 1e6)):
        ms = pc.if_else(pc.greater_equal(numbers, size), pc.divide(numbers, per_ms), ms)
    usual = pc.round(ms, round_mode="half_to_even").cast(pa.int64())
    moments = _only(texts, pc.match_substring_regex(texts, _MOMENT))
    zoned = pc.match_substring_regex(moments, _ZONE)
    if zone is not UTC:
        moments = _only(moments, zoned)  # the others one by one
    moments = pc.if_else(zoned, moments, pc.binary_join_element_wise(moments, "Z", ""))
    try:
        nanos = moments.cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).cast(pa.float64(), False)
    except pa.ArrowInvalid:  # a 30th of February among them
        pass
    else:
        rounded = pc.round(pc.divide(nanos, 1e6), round_mode="half_to_even").cast(pa.int64())
        usual = pc.coalesce(usual, rounded)
    return _odd_ones(texts, usual, lambda text: _time_ms(text, zone), mistakes)


def _time_ms(text: str, zone: tzinfo) -> int:
    """Epoch ms of what is not plain. A day alone is one by UTC."""
    try:
        number = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text.replace(" UTC", "+00:00"))
        except ValueError:
            raise ValueError(f"has no time, but {text[:40]!a}") from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC if len(text) <= len("2026-01-31") else zone)
        return round(moment.timestamp() * 1000)
    if not 0 < number < 1e20:
        raise ValueError(f"has no time, but {text[:40]!a}")
    for size, per_ms in ((1e17, 1e6), (1e14, 1e3), (1e11, 1)):
        if number >= size:
            return round(number / per_ms)
    return round(number * 1000)


def _can(change: Callable[[str], object]) -> Callable[[str], bool]:
    def can(text: str) -> bool:
        try:
            change(text)
        except (ValueError, OverflowError):
            return False
        return True

    return can


_TELLS: Final[Mapping[str, Callable[[str], bool]]] = {
    "time": _can(lambda text: _time_ms(text, UTC)),
    "price": _can(lambda text: _price(text, 1)),
    "currency": lambda text: len(text) in range(2, 11) and text.isalnum(),
    "kind": lambda text: text.lower() in KINDS,
}
"""Field -> whether a value may be one."""
