"""`POST /v3/s2s/event` and `/v3/s2s/batch` over HTTP (document 3; contract 7).

Checks come in this order: method (405), key (401), rate (429), type (415), size (413), JSON,
headers, events. A 202 is sent only once the events are queued. Neither answers nor logs quote
values from the request.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from time import time_ns
from typing import Final, NamedTuple, Protocol

import asyncpg

from snapbid.base.errors import MethodNotAllowed, NotFound, Problem, where
from snapbid.base.http import (
    Answer,
    BodyDeadline,
    Disconnected,
    Receive,
    Scope,
    SentBody,
    read_sent_body,
    refused,
)
from snapbid.catalog.catalog import EventConfig
from snapbid.events import answers, attribution
from snapbid.events.answers import (
    CodedAnswer,
    EnrichedEvent,
    EventsUnavailable,
    RateExceeded,
    UnknownApiKey,
)
from snapbid.events.attribution import Counting
from snapbid.events.enrich import Enricher, value_micros
from snapbid.events.keys import ApiKey, ApiKeys
from snapbid.events.outcomes import AcceptedEvent, BatchResult, Product, SingleResult
from snapbid.events.rulebook import VALIDATION_ERROR, FieldFinding, RefusedRequest
from snapbid.events.strict_json import Malformed
from snapbid.events.turns import BatchTurns, Slices
from snapbid.events.validate import batch_steps, read_single, refuse_malformed
from snapbid.metrics import Counters, Metrics
from snapbid.queues.rate import RateLimiter, RateLimiterUnavailable, Refusal
from snapbid.reference.agents import details
from snapbid.reference.geo import GeoDatabase
from snapbid.reference.history import DailyRates, History
from snapbid.warehouse.unavailable import UNAVAILABLE

SINGLE_PATH: Final = "/v3/s2s/event"
BATCH_PATH: Final = "/v3/s2s/batch"
PREFIX: Final = "/v3/"

ROUTES: Final = {SINGLE_PATH: "events_single", BATCH_PATH: "events_batch"}
"""The label `route` of `snapbid_http_requests_total`, by path."""

MAX_BYTES: Final = 4 << 20  # of a decompressed body
EVENT_BYTES: Final = 4096  # larger events count as several
PREVIEW_S: Final = 1.0  # time limit for previews in test mode
TEST_MODE: Final = "X-Test-Mode"

WRONG_TEST_MODE: Final = RefusedRequest(
    VALIDATION_ERROR,
    f"{TEST_MODE} must be true, false or absent",
    [FieldFinding(TEST_MODE, "enum", None)],
)

_TEST_MODE: Final = b"x-test-mode"
_PREFER: Final = b"prefer"
_TEST_MODES: Final = {b"true": True, b"false": False, b"": False}
_METRIC_LABELS: Final = {SINGLE_PATH: "single", BATCH_PATH: "batch"}

logger = logging.getLogger(__name__)


def is_event_path(path: str) -> bool:
    """Return whether a path is below `/v3/`; `EventEndpoints` answers unknown paths with 404."""
    return path.startswith(PREFIX)


class EventSink(Protocol):
    """A durable queue of accepted events; see `queues.queues`."""

    async def put(
        self, received_at_ms: int, product: str, events: Sequence[tuple[str, bytes]]
    ) -> bool: ...


class RequestOptions(NamedTuple):
    """Options set by request headers; `test` is None for an invalid `X-Test-Mode`."""

    test: bool | None
    lenient: bool


PLAIN: Final = RequestOptions(test=False, lenient=False)


class EventEndpoints:
    """The single and the batch endpoint. Until `take_up` is called, they answer POST with 503."""

    def __init__(
        self,
        queue: EventSink,
        limiter: RateLimiter,
        metrics: Metrics,
        geo: GeoDatabase,
        history: History,
        pool: asyncpg.Pool,
        body_deadline: BodyDeadline,
    ) -> None:
        self._queue = queue
        self._pool = pool
        self._body_deadline = body_deadline
        self._preview_turn = asyncio.Lock()  # at most one preview uses the reports' connections
        self._limiter = limiter
        self._geo = geo
        self._history = history
        self._config: EventConfig | None = None
        self._keys: ApiKeys | None = None
        self._enricher = Enricher(geo.place, details, DailyRates(history))
        self._accepted = metrics.counter("snapbid_events_accepted_total")
        self._requests = Counters(metrics, "snapbid_event_requests_total", "endpoint", "code")
        self._turns, self._slices = BatchTurns(), Slices()
        self._handlers: dict[
            str, Callable[[SentBody, ApiKey, RequestOptions], Awaitable[CodedAnswer]]
        ] = {SINGLE_PATH: self._single, BATCH_PATH: self._batch}

    def take_up(self, config: EventConfig) -> None:
        """Switch to the API keys and exchange rates of a new catalog."""
        if config == self._config:
            return
        if self._config is None or config.rates != self._config.rates:
            rates = DailyRates(self._history, config.rates)
            self._enricher = self._enricher._replace(rates=rates)
        self._keys, self._config = ApiKeys(config.keys), config

    async def __call__(self, scope: Scope, receive: Receive) -> Answer:
        """Answer any request below `PREFIX`. Raises Disconnected."""
        try:
            answer, code = await self._answer(scope, receive)
        except Disconnected:
            raise
        except Problem as problem:
            answer, code = answers.failed(problem)
        except Exception as error:  # its text and cause may quote the request
            logger.error(
                "failed to serve an event request: %(reason)s; answered 500",
                {"reason": where(error)},
            )
            answer, code = answers.failed(Problem("the request could not be served"))
        self._requests.inc(_METRIC_LABELS.get(scope["path"], "other"), code)
        return answer

    async def _answer(self, scope: Scope, receive: Receive) -> CodedAnswer:
        handler = self._handlers.get(scope["path"])
        if handler is None:
            raise await refused(NotFound("there is nothing at this path"), receive)
        if scope["method"] != "POST":
            raise await refused(MethodNotAllowed("POST"), receive)
        headers = dict(scope["headers"])
        try:
            keys = [value for name, value in scope["headers"] if name == b"x-api-key"]
            key = await self._admit(b", ".join(keys))  # a field that is repeated is one value
        except Problem as problem:
            raise await refused(problem, receive) from None
        sent = await read_sent_body(headers, receive, MAX_BYTES, self._body_deadline)
        plain = _TEST_MODE not in headers and _PREFER not in headers
        return await handler(sent, key, PLAIN if plain else read_options(scope["headers"]))

    async def _admit(self, given: bytes) -> ApiKey:
        """Return a request's API key. Raises UnknownApiKey, RateExceeded or EventsUnavailable."""
        if self._keys is None:
            raise EventsUnavailable
        key = self._keys.find(given)
        if key is None:
            raise UnknownApiKey
        await _within(self._limiter.admit_events(key.rate_key, key.rate, key.events))
        return key

    async def _single(self, sent: SentBody, key: ApiKey, options: RequestOptions) -> CodedAnswer:
        now_ms = time_ns() // 1_000_000
        test = bool(options.test)
        result = read_single(sent.inflated(MAX_BYTES), key.product, now_ms, test=test)
        if isinstance(result, RefusedRequest) or options.test is None:
            return answers.refused(_first_refusal(result, options))
        if test:
            found = answers.enrich(result.event, self._enricher)
            (counting,) = await self._attribute([found], key.product, now_ms)
            return answers.tested(result, found, counting)
        await self._keep(now_ms, key, [result.event])
        return answers.accepted(result.event)

    async def _batch(self, sent: SentBody, key: ApiKey, options: RequestOptions) -> CodedAnswer:
        now_ms = time_ns() // 1_000_000
        async with self._turns.take(key.product.name, len(sent.body)):
            result = await self._read_batch(sent.inflated(MAX_BYTES), key.product, now_ms, options)
            if isinstance(result, RefusedRequest) or options.test is None:
                return answers.refused(_first_refusal(result, options))
            if options.test:
                found = await self._slices.run(answers.enrich_batch(result, self._enricher))
        if options.test:
            countings = await self._attribute(found, key.product, now_ms)
            return answers.tested_batch(result, found, countings)
        if result.accepted:
            await self._keep(now_ms, key, result.accepted)
        request_id = f"req-{secrets.token_hex(16)}"
        return answers.accepted_batch(result, request_id, lenient=options.lenient)

    async def _read_batch(
        self, body: bytes, product: Product, now_ms: int, options: RequestOptions
    ) -> BatchResult | RefusedRequest:
        lenient, test = options.lenient, bool(options.test)
        steps = batch_steps(body, product, now_ms, lenient=lenient, test=test)
        try:
            return await self._slices.run(steps)
        except Malformed as reason:  # locating the error can take as long as reading the batch
            return await asyncio.to_thread(refuse_malformed, body, reason)

    async def _attribute(
        self, events: Sequence[EnrichedEvent], product: Product, now_ms: int
    ) -> Sequence[Counting]:
        """Preview the conversions of events; there are none while the warehouse is unavailable."""
        rows = [
            attribution.row_of(
                event, product.name, now_ms, value_micros(document, enriched.document)
            )
            for event, document, enriched in events
        ]
        try:
            async with (
                asyncio.timeout(PREVIEW_S),
                self._preview_turn,
                self._pool.acquire() as connection,
            ):
                return await attribution.preview(connection, rows)
        except UNAVAILABLE:
            return [Counting()] * len(rows)

    async def _keep(self, now_ms: int, key: ApiKey, events: list[AcceptedEvent]) -> None:
        """Queue a request's events, and count them against the key's limit.

        The first event was counted when the request was admitted. Raises RateExceeded or
        EventsUnavailable.
        """
        entries = [(event.event_id, event.envelope) for event in events]
        size = sum([len(event.envelope) for event in events])
        if (more := max(len(entries), size // EVENT_BYTES) - 1) > 0:
            await _within(self._limiter.admit_more(key.rate_key, key.events, more))
        if not await self._queue.put(now_ms, key.product.name, entries):
            raise EventsUnavailable
        self._accepted.inc(len(events))


async def _within(asking: Awaitable[Refusal | None]) -> None:
    """Raise RateExceeded if a rate limit refuses a request, EventsUnavailable if Redis is down."""
    try:
        refusal = await asking
    except RateLimiterUnavailable as error:  # Redis is down, and the queue with it
        raise EventsUnavailable from error
    if refusal is not None:
        raise RateExceeded(refusal.limit, refusal.what, refusal.wait_s)


def read_options(fields: Iterable[tuple[bytes, bytes]]) -> RequestOptions:
    """Read options from headers (lower-case names), joining repeated headers (RFC 9110, 5.2)."""
    test_modes, preferences = [], []
    for name, value in fields:
        if name == _TEST_MODE:
            test_modes.append(value)
        elif name == _PREFER:
            preferences.append(value)
    test = _TEST_MODES.get(b", ".join(test_modes).strip().lower())
    lenient = bool(preferences) and not test and _is_lenient(b",".join(preferences))
    return RequestOptions(test, lenient)


def _is_lenient(preferences: bytes) -> bool:
    """Return whether the first `handling` preference is lenient (RFC 7240, 2 and 4.4)."""
    for preference in preferences.lower().split(b","):
        name, _, value = preference.partition(b";")[0].partition(b"=")
        if name.strip() == b"handling":
            return value.strip().strip(b'"') == b"lenient"
    return False


def _first_refusal(
    result: SingleResult | BatchResult | RefusedRequest, options: RequestOptions
) -> RefusedRequest:  # fmt: skip
    """Return the refusal that takes precedence: malformed JSON, then headers, then events."""
    if isinstance(result, RefusedRequest):
        malformed = any(violation.rule == "malformed_json" for violation in result.violations)
        if malformed or options.test is not None:
            return result
    return WRONG_TEST_MODE
