"""Explain to the operator why a store or a server cannot be used."""

import os
import re
from typing import Final
from urllib.parse import parse_qs, parse_qsl, unquote

from snapbid.base import addresses

# A closed ledger has values of the wrong type in some of its keys (ledger/admin/closing.py).
CLOSED: Final = "CLOSED the ledger is being moved or has moved: see snapbid status"

_SIGNS: Final = (
    # Patterns in the messages of libraries and systems, tried in this order.
    (r"[Ee](?:rrno|rror) 111\b|[Cc]onnection refused|Connect call failed", "nothing listens at {}"),
    (r"[Ee](?:rrno|rror) -[235]\b|Name or service not known", "the host of {} is unknown"),
    (r"[Ee](?:rrno|rror) 113\b|No route to host|unreachable", "there is no route to {}"),
    (r"TimeoutError|Timeout (?:connecting|reading)|timed out", "{} does not answer in time"),
    (r"password authentication failed|invalid username-password", "{} rejects the password"),
    (r"Authentication required|no password supplied|NOAUTH", "{} requires a password"),
    (r"WRONGTYPE", CLOSED),
)

_NO_FILE: Final = re.compile(r"[Ee](?:rrno|rror) (2|13|20)\b")
_FILES: Final = frozenset(  # options that name a file, for PostgreSQL or Redis
    {"sslrootcert", "sslcert", "sslkey", "sslcrl", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}
)


def reason(error: BaseException, url: str) -> str:
    """Describe why `url` could not be used, naming its address but never its password."""
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if unreadable := unreadable_file(error, url):
        return unreadable
    for sign, words in _SIGNS:
        if re.search(sign, f"{type(error).__name__} {text}"):
            return words.format(address(url))
    return text or text_of(error)


def unreadable_file(error: BaseException, url: str) -> str | None:
    """Describe a problem with a file or socket that `url` names; None for any other error."""
    found = _NO_FILE.search(str(error))
    if found is None:
        return None
    for name, path in parse_qsl(addresses.split(url)[3]):
        if name in _FILES and not os.access(path, os.R_OK):
            return f"the file {path} ({name}) does not exist or cannot be read"
    if found[1] != "2":
        return None
    if address(url).startswith("/"):
        return f"nothing listens at {address(url)}: there is no such socket"
    return f"a certificate or key for {address(url)} does not exist"


def text_of(error: BaseException) -> str:
    """Return an error's text, or CLOSED if the error shows that the ledger is closed.

    If there is no text, return "no answer" for a timeout, else the name of the error's type.
    """
    if is_closed(error):
        return CLOSED
    unnamed = "no answer" if isinstance(error, TimeoutError) else type(error).__name__
    return str(error) or unnamed


def is_closed(error: BaseException) -> bool:
    """Return whether an error from Redis shows that the ledger is closed."""
    return "WRONGTYPE" in str(error)


def address(url: str) -> str:
    """Return the host and port, or the socket, of a URL."""
    scheme, authority, path, query = addresses.split(url)
    if scheme == "unix":
        return unquote(path)
    host = unquote(authority.rpartition("@")[2])
    return host or parse_qs(query).get("host", ["localhost"])[0]
