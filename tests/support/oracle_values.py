"""Reads values of raw JSON requests for the oracle, as real exchanges write them.

Contract 3: "Requests ... are tolerated where the meaning is plain". Nothing is imported from the
product.
"""

import functools
import re
from fractions import Fraction
from typing import Any
from urllib.parse import unquote, urlsplit

Document = dict[str, Any]
MOST_ENTRIES = 1000
MOST_BYTES = 512
# What stands between the names of a pasted list.
PASTED = re.compile(r"""[\s,;|"'<>\u2022\u2039\u203a\xab\xbb\u201c-\u201e]+""")
INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")  # within names, as some editors leave it
# ASCII in full width, and other dots.
NARROW = {code + 0xFEE0: code for code in range(0x21, 0x7F)}
NARROW |= dict.fromkeys(map(ord, "\u2024\u3002\ufe52\uff61"), ord("."))
OF_IDS = "*%\\[]"  # what makes a pattern, or an escaped spelling, of an id
BUNDLE = re.compile("[A-Za-z0-9._\u0080-\U0010ffff-]+")
# What is above every price, and how infinity is written.
BEYOND = Fraction(10**40)
INFINITE = ("inf", "+inf", "infinity", "+infinity")
# A URL's scheme, which some senders write twice, at times without its colon.
SCHEME = re.compile(
    r"(?:(?:[a-z][a-z0-9+.-]*:)?[/\\]{2,}|[^./?#\\]*:[/\\]+)?"
    r"(?:https?(?::[/\\]+|[/\\]{2,}))*",
    re.IGNORECASE,
)
# Codes of languages that stand in `pools`.
TODAY = {"in": "id", "iw": "he", "ji": "yi", "eng": "en", "deu": "de", "ger": "de", "ind": "id"} | {
    **{"por": "pt", "chi": "zh", "jw": "jv", "mo": "ro"}
}


class Malformed(ValueError):
    """A value whose type makes no sense where it stands."""


def single(value: Any) -> Any:
    """Read a value that may stand in a list by itself; an empty list means absent."""
    if not isinstance(value, list) or len(value) > 1:
        return value
    inside = value[0] if value else None
    if isinstance(inside, list):
        raise Malformed(f"{value!r} is no value")
    return inside


def text(value: Any) -> str | None:
    """Read text; a number is an id written without quotes."""
    value = single(value)
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise Malformed(f"{value!r} is no text")
    return str(int(value))


def number(value: Any) -> Fraction | None:
    """Read a number exactly; a float means its shortest decimal."""
    value = single(value)
    if value is None or value == "":
        return None
    if isinstance(value, bool | int):
        return Fraction(int(value))
    if isinstance(value, float):
        return exactly(repr(value))
    if isinstance(value, str) and "/" not in value:
        return exactly(value)
    raise Malformed(f"{value!r} is no number")


def amount(value: Any) -> Fraction | None:
    """Read a floor, as a number; one that is no finite number is above every price."""
    written = str(single(value)).strip().lower()
    return BEYOND if written.lstrip("+-") == "nan" or written in INFINITE else number(value)


@functools.cache
def exactly(written: str) -> Fraction:
    """Read a decimal."""
    return Fraction(written)


def integer(value: Any, least: int = 0) -> int | None:
    """Read an integer; one below `least` is out of range and counts as absent."""
    if type(value) is int:
        return value if value >= least else None
    parsed = number(value)
    if parsed is None:
        return None
    if parsed.denominator != 1:
        raise Malformed(f"{value!r} is no integer")
    return int(parsed) if parsed >= least else None


def bound(value: Any) -> Fraction | None:
    """Read a bound on integers, perhaps a fraction; one that is not above 0 counts as absent."""
    parsed = number(value)
    return parsed if parsed is not None and parsed > 0 else None


def flag(value: Any) -> bool:
    """Read a 0/1 flag."""
    return integer(value) == 1


def within(value: Any, limit: int) -> float | None:
    """Read a coordinate from -limit to limit degrees; any other counts as absent."""
    parsed = number(value)
    return float(parsed) if parsed is not None and abs(parsed) <= limit else None


def members(value: Any) -> Document | None:
    """Read an object."""
    value = single(value)
    if value is None or value == "":
        return None
    if not isinstance(value, dict):
        raise Malformed(f"{value!r} is no object")
    return value


def items(value: Any) -> list[Any]:
    """Read an array without its absent items; an absent array is an empty one."""
    if value is None or value == "":
        return []
    if not isinstance(value, list):
        raise Malformed(f"{value!r} is no array")
    if any(isinstance(item, list) for item in value):
        raise Malformed(f"{value!r} holds an array")
    return [item for item in value if item is not None and item != ""]


def counted(value: Any) -> str | None:
    """Read text that counts up to its limit; a longer one is out of range, and so absent."""
    written = text(value)
    return written if written is None or len(written.encode()) <= MOST_BYTES else None


def trimmed(value: Any) -> str | None:
    """Read text that counts up to its limit, without the white space around it."""
    return counted((text(value) or "").strip())


def described(value: Any) -> list[Any]:
    """Read an array that describes, of which the first entries are looked at."""
    return items(value)[:MOST_ENTRIES]


def entries(value: Any) -> list[str]:
    """Read an array of text that limits, apart at commas, be it one text or its items."""
    listed = value if isinstance(value, list) else [value]
    parts = (part for item in items(listed) for part in str(text(item)).split(","))
    return [part.strip() for part in parts if part.strip()]


def pasted(entry: str) -> list[str]:
    """Take a list apart that somebody pasted into one entry."""
    return [part for part in PASTED.split(entry) if part]


def ids(value: Any) -> set[str]:
    """Read an array of ids that limits; `*` stands for a pattern."""
    names = named(value)
    parts = [part for name in names for part in pasted(narrow(name))]
    return names | {"*" for part in parts if is_pattern(part, OF_IDS)}


def named(value: Any) -> set[str]:
    """Read an array of ids. What separates them may also be a part of an id."""
    whole = items(value) if isinstance(value, list) else []
    names = {*entries(value), *(name for item in whole if (name := str(text(item))).strip(" ,"))}
    names |= {part for name in names for part in pasted(narrow(name))}
    return names | undotted(names)


def undotted(names: set[str]) -> set[str]:
    """Give names without the dots at their ends."""
    return {name.rstrip(".") for name in names} - {""}


def narrow(name: str) -> str:
    """Write what is ASCII in full width as such; leave out what is invisible."""
    return INVISIBLE.sub("", name).translate(NARROW)


def is_pattern(name: str, marks: str) -> bool:
    """Tell if a name has a wildcard or is escaped; brackets around it do not count."""
    return any(mark in name.strip("[](){}") for mark in marks)


def bundles(value: Any) -> set[str]:
    """Read an array of bundles that limits; other text stands for each that occurs in it.

    `*` stands for a pattern; in a store's address, only an asterisk makes one.
    """
    plain = named([plain_of(item) for item in items(value if isinstance(value, list) else [value])])
    names = named(value) | plain
    names |= {part for name in names for part in BUNDLE.findall(narrow(name))}
    names |= undotted(names)
    parts = [part for name in plain for part in pasted(name)]
    names |= {"*" for part in parts if is_pattern(part, "*" if {"/", "="} & {*part} else OF_IDS)}
    return names | {name[2:] for name in names if re.fullmatch("id[0-9]+", name, re.IGNORECASE)}


def domains(value: Any, *, blocks: bool = False) -> set[str]:
    """Read an array of domains that limits; an entry that is none stands for one that none has,
    and blocks those that occur in it; a pattern blocks all.
    """
    found = set()
    for item in items(value if isinstance(value, list) else [value]):
        for entry in entries(plain_of(item)):
            for part in pasted(entry) or [""]:
                name = domain(part)
                is_domain = part == entry or "." in name
                found.add(name if is_domain else "")
                if blocks and not (name and is_domain):
                    occurring = re.findall(r"[\w-]+(?:\.[\w-]+)+", part.lower())
                    found |= {re.sub(r"^(www\.)+(?=.*\.)", "", each) for each in occurring}
                    found |= {"*"} if is_pattern(part, OF_IDS + "(){}") else set()
    return found


def plain_of(item: Any) -> str:
    """Take percent-encoding off an entry of a list, and full width."""
    return narrow(unescaped(narrow(str(text(item)))))


def unescaped(entry: str) -> str:
    """Take percent-encoding off, however often it was put on."""
    while (plain := unquote(entry)) != entry:
        entry = plain
    return entry


def media_types(value: Any) -> set[str]:
    """Read an array of media types that limits."""
    return {media_type(entry) for entry in entries(value)}


def media_type(value: str) -> str:
    """Give a media type without its parameters, by its usual name."""
    name = value.partition(";")[0].strip().lower()
    if re.fullmatch(r"audio/(x-)?(mp3|mpeg)", name):
        return "audio/mpeg"
    plain = {"image/jpg": "image/jpeg", "video/x-mp4": "video/mp4"}
    return plain.get(name, name.replace("application/x-javascript", "application/javascript"))


def numbers(value: Any) -> set[int]:
    """Read an array of numbers that limits: -1 stands for what is none, and 0 says nothing."""
    listed = value if isinstance(value, list) else [value]
    found = set()
    for item in items(listed):
        for written in re.split("[,_]", item) if isinstance(item, str) else [item]:
            try:
                found.add(max(integer(written, -1) or 0, -1) if written != "" else 0)
            except (Malformed, ValueError):
                found.add(-1)
    return found - {0}


def integers(value: Any) -> set[int]:
    """Read an array of integers; those out of range count as absent."""
    return {number for number in numbers(value) if number > 0}


def part(parent: Document | None, *names: str) -> Document:
    """Read an object inside objects; an absent one is empty."""
    for name in names:
        value = (parent or {}).get(name)
        # What stands in an `ext` is every exchange's own.
        is_own = name == "ext" and not isinstance(single(value), dict)
        parent = None if is_own else members(value)
    return parent or {}


def placed(parent: Document, name: str) -> Any:
    """Read a member from its OpenRTB 2.6 place, else from `ext`, its 2.5 place."""
    value = parent.get(name)
    empty = value is None or value == ""
    return part(parent, "ext").get(name) if empty else value


def host(value: Any) -> str | None:
    """Read the host of a URL or of a bare domain, lower case; the scheme may be missing."""
    written = text(value) or ""
    return hostname(written) or hostname(unescaped(written))


def hostname(url: str) -> str | None:
    """Read the host of a URL that is not percent-encoded."""
    url = url.strip()
    url = url[SCHEME.match(url).end() :]  # type: ignore[union-attr]
    is_list = PASTED.search(re.split(r"[/?#\\]", url)[0])
    name = None if is_list else urlsplit("//" + url).hostname
    return counted(domain(name)) if name else None


def hosts_in(value: Any) -> set[str | int]:
    """Read the domains in a text that is none."""
    written = unescaped(text(value) or "")
    return {name for name in domains(counted(written), blocks=True) if "." in name}


@functools.cache
def domain(value: str) -> str:
    """Give a domain in the form in which domains compare; empty where it is none."""
    name = SCHEME.sub("", value.strip().lower(), count=1)
    if re.match(r"[^./?#\\]*\\.|[^/?#\\]*\\\.", name, re.DOTALL):
        return ""  # an escaped dot
    name = re.split(r"[/?#\\]", name)[0].rpartition("@")[2]
    name, _, port = re.sub(r"^[^.:]*:(?=.*\.)", "", name).partition(":")
    if port.strip("0123456789"):
        return ""
    name = name.lstrip("*.").rstrip(".")
    try:
        name = name.encode("idna").decode()
    except UnicodeError:
        return name if name.isascii() and all(name.split(".")) else ""
    name = re.sub(r"^(www\.)+(?=.*\.)", "", name)
    return name if re.fullmatch(r"[a-z0-9_.-]*", name) else ""


def language(tag: str) -> str:
    """Give a language tag in today's codes."""
    primary, dash, rest = tag.lower().replace("_", "-").partition("-")
    return TODAY.get(primary, primary) + dash + rest


def covers(names: set[str], name: str) -> bool:
    """Tell if one of the domains is the domain itself or a parent on a label boundary, or any."""
    parents = any(name == entry or name.endswith("." + entry) for entry in names if entry)
    return parents or "*" in names


def micros(cpm: Any) -> int:
    """Convert a campaign's CPM in USD to micro-USD."""
    return millionths(repr(cpm))


@functools.cache
def millionths(written: str) -> int:
    """Read a decimal in millionths, rounded down."""
    return int(exactly(written) * 1_000_000)
