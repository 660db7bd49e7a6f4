"""Explain to the operator why a store or a server cannot be used."""

import re
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

# What a closed ledger has in place of some keys has the wrong type (ledger/admin/closing.py).
CLOSED: Final = "CLOSED the ledger is being moved or has moved: see snapbid status"

_SIGNS: Final = (
    # Patterns in the messages of libraries and systems, tried in this order.
    (r"[Ee](?:rrno|rror) 111\b|[Cc]onnection refused|Connect call failed", "nothing listens at {}"),
    (r"[Ee](?:rrno|rror) 2\b|No such file", "nothing listens at {}: there is no such socket"),
    (r"[Ee](?:rrno|rror) -[235]\b|Name or service not known", "the host of {} is unknown"),
    (r"[Ee](?:rrno|rror) 113\b|No route to host|unreachable", "there is no route to {}"),
    (r"TimeoutError|Timeout (?:connecting|reading)|timed out", "{} does not answer in time"),
    (r"password authentication failed|invalid username-password", "{} rejects the password"),
    (r"Authentication required|no password supplied|NOAUTH", "{} requires a password"),
    (r"WRONGTYPE", CLOSED),
)


def reason(error: BaseException, url: str) -> str:
    """Describe why `url` could not be used, naming its address but never its password."""
    text = " ".join(str(error).split())
    for sign, words in _SIGNS:
        if re.search(sign, f"{type(error).__name__} {text}"):
            return words.format(address(url))
    return text or text_of(error)


def text_of(error: BaseException) -> str:
    """Return an error's text; without one, "no answer" for a timeout, else the error's type.

    CLOSED if the ledger is closed.
    """
    if is_closed(error):
        return CLOSED
    unnamed = "no answer" if isinstance(error, TimeoutError) else type(error).__name__
    return str(error) or unnamed


def is_closed(error: BaseException) -> bool:
    """Whether this is how Redis answers for a closed ledger."""
    return "WRONGTYPE" in str(error)


def address(url: str) -> str:
    """Return the host and port, or the socket, of a URL."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return unquote(parts.path)
    return parts.netloc.rpartition("@")[2] or parse_qs(parts.query).get("host", ["localhost"])[0]
