"""Sends event batches (document 3) alongside bid requests, at a separate rate.

Each batch is sent many times, each time with new ids, so that none of its events is a duplicate.
"""

import secrets
import time
from typing import Final

import msgspec

from snapbid.loadtest import events
from snapbid.loadtest.client import Call, LoadClient
from snapbid.loadtest.histogram import LatencyHistogram

DISTINCT_BATCHES: Final = 16
_IDS: Final = b'_id": "'
_NUMBER: Final = b"%08x-"


class _BatchAccepted(msgspec.Struct):
    count: int


class BatchCounts(msgspec.Struct):
    """Batches sent and failed, the first failure, and events accepted.

    A batch failed unless all its events were accepted.
    """

    sent: int = 0
    accepted: int = 0
    failed: int = 0
    example: str = ""
    histogram: LatencyHistogram = msgspec.field(default_factory=LatencyHistogram)

    def __iadd__(self, other: "BatchCounts") -> "BatchCounts":
        """Add the counts of another generator."""
        self.sent += other.sent
        self.accepted += other.accepted
        self.failed += other.failed
        self.example = self.example or other.example
        self.histogram.add(other.histogram)
        return self


class EventSender:
    """Sends a batch of `size` events whenever one is due."""

    def __init__(
        self, client: LoadClient, host: str, key: str, size: int, rate: float, seed: int
    ) -> None:
        self._client = client
        self._size = size
        self._gap = 1 / rate
        self._number = secrets.randbits(31)  # unique across runs
        self.due = float("inf")
        self.counts = BatchCounts()
        self.open = 0
        now_ms = time.time_ns() // 1_000_000
        seeds = range(seed, seed + DISTINCT_BATCHES)
        self._wires = [_wire(host, key, size, batch_seed, now_ms) for batch_seed in seeds]

    def send(self, now: float) -> None:
        """Send the batches that are due."""
        while self.due <= now:
            head, body = self._wires[self._number % DISTINCT_BATCHES]
            wire = head + body.replace(_IDS, _IDS + _NUMBER % self._number)
            self._number += 1
            self.counts.sent += 1
            self.open += 1
            self._client.submit(Call(wire, self.due, self, None))
            self.due += self._gap

    def answered(self, call: Call, status: int, body: bytes, now: float) -> None:
        self.open -= 1
        self.counts.histogram.record(now - call.due)
        try:
            if status == 202:
                accepted = msgspec.json.decode(body, type=_BatchAccepted).count
                self.counts.accepted += accepted
                if accepted == self._size:
                    return
        except (msgspec.DecodeError, RecursionError):
            pass
        self._fail(f"status {status}: {body[:200].decode(errors='replace')}")

    def dropped(self, call: Call, now: float) -> None:
        self._end(call, now, "no connection was free in time")

    def lost(self, call: Call, now: float) -> None:
        self._end(call, now, "no answer")

    def _end(self, call: Call, now: float, why: str) -> None:
        self.open -= 1
        self.counts.histogram.record(now - call.due)
        self._fail(why)

    def _fail(self, why: str) -> None:
        self.counts.failed += 1
        self.counts.example = self.counts.example or why


def _wire(host: str, key: str, size: int, seed: int, now_ms: int) -> tuple[bytes, bytes]:
    """Return a request's head and body.

    The body lacks the numbers that `send` appends to the ids, but Content-Length includes them.
    """
    body = events.encode(events.generate(size, seed, now_ms))
    length = len(body) + body.count(_IDS) * len(_NUMBER % 0)
    head = (
        f"POST /v3/s2s/batch HTTP/1.1\r\nHost: {host}\r\nX-API-KEY: {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
    return head.encode(), body
