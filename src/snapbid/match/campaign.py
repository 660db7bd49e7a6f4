"""What a campaign is: the checked and normalised value, and its import (contract 2).

A document is JSON as an operator writes it. Its rules, beyond those of the single fields:

- a key that is not known is a mistake, as is a key that stands twice in one object;
- `null` and an empty list mean absent;
- money is exact: JSON numbers are read as decimals, never as binary floats;
- every mistake is reported at once, each with its field, the rule and, in a file, its line.

Strings may not hold U+0000 or lone surrogates, since neither can be stored in the warehouse.
"""

import codecs
import difflib
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, Literal

import msgspec

from snapbid.match.vocabulary import DIMENSIONS, domain, normalise

MAX_TEXT: Final = 512  # characters of any string but markup and URLs
MAX_URL: Final = 2048
MAX_ADM_BYTES: Final = 64 * 1024
MAX_CREATIVES: Final = 1_000
MAX_ENTRIES: Final = 1_000_000  # of one list
MAX_CIRCLES: Final = 10_000
MAX_FREQUENCY_CAPS: Final = 16
MAX_INTEGER: Final = 2**31 - 1
MAX_MICROS: Final = 2**63 - 1  # what a signed 64-bit integer of micro-USD holds
MAX_KM: Final = 50_000

BIDDER_MACROS: Final = ("auction_id", "imp_id", "campaign_id", "creative_id", "cachebuster")

# What is said of a targeting entry that is no value of its dimension.
_ENTRY_RULES: Final = {
    "country": "is not an ISO 3166-1 country",
    "region": "is not a country, a dash and a region, such as USA-CA",
    "os": "is not one of ios, android, windows, macos, linux, chromeos, tizen, webos, other",
    "browser": "is not one of chrome, safari, firefox, edge, samsung, opera, other",
    "language": "is not a language",
    "inventory": "is not one of site, app, dooh",
    "domain": "is not a domain",
    "hour": "is not an hour of the week, 0 (Monday 00:00 UTC) to 167",
}


class Values(msgspec.Struct, frozen=True, gc=False):
    """One targeting dimension, each entry in its normal form."""

    include: tuple[str | int, ...] = ()
    exclude: tuple[str | int, ...] = ()


class Circle(msgspec.Struct, frozen=True, gc=False):
    """A circle on the earth: degrees, and a radius in km."""

    lat: float
    lon: float
    km: float


class FrequencyCap(msgspec.Struct, frozen=True, gc=False):
    """At most `impressions` for one user within `seconds`."""

    impressions: int
    seconds: int


class Budget(msgspec.Struct, frozen=True, gc=False):
    """Money in micro-USD; None is unlimited."""

    daily_micros: int | None = None
    total_micros: int | None = None
    pacing: Literal["asap", "even"] = "asap"


class Creative(msgspec.Struct, frozen=True):
    """One advertisement; `duration` in seconds."""

    id: str
    media: Literal["banner", "video", "native", "audio"]
    adm: str
    w: int | None = None
    h: int | None = None
    attributes: tuple[int, ...] = ()
    secure: bool = True
    mimes: tuple[str, ...] = ()
    duration: int | None = None
    protocols: tuple[int, ...] = ()
    iurl: str | None = None


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """A valid campaign. Times are UTC in ms since the epoch: starts_at <= now < ends_at."""

    id: str
    advertiser: str  # lower case
    cpm_micros: int
    creatives: tuple[Creative, ...]
    seat: str | None = None
    bundle: str | None = None
    name: str | None = None
    categories: tuple[str, ...] = ()
    status: Literal["active", "paused"] = "active"
    starts_at_ms: int | None = None
    ends_at_ms: int | None = None
    budget: Budget = Budget()
    frequency_caps: tuple[FrequencyCap, ...] = ()
    targeting: dict[str, Values] = {}  # only the dimensions that have entries
    geo_radius: tuple[Circle, ...] = ()


class Mistake(msgspec.Struct, frozen=True):
    """What is wrong: `field` is a path (empty: the whole document), `line` counts from 1."""

    field: str
    rule: str
    line: int | None = None

    def __str__(self) -> str:
        line = f"line {self.line}: " if self.line is not None else ""
        return f"{line}{self.field}: {self.rule}" if self.field else f"{line}{self.rule}"


class CampaignError(ValueError):
    """Campaigns that are refused; `mistakes` holds every one of them, in document order."""

    def __init__(self, mistakes: tuple[Mistake, ...]) -> None:
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = mistakes


# A reader checks one value, given its path. What it returns counts only if no mistake was added.
_Reader = Callable[[Any, str, list[Mistake]], Any]

_MACRO = re.compile(r"\{\{\s*([\w.-]+)\s*\}\}")
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _shown(value: object) -> str:
    """Show what was found, on one line and bounded."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, str):
        return json.dumps(value if len(value) <= 60 else value[:60] + "...")
    text = json.dumps(value) if value is None or isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else text[:60] + "..."


def _text_rule(value: object, longest: int = MAX_TEXT) -> str | None:
    """Name the rule of strings that a value breaks, if any."""
    if not isinstance(value, str):
        return f"must be a string, found {_shown(value)}"
    if not value:
        return "must not be empty"
    if len(value) > longest:
        return f"must have at most {longest} characters, found {len(value)}"
    if "\0" in value:
        return "must not hold U+0000"
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        return "must not hold a lone surrogate"
    return None


def _text(longest: int = MAX_TEXT) -> _Reader:
    def read(value: Any, at: str, found: list[Mistake]) -> Any:
        if rule := _text_rule(value, longest):
            found.append(Mistake(at, rule))
        return value

    return read


def _choice(*names: str) -> _Reader:
    def read(value: Any, at: str, found: list[Mistake]) -> Any:
        if not (isinstance(value, str) and value in names):
            found.append(Mistake(at, f"must be one of {', '.join(names)}, found {_shown(value)}"))
        return value

    return read


def _flag(value: Any, at: str, found: list[Mistake]) -> Any:
    if not isinstance(value, bool):
        found.append(Mistake(at, f"must be true or false, found {_shown(value)}"))
    return value


def _decimal(value: object) -> Decimal | None:
    """Give the exact value of a finite JSON number; a float means its shortest decimal."""
    if type(value) is int:
        return Decimal(value)
    number = Decimal(repr(value)) if type(value) is float else value
    return number if isinstance(number, Decimal) and number.is_finite() else None


def _integral(value: object) -> object:
    """Turn `300.0` into 300: JSON does not tell the two apart."""
    number = _decimal(value) if isinstance(value, float | Decimal) else None
    if number is not None and abs(number) <= MAX_INTEGER and number == int(number):
        return int(number)
    return value


def _integer(least: int) -> _Reader:
    def read(value: Any, at: str, found: list[Mistake]) -> Any:
        number = value if type(value) is int else _integral(value)
        if type(number) is not int or not least <= number <= MAX_INTEGER:
            rule = f"must be an integer from {least} to {MAX_INTEGER}, found {_shown(value)}"
            found.append(Mistake(at, rule))
        return number

    return read


def _real(over: Callable[[Decimal], bool], rule: str) -> _Reader:
    def read(value: Any, at: str, found: list[Mistake]) -> Any:
        number = _decimal(value)
        # What a float cannot tell from 0 and what has 400 decimals, jsonb might not hold either.
        if number is None or not over(number) or _decimals(number) > 400:
            found.append(Mistake(at, f"must be a number {rule}, found {_shown(value)}"))
            return None
        return float(number)

    return read


def _decimals(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


def _micros(value: Any, at: str, found: list[Mistake]) -> int | None:
    """Read an amount in USD as micro-USD, exactly."""
    number = _decimal(value)
    if number is None:
        found.append(Mistake(at, f"must be a number of USD, found {_shown(value)}"))
    elif number <= 0:
        found.append(Mistake(at, f"must be more than 0, found {_shown(value)}"))
    elif number > MAX_MICROS // 10**6:
        found.append(Mistake(at, f"must be at most {MAX_MICROS // 10**6}, found {_shown(value)}"))
    elif _decimals(number) <= 6:
        return int(number.scaleb(6))
    elif _decimals(number) <= 400 and (micros := Fraction(number) * 10**6).denominator == 1:
        return int(micros)
    else:
        found.append(Mistake(at, f"must have at most 6 decimals, found {_shown(value)}"))
    return None


def _time(value: Any, at: str, found: list[Mistake]) -> int | None:
    """Read an RFC 3339 UTC time as ms since the epoch; what is below the ms is cut off."""
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        rule = f"must be an RFC 3339 time such as 2030-01-31T00:00:00Z, found {_shown(value)}"
        found.append(Mistake(at, rule))
    elif match[4] not in ("Z", "z", "+00:00", "-00:00"):
        found.append(Mistake(at, f"must be UTC (Z or +00:00), found {_shown(value)}"))
    else:
        try:
            moment = datetime.fromisoformat(f"{match[1]}T{match[2]}+00:00")
        except ValueError:
            found.append(Mistake(at, f"is no real time: {_shown(value)}"))
        else:
            millis = int((match[3] or "").ljust(3, "0")[:3])
            return (moment - _EPOCH) // timedelta(milliseconds=1) + millis
    return None


def _advertiser(value: Any, at: str, found: list[Mistake]) -> str | None:
    name = domain(value) if _text_rule(value) is None else None
    if name is None or not 3 <= len(name) <= 253 or "." not in name:
        rule = _text_rule(value) or f"is not a domain: {_shown(value)}"
        found.append(Mistake(at, rule))
    return name


def _adm(value: Any, at: str, found: list[Mistake]) -> Any:
    rule = _text_rule(value, MAX_ADM_BYTES)
    if rule is None and len(value.encode()) > MAX_ADM_BYTES:
        rule = f"must have at most {MAX_ADM_BYTES} bytes, found {len(value.encode())}"
    if rule is not None:
        found.append(Mistake(at, rule))
        return None
    for macro in _MACRO.finditer(value) if "{{" in value else ():
        if macro[0][2:-2] not in BIDDER_MACROS:
            known = ", ".join(f"{{{{{name}}}}}" for name in BIDDER_MACROS)
            rule = f"holds the unknown macro {_shown(macro[0])}; known are {known}"
            found.append(Mistake(at, rule))
    return value


def _list(read: _Reader, most: int = MAX_ENTRIES, *, fold: bool = True) -> _Reader:
    """Read a list of values; with `fold`, equal ones are kept once, in order."""

    def read_all(value: Any, at: str, found: list[Mistake]) -> Any:
        if not isinstance(value, list):
            found.append(Mistake(at, f"must be a list, found {_shown(value)}"))
            return ()
        if len(value) > most:
            found.append(Mistake(at, f"must have at most {most} entries, found {len(value)}"))
            return ()
        before = len(found)
        values = [read(entry, f"{at}[{index}]", found) for index, entry in enumerate(value)]
        return tuple(dict.fromkeys(values) if fold and len(found) == before else values)

    return read_all


def _entries(dimension: str, kind: str) -> _Reader:
    """Read the entries of one targeting list into their normal forms."""

    def read(value: Any, at: str, found: list[Mistake]) -> Any:
        normal = normalise(dimension, _integral(value) if kind == "int" else value)
        if normal is None:
            found.append(Mistake(at, _entry_rule(dimension, kind, value)))
        return normal

    one_by_one = _list(read)

    def read_all(value: Any, at: str, found: list[Mistake]) -> Any:
        if isinstance(value, list) and len(value) <= MAX_ENTRIES:
            normal = dict.fromkeys([normalise(dimension, entry) for entry in value])
            if None not in normal:
                return tuple(normal)
        return one_by_one(value, at, found)

    return read_all


def _entry_rule(dimension: str, kind: str, value: object) -> str:
    rule = _ENTRY_RULES.get(dimension)
    if kind == "int":
        return f"{rule or f'is not an integer from 0 to {MAX_INTEGER}'}: {_shown(value)}"
    return _text_rule(value) or f"{rule or f'is not a {dimension}'}: {_shown(value)}"


_Fields = dict[str, Any]
_Rules = Callable[[_Fields, str, list[Mistake]], None]


def _object(
    readers: dict[str, _Reader],
    make: Callable[[_Fields], object],
    *,
    required: tuple[str, ...] = (),
    rules: _Rules | None = None,
) -> _Reader:
    """Read an object field by field; `rules` look at several fields, `make` builds the value."""

    def read(value: Any, at: str, found: list[Mistake]) -> Any:
        if not isinstance(value, dict):
            found.append(Mistake(at, f"must be an object, found {_shown(value)}"))
            return None
        before = len(found)
        prefix = f"{at}." if at else ""
        fields = {}
        for key, item in value.items():
            reader = readers.get(key)
            if reader is None:
                found.append(_unknown(key, prefix, readers))
            elif item is not None and item != []:
                fields[key] = reader(item, prefix + key, found)
        found.extend(Mistake(prefix + key, "is required") for key in required if key not in fields)
        if rules is not None:
            rules(fields, prefix, found)
        return make(fields) if len(found) == before else None

    return read


def _unknown(key: object, prefix: str, readers: dict[str, _Reader]) -> Mistake:
    name = str(key)
    near = difflib.get_close_matches(name[:MAX_TEXT].lower(), readers, 1)
    shown = name if name.isidentifier() and name.isascii() and len(name) <= 60 else _shown(name)
    hint = f'; did you mean "{near[0]}"?' if near else f"; known are {', '.join(readers)}"
    return Mistake(prefix + shown, f"is not a known field{hint}")


def _creative_rules(fields: _Fields, prefix: str, found: list[Mistake]) -> None:
    if fields.get("media") == "banner":
        found.extend(
            Mistake(f"{prefix}{side}", "is required for a banner")
            for side in ("w", "h")
            if side not in fields
        )


def _campaign_rules(fields: _Fields, prefix: str, found: list[Mistake]) -> None:
    starts, ends = fields.get("starts_at"), fields.get("ends_at")
    if starts is not None and ends is not None and starts >= ends:
        found.append(Mistake(f"{prefix}ends_at", "must be later than starts_at"))


def _creatives(value: Any, at: str, found: list[Mistake]) -> Any:
    creatives = _list(_CREATIVE, MAX_CREATIVES, fold=False)(value, at, found)
    seen: dict[str, int] = {}
    for index, creative in enumerate(value if isinstance(value, list) else ()):
        name = creative.get("id") if isinstance(creative, dict) else None
        if isinstance(name, str) and seen.setdefault(name, index) != index:
            rule = f"is the id of {at}[{seen[name]}] already: {_shown(name)}"
            found.append(Mistake(f"{at}[{index}].id", rule))
    return creatives


def _targeting(value: Any, at: str, found: list[Mistake]) -> Any:
    return _TARGETING(value, at, found) or {}


def _make_campaign(fields: _Fields) -> Campaign:
    targeting = fields.pop("targeting", {})
    circles = targeting.pop("geo_radius", ())
    return Campaign(
        cpm_micros=fields.pop("cpm"),
        starts_at_ms=fields.pop("starts_at", None),
        ends_at_ms=fields.pop("ends_at", None),
        targeting={key: values for key, values in targeting.items() if values != _NO_VALUES},
        geo_radius=circles,
        **fields,
    )


def _make_budget(fields: _Fields) -> Budget:
    daily, total = fields.pop("daily", None), fields.pop("total", None)
    return Budget(daily_micros=daily, total_micros=total, **fields)


_NO_VALUES: Final = Values()
_CREATIVE: Final = _object(
    {
        "id": _text(),
        "media": _choice("banner", "video", "native", "audio"),
        "adm": _adm,
        "w": _integer(1),
        "h": _integer(1),
        "attributes": _list(_integer(0)),
        "secure": _flag,
        "mimes": _list(_text()),
        "duration": _integer(1),
        "protocols": _list(_integer(0)),
        "iurl": _text(MAX_URL),
    },
    lambda fields: Creative(**fields),
    required=("id", "media", "adm"),
    rules=_creative_rules,
)
_BUDGET: Final = _object(
    {"daily": _micros, "total": _micros, "pacing": _choice("asap", "even")}, _make_budget
)
_CAP: Final = _object(
    {"impressions": _integer(1), "seconds": _integer(1)},
    lambda fields: FrequencyCap(**fields),
    required=("impressions", "seconds"),
)
_CIRCLE: Final = _object(
    {
        "lat": _real(lambda n: -90 <= n <= 90, "from -90 to 90"),
        "lon": _real(lambda n: -180 <= n <= 180, "from -180 to 180"),
        "km": _real(lambda n: 0 < n <= MAX_KM, f"over 0 and up to {MAX_KM}"),
    },
    lambda fields: Circle(**fields),
    required=("lat", "lon", "km"),
)


def _values(dimension: str, kind: str) -> _Reader:
    read = _entries(dimension, kind)
    return _object({"include": read, "exclude": read}, lambda fields: Values(**fields))


_TARGETING: Final = _object(
    {d.name: _values(d.name, d.kind) for d in DIMENSIONS}
    | {"geo_radius": _list(_CIRCLE, MAX_CIRCLES)},
    lambda fields: fields,
)
_CAMPAIGN: Final = _object(
    {
        "id": _text(),
        "advertiser": _advertiser,
        "seat": _text(),
        "bundle": _text(),
        "name": _text(),
        "categories": _list(_text()),
        "status": _choice("active", "paused"),
        "starts_at": _time,
        "ends_at": _time,
        "cpm": _micros,
        "budget": _BUDGET,
        "frequency_caps": _list(_CAP, MAX_FREQUENCY_CAPS),
        "targeting": _targeting,
        "creatives": _creatives,
    },
    _make_campaign,
    required=("id", "advertiser", "cpm", "creatives"),
    rules=_campaign_rules,
)


def parse(document: object) -> Campaign:
    """Check and normalise one decoded JSON document (contract 2, "Campaign").

    Numbers may be int, float or Decimal. Raises CampaignError with every mistake.
    """
    found: list[Mistake] = []
    campaign = _CAMPAIGN(document, "", found)
    if found:
        raise CampaignError(tuple(found))
    assert isinstance(campaign, Campaign)
    return campaign


class _Json:
    """JSON with exact numbers; keys that stand twice in an object are gathered in `twice`."""

    def __init__(self) -> None:
        self.twice: list[str] = []
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._pairs, parse_float=Decimal, parse_constant=self._constant
        )

    def _pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) != len(pairs):
            left = [key for key, _ in pairs]
            for key in fields:
                left.remove(key)
            self.twice.extend(left)
        return fields

    def _constant(self, name: str) -> object:
        raise ValueError(f"{name} is no JSON number")

    def value(self, text: str, start: int) -> tuple[Any, int]:
        """Decode the value at `start` and give the place after it; raises ValueError."""
        self.twice.clear()
        try:
            return self._decoder.raw_decode(text, start)
        except json.JSONDecodeError:
            raise
        except RecursionError:
            raise ValueError("nested too deeply") from None
        except ArithmeticError:
            raise ValueError("a number has too large an exponent") from None
        except ValueError as error:  # NaN, or more digits than the interpreter reads
            raise ValueError(str(error).partition(";")[0]) from None


def decode(text: str) -> Any:
    """Decode a stored document with exact numbers, for `parse`; raises ValueError."""
    return _Json().value(text, 0)[0]


def encode(document: object) -> str:
    """Encode a decoded document as JSON, its decimals exactly as they were read."""
    return _ENCODER.encode(document).decode()


_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
_WHITESPACE: Final = " \t\r\n"
_SPACE: Final = re.compile(f"[{_WHITESPACE}]*")


class _File:
    """The campaigns and mistakes of one file, gathered document by document."""

    def __init__(self) -> None:
        self.json = _Json()
        self.campaigns: list[tuple[Campaign, dict[str, Any]]] = []
        self.mistakes: list[Mistake] = []
        self._lines: dict[str, int] = {}

    def refuse(self, line: int, error: ValueError) -> None:
        """Note text that is not JSON (or not UTF-8)."""
        if isinstance(error, json.JSONDecodeError):
            rule = f"is not JSON: {error.msg} (column {error.colno})"
        elif isinstance(error, UnicodeDecodeError):
            rule = f"is not UTF-8: {error.reason} (byte {error.start + 1})"
        else:
            rule = f"is not JSON: {error}"
        self.mistakes.append(Mistake("", rule, line))

    def add(self, line: int, at: str, document: Any) -> None:
        """Check one document that starts on `line`; `at` is its place in an array, or empty."""
        prefix = f"{at}." if at else ""
        found = [Mistake(prefix + key, "stands twice in one object") for key in self.json.twice]
        campaign = _CAMPAIGN(document, at, found)
        name = document.get("id") if isinstance(document, dict) else None
        if isinstance(name, str):
            if name in self._lines:
                rule = f"is the id of line {self._lines[name]} already: {_shown(name)}"
                found.append(Mistake(f"{prefix}id", rule))
            self._lines.setdefault(name, line)
        if found:
            self.mistakes.extend(msgspec.structs.replace(each, line=line) for each in found)
        else:
            self.campaigns.append((campaign, document))


def read_file(name: str, data: bytes) -> list[tuple[Campaign, dict[str, Any]]]:
    """Read a campaign file: each campaign, with its document as it stands there (`encode`).

    A `.json` file holds an array or one object, anything else is JSON Lines (contract 1). Raises
    CampaignError with every mistake of every line. In an array, `line` is the line on which the
    element starts and the field starts with its place (`[3].cpm`); text that is not JSON ends
    the reading of an array, but only its own line of JSON Lines.
    """
    file = _File()
    data = data.removeprefix(codecs.BOM_UTF8)
    if name.lower().endswith(".json"):
        _read_array(file, data)
    else:
        _read_lines(file, data)
    if not file.campaigns and not file.mistakes:
        file.mistakes.append(Mistake("", "the file holds no campaign"))
    if file.mistakes:
        raise CampaignError(tuple(file.mistakes))
    return file.campaigns


def _read_lines(file: _File, data: bytes) -> None:
    for line, raw in enumerate(data.split(b"\n"), 1):
        try:
            text = raw.decode().strip(_WHITESPACE)
            if not text:
                continue
            document, end = file.json.value(text, 0)
            _end_of_text(text, end)
        except ValueError as error:
            file.refuse(line, error)
        else:
            file.add(line, "", document)


def _read_array(file: _File, data: bytes) -> None:
    line = 1
    try:
        text = data.decode()
        for line, at, document in _elements(file.json, text):
            file.add(line, at, document)
    except json.JSONDecodeError as error:
        file.refuse(error.lineno, error)
    except UnicodeDecodeError as error:
        file.refuse(data.count(b"\n", 0, error.start) + 1, error)
    except ValueError as error:
        file.refuse(line, error)


def _skip(text: str, position: int) -> int:
    """Give the place of the next character that is no whitespace."""
    space = _SPACE.match(text, position)
    return space.end() if space is not None else position


def _end_of_text(text: str, position: int) -> None:
    if (end := _skip(text, position)) != len(text):
        raise json.JSONDecodeError("Extra data", text, end)


def _elements(decoder: _Json, text: str) -> Iterator[tuple[int, str, Any]]:
    """Give line, place (`[0]`; empty for a lone object) and value of each element of an array."""
    position = _skip(text, 0)
    if not text.startswith("[", position):
        document, end = decoder.value(text, position)
        _end_of_text(text, end)
        yield text.count("\n", 0, position) + 1, "", document
        return
    line, counted, index = 1, 0, 0
    position = _skip(text, position + 1)
    while not text.startswith("]", position):
        line += text.count("\n", counted, position)
        counted = position
        document, end = decoder.value(text, position)
        yield line, f"[{index}]", document
        position = _skip(text, end)
        if text.startswith(",", position):
            position = _skip(text, position + 1)
            index += 1
            if text.startswith("]", position):
                raise json.JSONDecodeError("Illegal trailing comma", text, position)
        elif not text.startswith("]", position):
            raise json.JSONDecodeError("Expecting ',' delimiter", text, position)
    _end_of_text(text, position + 1)
