"""The rules of single values in a campaign document (contract 2).

- Money is exact: a decimal is read digit by digit, and a float counts as its shortest decimal.
- Strings contain no U+0000 and no unpaired surrogates, since PostgreSQL cannot store them.
"""

import re
from collections.abc import Callable, Container
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from snapbid.campaigns.domains import MAX_TEXT, host
from snapbid.campaigns.markup import (
    BIDDER_MACROS,
    OPEN,
    UNPROTECTED,
    Language,
    Where,
    unprotected,
)
from snapbid.campaigns.rules import Check, Mistakes, Path, report, shown
from snapbid.campaigns.vocabulary import AUDIENCE_NAME, MAX_INTEGER, current_code, media_type, size

MAX_ADM_BYTES: Final = 64 * 1024
MAX_URL: Final = 8 * 1024
MAX_USD: Final = (2**63 - 1) // 10**6  # the most that fits a signed 64-bit integer in micro-USD
MAX_ADS: Final = 1_000  # of a pod
MAX_CPM: Final = 1_000_000  # USD; keeps sums of costs far below 64 bits

AUDIENCE_RULE: Final = "must have 1 to 128 of the characters A-Z a-z 0-9 . _ ~ -"

_MACRO = re.compile(r"\{\{\s*([\w.-]+)\s*\}\}")
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_LANGUAGE_TAG = re.compile(r"[a-z]{2,8}(?:-[a-z0-9]{1,8})*", re.ASCII)  # BCP 47, in lower case
_MEDIA_TYPE = re.compile(r"[^\s,;/]+/[^\s,;/]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# -- strings --------------------------------------------------------------------------------------


def text_rule(value: object, longest: int = MAX_TEXT) -> str | None:
    """Check that a value is a valid string; return the rule it breaks, or None."""
    if not isinstance(value, str):
        return f"must be a string, found {shown(value)}"
    if not value:
        return "must not be empty"
    if size(value) > longest:
        return f"must have at most {longest} bytes, found {size(value)}"
    if "\0" in value:
        return "must not contain U+0000"
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        return "must not contain an unpaired surrogate"
    return None


def string(longest: int = MAX_TEXT) -> Check:
    def check(value: Any, at: Path, mistakes: Mistakes) -> Any:
        if rule := text_rule(value, longest):
            report(mistakes, at, rule)
        return value

    return check


def choice(*names: str) -> Check:
    def check(value: Any, at: Path, mistakes: Mistakes) -> Any:
        if not (isinstance(value, str) and value in names):
            report(mistakes, at, f"must be one of {', '.join(names)}, found {shown(value)}")
        return value

    return check


def check_advertiser(value: Any, at: Path, mistakes: Mistakes) -> str | None:
    name = host(value) if text_rule(value) is None else None
    if name is None or not 3 <= len(name) <= 253 or "." not in name:
        report(mistakes, at, text_rule(value) or f"is not a domain: {shown(value)}")
    return name


def markup(longest: int, language: Language | None = None) -> Check:
    """Build a check of text that may have macros.

    If `language` is given, every macro must be at a safe position in markup of that language.
    """

    def check(value: Any, at: Path, mistakes: Mistakes) -> Any:
        if rule := text_rule(value, longest):
            report(mistakes, at, rule)
            return None
        for macro in _MACRO.finditer(value) if "{{" in value else ():
            if macro[0][2:-2] not in BIDDER_MACROS:
                known = ", ".join(f"{{{{{name}}}}}" for name in BIDDER_MACROS)
                rule = f"contains the unknown macro {shown(macro[0])}; known macros: {known}"
                rule += f"; to send it as it is, write {{{{{OPEN}}}}}{macro[0][2:]}"
                report(mistakes, at, rule)
        if language is not None:
            report_unprotected(value, language, at, mistakes)
        return value

    return check


def report_unprotected(
    text: str,
    language: Language,
    at: Path,
    mistakes: Mistakes,
    positions: Container[Where] = UNPROTECTED,
) -> None:
    """Report each macro in markup whose position makes it unsafe despite percent-encoding."""
    for place in unprotected(text, language, positions):
        rule = f"has {{{{{place.macro}}}}} where percent-encoding does not protect it: {place}"
        report(mistakes, at, f"{rule}, line {place.line} of the text")


def check_language(value: Any, at: Path, mistakes: Mistakes) -> str | None:
    written = value.lower().replace("_", "-") if text_rule(value) is None else ""
    tag = _LANGUAGE_TAG.fullmatch(written.strip())
    if tag is None:
        rule = text_rule(value) or f"is not a language tag such as en or pt-BR: {shown(value)}"
        report(mistakes, at, rule)
        return None
    primary, dash, rest = tag[0].partition("-")
    return f"{current_code(primary)}{dash}{rest}"


def check_media_type(value: Any, at: Path, mistakes: Mistakes) -> str | None:
    name = media_type(value) if text_rule(value) is None else ""
    if not _MEDIA_TYPE.fullmatch(name):
        rule = text_rule(value) or f"is not a media type such as video/mp4: {shown(value)}"
        report(mistakes, at, rule)
        return None
    return name


def check_name(value: Any, at: Path, mistakes: Mistakes) -> str | None:
    """Check the id of a seat or an app; return it without surrounding white space."""
    name = value.strip() if text_rule(value) is None else ""
    if not name:
        report(mistakes, at, text_rule(value) or f"must not be blank, found {shown(value)}")
    return name or None


def check_product(value: Any, at: Path, mistakes: Mistakes) -> Any:
    """Check the name of a product or an audience."""
    if not (isinstance(value, str) and AUDIENCE_NAME.fullmatch(value)):
        rule = f"{AUDIENCE_RULE}, found {shown(value)}"
        report(mistakes, at, text_rule(value) or rule)
    return value


def check_time(value: Any, at: Path, mistakes: Mistakes) -> int | None:
    """Read an RFC 3339 UTC time as ms since the epoch, truncated to the millisecond."""
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        rule = f"must be an RFC 3339 time such as 2030-01-31T00:00:00Z, found {shown(value)}"
        report(mistakes, at, rule)
    elif match[4] not in ("Z", "z", "+00:00", "-00:00"):
        report(mistakes, at, f"must be UTC (Z or +00:00), found {shown(value)}")
    else:
        try:
            moment = datetime.fromisoformat(f"{match[1]}T{match[2]}+00:00")
        except ValueError:
            report(mistakes, at, f"is not a valid time: {shown(value)}")
        else:
            millis = int((match[3] or "").ljust(3, "0")[:3])
            return (moment - _EPOCH) // timedelta(milliseconds=1) + millis
    return None


ADM: Final = markup(MAX_ADM_BYTES)


# -- numbers --------------------------------------------------------------------------------------


def check_flag(value: Any, at: Path, mistakes: Mistakes) -> Any:
    if not isinstance(value, bool):
        report(mistakes, at, f"must be true or false, found {shown(value)}")
    return value


def _decimal(value: object) -> Decimal | None:
    """Return the exact value of a finite JSON number; None for any other value.

    A float counts as its shortest decimal.
    """
    if type(value) is int:
        return Decimal(value)
    number = Decimal(repr(value)) if type(value) is float else value
    return number if isinstance(number, Decimal) and number.is_finite() else None


def integral(value: object) -> object:
    """Convert a number such as `300.0` to 300, its equal in JSON; return other values unchanged."""
    number = _decimal(value) if isinstance(value, float | Decimal) else None
    if number is not None and abs(number) <= MAX_INTEGER and number == int(number):
        return int(number)
    return value


def integer(least: int, most: int = MAX_INTEGER) -> Check:
    def check(value: Any, at: Path, mistakes: Mistakes) -> Any:
        number = value if type(value) is int else integral(value)
        if type(number) is not int or not least <= number <= most:
            rule = f"must be an integer from {least} to {most}, found {shown(value)}"
            report(mistakes, at, rule)
        return number

    return check


def real(in_range: Callable[[Decimal], bool], rule: str) -> Check:
    def check(value: Any, at: Path, mistakes: Mistakes) -> Any:
        number = _decimal(value)
        # A float may round to 0, and jsonb may not store 400 decimals.
        if number is None or not in_range(number) or _decimals(number) > 400:
            report(mistakes, at, f"must be a number {rule}, found {shown(value)}")
            return None
        return float(number)

    return check


def _decimals(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


def micros(most: int) -> Check:
    """Build a check of amounts up to `most` USD; it converts them exactly to micro-USD."""

    def check(value: Any, at: Path, mistakes: Mistakes) -> int | None:
        number = _decimal(value)
        if number is None:
            rule = f"must be a number of USD, found {shown(value)}"
        elif number <= 0:
            rule = f"must be more than 0, found {shown(value)}"
        elif number > most:
            rule = f"must be at most {most}, found {shown(value)}"
        elif (decimals := _decimals(number)) <= 6:
            return int(number.scaleb(6))
        elif decimals <= 400 and (exact := Fraction(number) * 10**6).denominator == 1:
            return int(exact)
        else:
            rule = f"must have at most 6 decimals, found {shown(value)}"
        report(mistakes, at, rule)
        return None

    return check


CPM: Final = micros(MAX_CPM)
BUDGET: Final = micros(MAX_USD)
