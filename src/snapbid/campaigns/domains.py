"""The normal form of domains (contract 3).

It is IDNA's ASCII form in lower case, without scheme, user, port, path, leading `*.` or `www.`, or
root dot. The lists of domains in a request are read natively (`native/spelling.h`). Their non-ASCII
entries are mapped but not encoded: they match the Unicode form of a campaign's domain, which the
index also contains.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final

MAX_TEXT: Final = 512
"""The longest string of a campaign except markup and URLs, in UTF-8 bytes. The limit also applies
to normal forms, the keys of the index, since casefolding lengthens some."""

ANY: Final = "*"
"""The parent of all domains, for entries of `badv` that are patterns (`shoes.*`)."""

MAX_AUTHORITY: Final = 2048
"""The number of characters of a URL within which its host must end."""

_CACHED: Final = 100_000
_MAX_LABEL: Final = 63
_ENCODED: Final = "xn--"
# Authority of a URL whose scheme may be missing, or written twice: "https://user@host:443/path",
# "//host", "host/x", "http://https//host".
_AUTHORITY: Final = re.compile(
    r"(?:(?:[a-z][a-z0-9+.\-]*:|https?)?[/\\]{2,}"  # scheme, at times without its colon
    r"(?:https?(?::[/\\]+|[/\\]{2,}))*)?"  # another one
    r"(?:[^/?#\\]*@)?"  # userinfo
    r"([^/?#\\:@]+)"  # host
    r"(?::[0-9]+)?"  # port
    r"(?:[/?#\\]|\Z)",
    re.IGNORECASE | re.ASCII,
)
_PLAIN_HOST: Final = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*", re.ASCII)
_NOT_IN_HOST: Final = re.compile(r"[\x00-\x20\x7f-\xa0\s!\"#$%&'()*+,/:;<=>?@\[\\\]^`{|}~]")
_PASTED: Final = re.compile(r"[\x00-\x20,;|\"'<>]")
_OCCURRING: Final = re.compile(r"[\w-]+(?:\.[\w-]+)*")
# Not in any domain: more than 8 combining marks in a row, which take quadratic time to order, and
# characters that stand for whole words.
_EXCESSIVE: Final = re.compile(
    "(?:[^\\w\x00-\x7f]|[\uff9e\uff9f]){9,}|[\u3300-\u33ff\ufdf0-\ufdfc]"
)
_BLANK: Final = re.compile("[\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_DASH: Final = re.compile("[\u2010-\u2015\u2212]")
# Other separators of names: line ends, commas, quotes, bullets, marks of the writing direction.
_BETWEEN: Final = re.compile(
    "[\x85\xab\xbb\u060c\u200e\u200f\u2016-\u2023\u2027-\u202e\u2030-\u205e\u2061-\u206f\u3001\u3008-\u300f]"
)
_NARROW: Final = {0xFF01 + n: 0x21 + n for n in range(94)} | dict.fromkeys(
    (0x2024, 0x3002, 0xFE52, 0xFF61), "."
)
"""ASCII's characters in full width, and other dots."""
_IGNORED: Final = re.compile("[\u00ad\u034f\u180b-\u180d\u200b\u2060\ufe00-\ufe0f\ufeff]")


def host(url: str) -> str | None:
    """Return the host of a URL or of a bare domain, in normal form; None if there is none.

    Returns None also for a host that is longer than `MAX_TEXT` bytes, or does not end within the
    first `MAX_AUTHORITY` characters.
    """
    url = url.strip()
    match = _AUTHORITY.match(url, 0, MAX_AUTHORITY)
    if match is None or match.end() == MAX_AUTHORITY < len(url):
        return None
    name = match[1]
    while name.startswith("*."):
        name = name[2:]
    return _compared(name)


def hosts_in(text: str) -> tuple[str, ...]:
    """Find the hosts in a text such as a pasted list; return their normal forms.

    Only hosts with a dot count. Hosts are also found inside list entries that are neither URLs nor
    domains.
    """
    found: dict[str, None] = {}
    for part in _PASTED.split(text if text.isascii() else mapped(text)):
        name = host(part)
        for each in [name] if name and "." in name else _OCCURRING.findall(part):
            if "." in each and (one := host(each)):
                found[one] = None
    return tuple(found)


def mapped(text: str) -> str:
    """Map non-ASCII text as IDNA maps domains (UTS 46): case, width, dots, ignored characters.

    Takes linear time. Runs of more than 8 combining marks, and characters that stand for whole
    words, become `^`, since no domain has them.
    """
    text = _EXCESSIVE.sub("^", apart(text).lower())
    return apart(unicodedata.normalize("NFKC", text).lower().replace("\u3002", "."))


def apart(text: str) -> str:
    """Replace non-ASCII blanks, dashes and separators with ASCII; drop invisible characters."""
    if text.isascii():
        return text
    return _BETWEEN.sub(",", _DASH.sub("-", _BLANK.sub(" ", _IGNORED.sub("", text))))


def narrow(text: str) -> str:
    """Replace full-width ASCII characters, non-ASCII dots, and all that `apart` replaces."""
    return apart(text).translate(_NARROW)


@lru_cache(_CACHED)
def line_of(domain: str) -> tuple[str, ...]:
    """Return a domain and its parents, nearest first, each followed by its Unicode form, if any."""
    line = []
    labels = domain.split(".")
    for index in range(len(labels)):
        name = ".".join(labels[index:])
        line.append(name)
        if _ENCODED in name:
            line.append(".".join(map(_decoded, labels[index:])))
    return tuple(dict.fromkeys(line))


def _compared(name: str) -> str | None:
    name = name.lower()
    if not name.isascii():
        name = mapped(name)
        if _NOT_IN_HOST.search(name):
            return None
        encoded = [_encoded(label) for label in name.strip(".").split(".")]
        if None in encoded:
            return None
        name = ".".join(map(str, encoded))
    name = name.strip(".")
    while name.startswith("www.") and "." in name[4:]:
        name = name[4:]
    return name if len(name) <= MAX_TEXT and _PLAIN_HOST.fullmatch(name) else None


def _encoded(label: str) -> str | None:
    if label.isascii():
        return label
    if len(label) > _MAX_LABEL:
        return None
    return _ENCODED + label.encode("punycode").decode()


def _decoded(label: str) -> str:
    if not label.startswith(_ENCODED):
        return label
    try:
        return label.removeprefix(_ENCODED).encode().decode("punycode").lower()
    except UnicodeError:
        return label
