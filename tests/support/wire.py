"""Hand-written HTTP/1.1 over a connection, to send what no client library would."""

import contextlib
import socket
from collections.abc import Mapping
from typing import Any

from support.http import Reply

PATIENCE_S = 60.0


class Wire:
    """A connection to a port of this machine."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connect()

    def _connect(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self._port), PATIENCE_S)
        self._reader = self.socket.makefile("rb")

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._reader.close()
        self.socket.close()

    def write(self, *parts: bytes) -> None:
        self.socket.sendall(b"".join(parts))

    def half_close(self) -> None:
        """Shut down the sending side."""
        with contextlib.suppress(OSError):  # the other side may have closed before
            self.socket.shutdown(socket.SHUT_WR)

    def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        """Make a request, on a new connection if the last answer closed it."""
        lengths = {"host": "bid.example", "content-length": str(len(body)), **(headers or {})}
        try:
            self.write(head(method, path, lengths), body)
            return self.read(method)
        finally:
            if self._closing:
                self.close()
                self._connect()

    def read(self, method: str = "POST") -> Reply:
        """Read the next answer. Raises EOFError if the connection ends first."""
        self._closing = True
        line = self._reader.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError
        status = int(line.split(b" ", 2)[1])
        headers: dict[str, str] = {}
        while (line := self._reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            assert name.lower() not in headers, f"{name} is sent twice"
            headers[name.lower()] = value.strip()
        size = 0 if method == "HEAD" or status == 204 else int(headers.get("content-length", 0))
        body = self._reader.read(size)
        if len(body) != size:
            raise EOFError
        self._closing = headers.get("connection", "").lower() == "close"
        return Reply(status, headers, body)

    def at_end(self) -> bool:
        """Whether the other side has closed and nothing is left to read."""
        try:
            return self._reader.read(1) == b""
        except ConnectionError:
            return True


def head(method: str, path: str, headers: Mapping[str, Any]) -> bytes:
    """A request line with headers."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chunked(*parts: bytes) -> bytes:
    """A complete chunked body."""
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
