"""Parsers and validators for settings."""

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from snapbid.base import addresses
from snapbid.base.access import parse_networks

SECRET_MIN_BYTES = 32
TOKEN_MIN_CHARACTERS = 16

_HOST = re.compile(r"(\[[^\]]*\]|[^\[\]:]*)(:\d{1,5})?")


class Secret:
    """Text that is never shown in a repr, a log line or a traceback."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def key(self) -> bytes:
        """Return the signing key: the secret's UTF-8 bytes."""
        return self._text.encode()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "Secret(…)"


class InvalidValueError(Exception):
    """A value that breaks its rule; `value` is quoted to the user, or None if it may be secret."""

    def __init__(self, rule: str, value: str | None = None) -> None:
        self.rule = rule
        self.value = value


def printable(text: str) -> str:
    if not text.isprintable():  # including unpaired surrogates, from bytes that are not UTF-8
        raise InvalidValueError("must be printable UTF-8 text")
    return text


def integer(low: int, high: int) -> Callable[[str], int]:
    def check(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,12}", text) or not low <= int(text) <= high:
            raise InvalidValueError(f"must be an integer from {low} to {high}", repr(text))
        return int(text)

    return check


def auto_or_integer(low: int, high: int) -> Callable[[str], int | None]:
    """Return a parser for an integer or `auto`, which becomes None."""
    number = integer(low, high)

    def check(text: str) -> int | None:
        if text == "auto":
            return None
        try:
            return number(text)
        except InvalidValueError as invalid:
            raise InvalidValueError(f"{invalid.rule}, or auto", invalid.value) from None

    return check


def word(text: str) -> str:
    if re.search(r"\s", text):  # which would split `export $(snapbid env)`
        raise InvalidValueError("must have no white space", repr(text))
    return text


def host(text: str) -> str:
    if re.search(r"[\s/\[\]@]", text):
        raise InvalidValueError(
            "must be an address or a host name, without brackets or port", repr(text)
        )
    return text


def base_url(text: str) -> str:
    try:
        url = urlsplit(text)
        good = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:
        good = False
    if good and "@" in url.netloc:  # notification URLs would reveal it to everybody
        raise InvalidValueError("must not contain a user or a password", None)
    if not good or re.search(r"[\s?#]", text):
        raise InvalidValueError(
            "must be an http:// or https:// URL with a host and no query", repr(text)
        )
    return text.rstrip("/")


def database_url(text: str) -> str:
    scheme, separator, _ = text.partition("://")
    if not separator or scheme not in ("postgresql", "postgres"):
        value = f"the scheme {scheme!r}" if separator else None  # may hold a password
        raise InvalidValueError("must start with postgresql:// or postgres://", value)
    try:
        url = urlsplit(text)
        parse_qsl(url.query, strict_parsing=bool(url.query))
        hosts = url.netloc.rpartition("@")[2]
        good = not url.fragment and all(map(_HOST.fullmatch, hosts.split(",")))
    except ValueError:
        good = False
    if not good:  # quoting any part might quote the password
        raise InvalidValueError(
            "must be like postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with special characters"
            " of the password encoded (# as %23, / as %2F, ? as %3F, @ as %40)",
            None,
        )
    return text


def redis_url(text: str) -> str:
    try:
        addresses.parse(text)
    except ValueError as error:
        raise InvalidValueError(str(error)) from None
    return text


def secret(text: str) -> Secret:
    if not text.strip():
        raise InvalidValueError("must not be blank", None)
    if len(text.encode()) < SECRET_MIN_BYTES:
        raise InvalidValueError(
            f"must have at least {SECRET_MIN_BYTES} bytes", f"{len(text.encode())} bytes"
        )
    return Secret(text)


def token(text: str) -> Secret:
    if not re.fullmatch(rf"[!-~]{{{TOKEN_MIN_CHARACTERS},}}", text):
        raise InvalidValueError(
            f"must have at least {TOKEN_MIN_CHARACTERS} printable ASCII characters, without spaces",
            f"{len(text)} characters",
        )
    return Secret(text)


def home(text: str) -> Path:
    path = path_of(text)
    if path.exists() and not path.is_dir():
        raise InvalidValueError(
            "must be a directory, or a path where one can be created", repr(text)
        )
    return path


def file(text: str) -> Path:
    path = path_of(text)
    if not path.is_file():
        raise InvalidValueError("must be an existing file", repr(text))
    return path


def path_of(text: str) -> Path:
    try:
        path = Path(text).expanduser().absolute()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.stat()  # raises for names that no file system takes
    except OSError as error:
        raise InvalidValueError(f"cannot be used: {error.strerror}", repr(text)) from error
    except RuntimeError as error:  # from expanding ~user
        raise InvalidValueError(
            "must be a path: the user after ~ does not exist", repr(text)
        ) from error
    return path


def new_file(text: str) -> Path:
    path = path_of(text)
    if path.is_dir() or not path.parent.is_dir():
        raise InvalidValueError("must be a file in an existing directory", repr(text))
    return path


def networks(text: str) -> tuple[str, ...]:
    parts = [part.strip() for part in text.split(",")]
    try:
        return tuple(map(str, parse_networks(parts)))
    except ValueError as error:
        mistakes = "; ".join(str(error).splitlines())
        rule = f"must be addresses and networks, separated by commas: {mistakes}"
        raise InvalidValueError(rule) from None


def choice(*values: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text not in values:
            raise InvalidValueError(f"must be {' or '.join(values)}", repr(text))
        return text

    return check


def switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise InvalidValueError("must be 0 or 1", repr(text))
    return text == "1"


def share(text: str) -> float:
    if not re.fullmatch(r"[0-9]*\.?[0-9]+(e-[0-9]+)?", text) or not 0 < float(text) <= 1:
        raise InvalidValueError("must be a number above 0 and at most 1", repr(text))
    return float(text)
