"""Requests over HTTP, on a new connection each or on one that stays open."""

import contextlib
import http.client
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

HOST: Final = "127.0.0.1"
PATIENCE_S: Final = 60.0
NO_HEADERS: Final[Mapping[str, str]] = {}


class Reply(NamedTuple):
    """An answer; names of headers in lower case, an absent body is empty."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


@contextlib.contextmanager
def connected(
    port: int, *, host: str = HOST, source: str | None = None, within_s: float = PATIENCE_S
) -> Iterator[http.client.HTTPConnection]:
    """A connection from the address `source`, reopened when the server has closed it."""
    address = (source, 0) if source else None
    client = http.client.HTTPConnection(host, port, timeout=within_s, source_address=address)
    with contextlib.closing(client):
        yield client


def ask_on(
    client: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
) -> Reply:
    """Make a request on this connection."""
    client.request(method, path, body, dict(headers))
    answer = client.getresponse()
    named = {name.lower(): value for name, value in answer.getheaders()}
    return Reply(answer.status, named, answer.read())


def ask(
    port: int,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
    *,
    host: str = HOST,
    source: str | None = None,
    within_s: float = PATIENCE_S,
) -> Reply:
    """Make a request on a connection of its own, which any worker may take."""
    with connected(port, host=host, source=source, within_s=within_s) as client:
        return ask_on(client, method, path, body, headers)
