"""Keep-alive HTTP connections that tell answers from lost ones, whatever breaks in between."""

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import NamedTuple

PATIENCE_S = 60.0


class Reply(NamedTuple):
    """An answer, and how long it took (s)."""

    status: int
    body: bytes
    seconds: float


@dataclass
class Lane:
    """A connection to 127.0.0.1, reopened whenever it has ended."""

    port: int
    reader: asyncio.StreamReader | None = None
    writer: asyncio.StreamWriter | None = None

    async def get(self, target: str, token: str = "") -> Reply | None:
        bearer = f"authorization: Bearer {token}\r\n" if token else ""
        head = f"GET {target} HTTP/1.1\r\nhost: bid.example\r\n{bearer}\r\n"
        return await self._ask(head.encode())

    async def post(self, target: str, body: bytes) -> Reply | None:
        return await self._ask(
            b"POST %b HTTP/1.1\r\nhost: bid.example\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (target.encode(), len(body), body)
        )

    async def _ask(self, message: bytes) -> Reply | None:
        """Make a request; None if no answer came, so that it may or may not have been served."""
        await self._connect()
        assert self.reader
        assert self.writer
        started = time.perf_counter()
        try:
            self.writer.write(message)
            head = await self.reader.readuntil(b"\r\n\r\n")
            status = int(head[9:12])
            at = head.lower().find(b"content-length: ")
            size = int(head[at + 16 : head.index(b"\r", at)]) if at >= 0 else 0
            body = await self.reader.readexactly(size) if size else b""
        except (OSError, EOFError):
            self.close()
            return None
        return Reply(status, body, time.perf_counter() - started)

    async def _connect(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.writer is None:
            assert time.monotonic() < deadline, f"nobody listens on port {self.port}"
            with contextlib.suppress(OSError):
                self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
                return
            await asyncio.sleep(0.02)  # the worker is being replaced

    def close(self) -> None:
        if self.writer:
            self.writer.transport.abort()
        self.reader = self.writer = None
