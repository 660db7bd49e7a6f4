"""Why a store or a server cannot be used, in words for the operator."""

import re
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

_SIGNS: Final = (
    # What libraries and systems write, in the order in which they are looked for.
    (r"[Ee](?:rrno|rror) 111\b|[Cc]onnection refused|Connect call failed", "nothing listens at {}"),
    (r"[Ee](?:rrno|rror) 2\b|No such file", "nothing listens at {}: there is no such socket"),
    (r"[Ee](?:rrno|rror) -[235]\b|Name or service not known", "the host of {} is not known"),
    (r"[Ee](?:rrno|rror) 113\b|No route to host|unreachable", "there is no way to {}"),
    (r"TimeoutError|Timeout (?:connecting|reading)|timed out", "{} does not answer in time"),
    (r"password authentication failed|invalid username-password", "{} refuses the password"),
    (r"Authentication required|no password supplied|NOAUTH", "{} asks for a password"),
)


def reason(error: BaseException, url: str) -> str:
    """Say why `url` could not be used; of the URL only the address is told, never a password."""
    text = " ".join(str(error).split())
    for sign, words in _SIGNS:
        if re.search(sign, f"{type(error).__name__} {text}"):
            return words.format(address(url))
    return text or type(error).__name__


def address(url: str) -> str:
    """The host and port, or the socket, that a URL names."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return unquote(parts.path)
    return parts.netloc.rpartition("@")[2] or parse_qs(parts.query).get("host", ["localhost"])[0]
