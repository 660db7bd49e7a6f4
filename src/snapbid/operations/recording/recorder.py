"""Samples live bid requests into a JSON Lines file without slowing down their answers.

    {"at": epoch ms, "ssp": descriptor, "request": the scrubbed bid request}

A sampled request is copied as it arrives; a thread parses, scrubs and writes it. Large requests are
skipped, as are all requests while the thread cannot keep up. All workers of a machine append to the
same file, and stop once it has reached its size limit.
"""

import asyncio
import contextlib
import json
import logging
import os
import queue
import threading
import time
from hashlib import blake2b
from pathlib import Path
from random import random
from typing import Final, NamedTuple

from snapbid.base.errors import Problem, where
from snapbid.base.http import (
    Answer,
    HeaderList,
    Message,
    Receive,
    RequestHandler,
    encoding_of,
    inflate,
)
from snapbid.operations.recording.scrub import Scrubber

MAX_BODY: Final = 65_536  # bytes; parsing more would hold the GIL for too long
MAX_WAITING: Final = 64
CLOSE_S: Final = 5.0

logger = logging.getLogger(__name__)


class SampledRequest(NamedTuple):
    """A sampled request: its time (epoch ms), its SSP, and its body as received."""

    at_ms: int
    ssp: str
    body: bytes
    encoding: bytes


def open_file(path: Path) -> int:
    """Open a file for appending, or create it, readable only by its owner. Raises OSError."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


class Recorder:
    """Wraps handlers, and records a share of the requests that they get.

    `vendor`: our id in the IAB Global Vendor List. Raises OSError if the file cannot be opened for
    appending.
    """

    def __init__(
        self, path: Path, share: float, max_bytes: int, secret: bytes, vendor: int | None = None
    ) -> None:
        self._share = share
        self._max_bytes = max_bytes
        self._scrubber = Scrubber(
            blake2b(secret, person=b"record", digest_size=32).digest(), vendor
        )
        self._file = open_file(path)
        self._path = path
        self._waiting: queue.Queue[SampledRequest | None] = queue.Queue(MAX_WAITING)
        self._full = False
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._thread.start()

    def watch(self, ssp: str, handler: RequestHandler) -> RequestHandler:
        """Wrap the handler of an SSP so that a share of its requests is recorded."""

        async def watched(headers: HeaderList, receive: Receive) -> Answer:
            if self._full or random() >= self._share:
                return await handler(headers, receive)
            parts: list[bytes] = []

            async def copy() -> Message:
                message = await receive()
                parts.append(message.get("body", b""))
                return message

            # A task, because the body deadline cancels whatever it awaits.
            answered = await handler(headers, lambda: asyncio.ensure_future(copy()))
            self._offer(ssp, headers, parts)
            return answered

        return watched

    def close(self) -> None:
        """Write the queued requests and stop."""
        try:
            self._waiting.put(None, timeout=CLOSE_S)
        except queue.Full:
            return
        self._thread.join(CLOSE_S)

    def _offer(self, ssp: str, headers: HeaderList, parts: list[bytes]) -> None:
        if sum(map(len, parts)) > MAX_BODY:
            return
        encoding = dict(headers).get(b"content-encoding", b"")
        sample = SampledRequest(time.time_ns() // 1_000_000, ssp, b"".join(parts), encoding)
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
                continue  # not a bid request
            except Exception as error:  # a failure here must not affect serving
                logger.error("did not record a request: %(reason)s", {"reason": where(error)})
        os.close(self._file)

    def _line(self, sample: SampledRequest) -> bytes:
        """Format a sample as a line of the file.

        Raises Problem, ValueError or RecursionError if the sample is not a bid request.
        """
        body = sample.body
        if encoding := encoding_of(sample.encoding):
            body = inflate(body, MAX_BODY, encoding)
        request = json.loads(body)
        if not isinstance(request, dict):
            raise ValueError("not an object")
        kept = self._scrubber.scrub(request)
        document = {"at": sample.at_ms, "ssp": sample.ssp, "request": kept}
        return json.dumps(document, separators=(",", ":")).encode() + b"\n"

    def _write(self, line: bytes) -> None:
        if os.fstat(self._file).st_size + len(line) > self._max_bytes:
            self._full = True
            logger.warning(
                "stopped recording: %(path)s reached %(bytes)d bytes",
                {"path": self._path, "bytes": self._max_bytes},
            )
            return
        os.write(self._file, line)
