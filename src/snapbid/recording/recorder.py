"""Samples live bid requests into a file of JSON Lines, beside the serving and never in its way.

    {"at": epoch ms, "ssp": descriptor, "request": the scrubbed bid request}

A request that is drawn is copied as it comes in; a thread reads, scrubs and writes it. Where that
thread does not keep up, or a body is large, the request is left out. The workers of a machine
append to one file, which never grows over its bound.
"""

import contextlib
import json
import logging
import os
import queue
import threading
import time
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from pathlib import Path
from random import random
from typing import Final, NamedTuple, TypeAlias

from snapbid.errors import Problem, where
from snapbid.http import Answer, Headers, Message, Receive, inflate
from snapbid.recording.scrub import Scrubber

Handler: TypeAlias = Callable[[Headers, Receive], Awaitable[Answer]]

MAX_BODY: Final = 65_536  # bytes; reading more would keep the interpreter from serving
MAX_WAITING: Final = 64
CLOSE_S: Final = 5.0

logger = logging.getLogger("snapbid")


class Sample(NamedTuple):
    """A request as it came in."""

    at_ms: int
    ssp: str
    body: bytes
    encoding: bytes


def open_file(path: Path) -> int:
    """A descriptor to append to the file with; it is ours alone. Raises OSError."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


class Recorder:
    """Records a share of the requests of the handlers that it watches.

    Raises OSError where the file cannot be appended to.
    """

    def __init__(self, path: Path, share: float, max_bytes: int, secret: bytes) -> None:
        self._share = share
        self._max_bytes = max_bytes
        self._scrubber = Scrubber(blake2b(secret, person=b"record", digest_size=32).digest())
        self._file = open_file(path)
        self._path = path
        self._waiting: queue.Queue[Sample | None] = queue.Queue(MAX_WAITING)
        self._full = False
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._thread.start()

    def watch(self, ssp: str, handler: Handler) -> Handler:
        """The handler of an SSP, a share of its requests recorded."""

        async def watched(headers: Headers, receive: Receive) -> Answer:
            if self._full or random() >= self._share:
                return await handler(headers, receive)
            parts: list[bytes] = []

            async def copying() -> Message:
                message = await receive()
                parts.append(message.get("body", b""))
                return message

            answered = await handler(headers, copying)
            self._offer(ssp, headers, parts)
            return answered

        return watched

    def close(self) -> None:
        """Write what waits, and end."""
        try:
            self._waiting.put(None, timeout=CLOSE_S)
        except queue.Full:
            return
        self._thread.join(CLOSE_S)

    def _offer(self, ssp: str, headers: Headers, parts: list[bytes]) -> None:
        if sum(map(len, parts)) > MAX_BODY:
            return
        encoding = headers.get(b"content-encoding", b"")
        sample = Sample(time.time_ns() // 1_000_000, ssp, b"".join(parts), encoding)
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(sample)

    # -- in the thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        while (sample := self._waiting.get()) is not None:
            if self._full:
                continue
            try:
                self._write(self._line(sample))
            except (Problem, ValueError, RecursionError):
                continue  # it is no bid request
            except Exception as error:  # recording ends before serving does
                logger.error("a request is not recorded: %s", where(error))
        os.close(self._file)

    def _line(self, sample: Sample) -> bytes:
        """Raises Problem, ValueError or RecursionError for what is no bid request."""
        body = sample.body
        if b"gzip" in sample.encoding:
            body = inflate(body, MAX_BODY)
        request = json.loads(body)
        if not isinstance(request, dict):
            raise ValueError("no object")
        self._scrubber.scrub(request)
        document = {"at": sample.at_ms, "ssp": sample.ssp, "request": request}
        return json.dumps(document, separators=(",", ":")).encode() + b"\n"

    def _write(self, line: bytes) -> None:
        if os.fstat(self._file).st_size + len(line) > self._max_bytes:
            self._full = True
            logger.warning("%s has reached %d bytes: recording ends", self._path, self._max_bytes)
            return
        os.write(self._file, line)
