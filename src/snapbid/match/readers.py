"""Readers of the values of a campaign document (contract 2), each naming the rule that is broken.

- `null` and an empty list mean absent;
- a key that is not known is a mistake;
- money is exact: a decimal is read as it stands, and a float means its shortest decimal.

Strings may not hold U+0000 or lone surrogates, since neither can be stored in the warehouse.
"""

import difflib
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from snapbid.match.campaign import Mistake
from snapbid.match.vocabulary import MAX_INTEGER, MAX_TEXT, domain, size

MAX_ADM_BYTES: Final = 64 * 1024
MAX_ENTRIES: Final = 1_000_000  # of all targeting lists together
MAX_LIST: Final = 1_000  # entries of any other list
MAX_HINTS: Final = 100  # mistakes of a document before none is guessed at any more
MAX_MICROS: Final = 2**63 - 1  # what a signed 64-bit integer of micro-USD holds

BIDDER_MACROS: Final = ("auction_id", "imp_id", "campaign_id", "creative_id", "cachebuster")

# A reader checks one value, given its path. What it returns counts only if no mistake was added.
Reader = Callable[[Any, str, list[Mistake]], Any]

Fields = dict[str, Any]  # those of one object that were read, by name
Rules = Callable[[Fields, str, list[Mistake]], None]

_MACRO = re.compile(r"\{\{\s*([\w.-]+)\s*\}\}")
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def shown(value: object) -> str:
    """Show what was found, on one line and bounded."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, str):
        return json.dumps(value if len(value) <= 60 else value[:60] + "...")
    text = json.dumps(value) if value is None or isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else text[:60] + "..."


def text_rule(value: object, longest: int = MAX_TEXT) -> str | None:
    """Name the rule of strings that a value breaks, if any."""
    if not isinstance(value, str):
        return f"must be a string, found {shown(value)}"
    if not value:
        return "must not be empty"
    if size(value) > longest:
        return f"must have at most {longest} bytes, found {size(value)}"
    if "\0" in value:
        return "must not hold U+0000"
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        return "must not hold a lone surrogate"
    return None


def string(longest: int = MAX_TEXT) -> Reader:
    def read(value: Any, at: str, found: list[Mistake]) -> Any:
        if rule := text_rule(value, longest):
            found.append(Mistake(at, rule))
        return value

    return read


def choice(*names: str) -> Reader:
    def read(value: Any, at: str, found: list[Mistake]) -> Any:
        if not (isinstance(value, str) and value in names):
            found.append(Mistake(at, f"must be one of {', '.join(names)}, found {shown(value)}"))
        return value

    return read


def flag(value: Any, at: str, found: list[Mistake]) -> Any:
    if not isinstance(value, bool):
        found.append(Mistake(at, f"must be true or false, found {shown(value)}"))
    return value


def _decimal(value: object) -> Decimal | None:
    """Give the exact value of a finite JSON number; a float means its shortest decimal."""
    if type(value) is int:
        return Decimal(value)
    number = Decimal(repr(value)) if type(value) is float else value
    return number if isinstance(number, Decimal) and number.is_finite() else None


def integral(value: object) -> object:
    """Turn `300.0` into 300: JSON does not tell the two apart."""
    number = _decimal(value) if isinstance(value, float | Decimal) else None
    if number is not None and abs(number) <= MAX_INTEGER and number == int(number):
        return int(number)
    return value


def integer(least: int) -> Reader:
    def read(value: Any, at: str, found: list[Mistake]) -> Any:
        number = value if type(value) is int else integral(value)
        if type(number) is not int or not least <= number <= MAX_INTEGER:
            rule = f"must be an integer from {least} to {MAX_INTEGER}, found {shown(value)}"
            found.append(Mistake(at, rule))
        return number

    return read


def real(over: Callable[[Decimal], bool], rule: str) -> Reader:
    def read(value: Any, at: str, found: list[Mistake]) -> Any:
        number = _decimal(value)
        # What a float cannot tell from 0 and what has 400 decimals, jsonb might not hold either.
        if number is None or not over(number) or _decimals(number) > 400:
            found.append(Mistake(at, f"must be a number {rule}, found {shown(value)}"))
            return None
        return float(number)

    return read


def _decimals(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


def micros(value: Any, at: str, found: list[Mistake]) -> int | None:
    """Read an amount in USD as micro-USD, exactly."""
    number = _decimal(value)
    if number is None:
        found.append(Mistake(at, f"must be a number of USD, found {shown(value)}"))
    elif number <= 0:
        found.append(Mistake(at, f"must be more than 0, found {shown(value)}"))
    elif number > MAX_MICROS // 10**6:
        found.append(Mistake(at, f"must be at most {MAX_MICROS // 10**6}, found {shown(value)}"))
    elif _decimals(number) <= 6:
        return int(number.scaleb(6))
    elif _decimals(number) <= 400 and (exact := Fraction(number) * 10**6).denominator == 1:
        return int(exact)
    else:
        found.append(Mistake(at, f"must have at most 6 decimals, found {shown(value)}"))
    return None


def time_ms(value: Any, at: str, found: list[Mistake]) -> int | None:
    """Read an RFC 3339 UTC time as ms since the epoch; what is below the ms is cut off."""
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        rule = f"must be an RFC 3339 time such as 2030-01-31T00:00:00Z, found {shown(value)}"
        found.append(Mistake(at, rule))
    elif match[4] not in ("Z", "z", "+00:00", "-00:00"):
        found.append(Mistake(at, f"must be UTC (Z or +00:00), found {shown(value)}"))
    else:
        try:
            moment = datetime.fromisoformat(f"{match[1]}T{match[2]}+00:00")
        except ValueError:
            found.append(Mistake(at, f"is no real time: {shown(value)}"))
        else:
            millis = int((match[3] or "").ljust(3, "0")[:3])
            return (moment - _EPOCH) // timedelta(milliseconds=1) + millis
    return None


def advertiser(value: Any, at: str, found: list[Mistake]) -> str | None:
    name = domain(value) if text_rule(value) is None else None
    if name is None or not 3 <= len(name) <= 253 or "." not in name:
        rule = text_rule(value) or f"is not a domain: {shown(value)}"
        found.append(Mistake(at, rule))
    return name


def adm(value: Any, at: str, found: list[Mistake]) -> Any:
    if rule := text_rule(value, MAX_ADM_BYTES):
        found.append(Mistake(at, rule))
        return None
    for macro in _MACRO.finditer(value) if "{{" in value else ():
        if macro[0][2:-2] not in BIDDER_MACROS:
            known = ", ".join(f"{{{{{name}}}}}" for name in BIDDER_MACROS)
            rule = f"holds the unknown macro {shown(macro[0])}; known are {known}"
            found.append(Mistake(at, rule))
    return value


def list_of(read: Reader, most: int = MAX_LIST, *, fold: bool = True) -> Reader:
    """Read a list of values; with `fold`, equal ones are kept once, in order."""

    def read_all(value: Any, at: str, found: list[Mistake]) -> Any:
        if not isinstance(value, list):
            found.append(Mistake(at, f"must be a list, found {shown(value)}"))
            return ()
        if len(value) > most:
            found.append(Mistake(at, f"must have at most {most} entries, found {len(value)}"))
            return ()
        before = len(found)
        values = [read(entry, f"{at}[{index}]", found) for index, entry in enumerate(value)]
        return tuple(dict.fromkeys(values) if fold and len(found) == before else values)

    return read_all


def object_of(
    readers: dict[str, Reader],
    make: Callable[[Fields], object],
    *,
    required: tuple[str, ...] = (),
    rules: Rules | None = None,
) -> Reader:
    """Read an object field by field; `rules` look at several fields, `make` builds the value."""

    def read(value: Any, at: str, found: list[Mistake]) -> Any:
        if not isinstance(value, dict):
            found.append(Mistake(at, f"must be an object, found {shown(value)}"))
            return None
        before = len(found)
        prefix = f"{at}." if at else ""
        fields = {}
        for key, item in value.items():
            reader = readers.get(key)
            if reader is None:
                found.append(_unknown(key, prefix, readers, hint=len(found) < MAX_HINTS))
            elif item is not None and item != []:
                fields[key] = reader(item, prefix + key, found)
        found.extend(Mistake(prefix + key, "is required") for key in required if key not in fields)
        if rules is not None:
            rules(fields, prefix, found)
        return make(fields) if len(found) == before else None

    return read


def _unknown(key: object, prefix: str, readers: dict[str, Reader], *, hint: bool) -> Mistake:
    name = str(key)
    near = difflib.get_close_matches(name[:60].lower(), readers, 1) if hint else []
    plain = name.isidentifier() and name.isascii() and len(name) <= 60
    more = f'; did you mean "{near[0]}"?' if near else f"; known are {', '.join(readers)}"
    return Mistake(prefix + (name if plain else shown(name)), f"is not a known field{more}")
