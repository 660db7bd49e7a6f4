"""`POST /v3/s2s/event` and `/v3/s2s/batch` over HTTP (document 3; contract 7).

Checked in this order: method (405), key (401), rate (429), type (415), size (413), JSON, headers,
events. A 202 leaves only after the queue has the events. Neither answers nor logs quote a value.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable
from time import time_ns
from typing import Final, Protocol

from snapbid.errors import MethodNotAllowed, NotFound, Problem, where
from snapbid.events import answers, asked, trial
from snapbid.events.asked import WRONG_TEST_MODE, Asked
from snapbid.events.enrich import Quotes
from snapbid.events.keys import Carried, Key, Keys, decode, rate_key
from snapbid.events.outcomes import Accepted, Batch, Product, Refusal, Single
from snapbid.events.problems import (
    Away,
    RateExceeded,
    Unauthorized,
    code_of_answer,
    problem_answer,
    refusal_answer,
)
from snapbid.events.routes import BATCH_PATH as BATCH
from snapbid.events.routes import PREFIX as PREFIX
from snapbid.events.routes import SINGLE_PATH as SINGLE
from snapbid.events.slices import Slices
from snapbid.events.trial import Enricher
from snapbid.events.validate import batch_steps, read_batch, read_single
from snapbid.http import Answer, Disconnected, Receive, Scope, json_answer, read_json_body, refused
from snapbid.ledger.rate import RateLimiter, RateLimiterUnavailable
from snapbid.metrics import Counters, Metrics
from snapbid.reference.agents import details
from snapbid.reference.geo import GeoDatabase
from snapbid.reference.history import DailyRates, History

NAMES: Final = {SINGLE: "single", BATCH: "batch"}
MAX_BYTES: Final = 4 << 20  # of a decompressed body
LONG: Final = 1 << 20  # bytes; events may be so large that slices do not help, a thread does
APPLIED: Final = (b"preference-applied", b"handling=lenient")

logger = logging.getLogger("snapbid")


class Keeps(Protocol):
    """A queue that keeps events; see `ledger.queue.EventQueue`."""

    async def put(
        self, received_at_ms: int, product: str, events: Iterable[tuple[str, bytes]]
    ) -> bool: ...


class EventEndpoints:
    """Both endpoints. `take_up` gives the keys, before which nobody is served."""

    def __init__(
        self,
        queue: Keeps,
        limiter: RateLimiter,
        metrics: Metrics,
        geo: GeoDatabase,
        history: History,
    ) -> None:
        self._queue = queue
        self._limiter = limiter
        self._metrics = metrics
        self._geo = geo
        self._history = history
        self._carried: Carried | None = None
        self._text = b""
        self._keys: Keys | None = None
        self._enricher = self._enricher_with(DailyRates(history))
        self._accepted = metrics.counter("snapbid_events_accepted_total")
        self._requests = Counters(metrics, "snapbid_event_requests_total", "endpoint", "code")
        self._turn = asyncio.Lock()  # one batch at a time is read in slices
        self._works: dict[str, Callable[[bytes, Key, Asked], Awaitable[Answer]]] = {
            SINGLE: self._single,
            BATCH: self._batch,
        }

    def take_up(self, text: bytes) -> None:
        """Take up what a new catalog carries for events."""
        if text == self._text:
            return
        carried = decode(text)
        if self._carried is None or carried.rates != self._carried.rates:
            self._enricher = self._enricher_with(DailyRates(self._history, carried.rates))
        self._keys, self._carried, self._text = Keys(carried.keys), carried, text

    def _enricher_with(self, rates: Quotes) -> Enricher:
        return Enricher(self._geo.place, details, rates)

    async def __call__(self, scope: Scope, receive: Receive) -> Answer:
        """Any request below `PREFIX`."""
        try:
            given = await self._answer(scope, receive)
        except Disconnected:
            raise
        except Problem as problem:
            given = problem_answer(problem)
        except Exception as error:  # whose text, and cause, may quote the request
            logger.error("an event request failed: %s", where(error))
            given = problem_answer(Problem("the request could not be served"))
        self._requests.inc(NAMES.get(scope["path"], "other"), code_of_answer(given))
        return given

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        work = self._works.get(scope["path"])
        if work is None:
            raise await refused(NotFound("there is nothing at this path"), receive)
        if scope["method"] != "POST":
            raise await refused(MethodNotAllowed("POST"), receive)
        headers = dict(scope["headers"])
        try:
            key = await self._admit(headers.get(b"x-api-key", b""))
        except Problem as problem:
            raise await refused(problem, receive) from None
        body = await read_json_body(headers, receive, MAX_BYTES)
        return await work(body, key, asked.read(scope["headers"]))

    async def _admit(self, given: bytes) -> Key:
        """The key of a request that is within its rate."""
        if self._keys is None:
            raise Away
        key = self._keys.find(given)
        if key is None:
            raise Unauthorized
        try:
            admission = await self._limiter.admit(rate_key(key.digest), key.rate)
        except RateLimiterUnavailable as error:  # nothing could be kept either
            raise Away from error
        if not admission.admitted:
            raise RateExceeded(key.rate, admission.wait_s)
        return key

    async def _single(self, body: bytes, key: Key, ask: Asked) -> Answer:
        now_ms = time_ns() // 1_000_000
        test = bool(ask.test)
        if len(body) > LONG:
            read = await asyncio.to_thread(read_single, body, key.product, now_ms, test=test)
        else:
            read = read_single(body, key.product, now_ms, test=test)
        if isinstance(read, Refusal) or ask.test is None:
            return refusal_answer(_first(read, ask))
        if test:
            return json_answer(200, trial.single(read, self._enricher))
        await self._keep(now_ms, key.product, [read.event])
        return json_answer(202, answers.accepted(read.event))

    async def _batch(self, body: bytes, key: Key, ask: Asked) -> Answer:
        now_ms = time_ns() // 1_000_000
        async with self._turn:
            slices = Slices()
            read = await self._read_batch(body, key.product, now_ms, ask, slices)
            if isinstance(read, Refusal) or ask.test is None:
                return refusal_answer(_first(read, ask))
            if ask.test:
                return json_answer(200, await trial.batch(read, self._enricher, slices))
        if read.accepted:
            await self._keep(now_ms, key.product, read.accepted)
        request_id = f"req-{secrets.token_hex(16)}"
        document = answers.accepted_batch(read, request_id, lenient=ask.lenient)
        return json_answer(202, document, *([APPLIED] if ask.lenient else []))

    async def _read_batch(
        self, body: bytes, product: Product, now_ms: int, ask: Asked, slices: Slices
    ) -> Batch | Refusal:
        lenient, test = ask.lenient, bool(ask.test)
        if len(body) > LONG:
            return await asyncio.to_thread(
                read_batch, body, product, now_ms, lenient=lenient, test=test
            )
        return await slices.run(batch_steps(body, product, now_ms, lenient=lenient, test=test))

    async def _keep(self, now_ms: int, product: Product, events: list[Accepted]) -> None:
        kept = ((event.event_id, event.envelope) for event in events)
        if not await self._queue.put(now_ms, product.name, kept):
            raise Away
        self._accepted.inc(len(events))


def _first(read: Single | Batch | Refusal, ask: Asked) -> Refusal:
    """What is wrong first: a body that is no JSON, a header, the events."""
    if isinstance(read, Refusal):
        malformed = any(found.rule == "malformed_json" for found in read.violations)
        if malformed or ask.test is not None:
            return read
    return WRONG_TEST_MODE
