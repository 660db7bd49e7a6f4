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
SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")  # in the NAME_PORT of a Kubernetes Service

_HOST = re.compile(r"(?:\[[^\]]*\]|[^\[\]:]*)(?::([0-9]+))?")
_TLS_VERSION = ("TLSv1, TLSv1.1, TLSv1.2 or TLSv1.3", re.compile(r"TLSv1([._][123])?"))
_DATABASE_OPTIONS = {  # option -> its values, and the pattern that asyncpg accepts
    "sslmode": (
        "disable, allow, prefer, require, verify-ca or verify-full",
        re.compile(r"disable|allow|prefer|require|verify[-_](ca|full)"),
    ),
    "target_session_attrs": (
        "any, primary, standby, read-write, read-only or prefer-standby",
        re.compile(r"any|primary|standby|read-write|read-only|prefer-standby"),
    ),
    "sslnegotiation": ("postgres or direct", re.compile(r"postgres|direct")),
    "ssl_min_protocol_version": _TLS_VERSION,
    "ssl_max_protocol_version": _TLS_VERSION,
    "gsslib": ("gssapi or sspi", re.compile(r"gssapi|sspi")),
}


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
    """A value is invalid; `rule` says what it must be.

    `value` is shown to the user; None if it may be secret.
    """

    def __init__(self, rule: str, value: str | None = None) -> None:
        self.rule = rule
        self.value = value


def printable(text: str) -> str:
    if not text.isprintable():  # including unpaired surrogates, from bytes that are not UTF-8
        raise InvalidValueError("must be printable UTF-8 text")
    return text


def unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        raise InvalidValueError(
            "must not be in quotes: other than systemd and shells, docker and kubectl keep those of"
            " an env file",
            None,
        )
    return text


def integer(low: int, high: int) -> Callable[[str], int]:
    def check(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,12}", text) or not low <= int(text) <= high:
            raise InvalidValueError(f"must be an integer from {low} to {high}", repr(text))
        return int(text)

    return check


def port(text: str) -> int:
    if SERVICE_URL.match(text):
        raise InvalidValueError(
            "must be an integer from 1 to 65535, not the address that Kubernetes adds for a Service"
            " of this name: set it, or set enableServiceLinks: false in the pod's spec",
            repr(text),
        )
    return integer(1, 65_535)(text)


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
        options = dict(parse_qsl(url.query, strict_parsing=bool(url.query)))
        lists = (url.netloc.rpartition("@")[2], options.get("host", ""))
        hosts = [host for part in lists if part for host in part.split(",")]
        found = [_HOST.fullmatch(host) for host in hosts if not host.startswith("/")]
        good = not url.fragment and all(hosts) and all(found)
    except ValueError:
        good = False
    if not good:  # quoting any part might quote the password
        raise InvalidValueError(
            "must be like postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with special characters"
            " of the password encoded (# as %23, / as %2F, ? as %3F, @ as %40)",
            None,
        )
    ports = [each[1] for each in found if each is not None and each[1] is not None]
    ports += options["port"].split(",") if "port" in options else []
    if not all(re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 65_536 for port in ports):
        raise InvalidValueError("must have ports from 1 to 65535", None)
    for name, (values, pattern) in _DATABASE_OPTIONS.items():
        if name in options and not pattern.fullmatch(options[name]):
            raise InvalidValueError(f"must have {values} in the option {name}", repr(options[name]))
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
