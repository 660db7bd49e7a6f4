"""Drain accepted events from the streams into the warehouse, exactly once (contract 7).

A round takes requests from each of this drain's streams, alternating between products. It enriches
their events, and stores them in one transaction together with the flags of their sequences, the
clicks for which they count (events/attribution.py) and facts about persons (audiences.py).
Then it deletes the stream entries. A round interrupted anywhere is simply repeated: the warehouse
keeps the first event of each id, so storing it again changes nothing.

An event that the warehouse refuses is found by bisection, and dead-lettered alone. So is an event
that fails in any other way, such as a timeout or a lost connection: its product is then drained
separately, and any batch that fails twice is halved (suspects.py). Events are blamed only if the
warehouse can store a plain event at the same time.

One drain at a time stores events of a product: after the number of shards has changed, a product
may have events in several streams, and each drain must see the events of a sequence that the others
have stored.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from time import monotonic, time
from typing import Final, NamedTuple

import asyncpg
import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.campaigns.persons import PersonKey
from snapbid.campaigns.suppression import Suppression
from snapbid.drain import audiences, forgetting, sequences
from snapbid.drain.drain import LAGS
from snapbid.drain.event_days import EventDays
from snapbid.drain.streams import EventStream, EventStreams, Waiting
from snapbid.drain.suspects import TWICE, Suspects
from snapbid.events import attribution
from snapbid.events.enrich import Enricher, value_micros
from snapbid.metrics import Metrics
from snapbid.queues import queue
from snapbid.reference.agents import details
from snapbid.reference.geo import GeoDatabase
from snapbid.reference.history import DailyRates, History
from snapbid.warehouse import events, persons, rates
from snapbid.warehouse.events import DeadLetter, EventRow

ROWS: Final = 1_000  # in one transaction
ROUND_S: Final = 3.0  # after which a round ends, whatever is left
REVISE_S: Final = 1.0  # spent on flagging cash-outs again, per round
STATEMENT_S: Final = 3.0  # for a statement, once its transaction has the locks
DATA_ERRORS: Final = ("22", "23", "54", "P0")  # SQLSTATE classes of errors in the row itself
STORE_ERRORS: Final = frozenset(("25006", "53100", "53300", "57P01", "57P02", "57P03", "58030"))
"""SQLSTATEs not caused by any row: read-only, disk full, too many connections, shutdown, I/O
error."""

_CONNECTION_ENDED: Final = (asyncpg.InterfaceError, asyncpg.PostgresConnectionError)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

logger = logging.getLogger(__name__)


class Queued(NamedTuple):
    """An accepted event, as read from a stream."""

    received_at_ms: int
    product: str
    event_id: str
    envelope: bytes

    def letter(self, reason: str) -> DeadLetter:
        payload = queue.encode(self.received_at_ms, self.product, [(self.event_id, self.envelope)])
        return DeadLetter(
            self.event_id, self.product, _moment(self.received_at_ms), reason, payload
        )


class EventDrain:
    """The drain of event streams into the warehouse.

    `clock` returns epoch seconds. `keep_days`: how long events are kept; None for ever.
    """

    def __init__(
        self,
        redis: Redis,
        metrics: Metrics,
        geo: GeoDatabase,
        history: History,
        clock: Callable[[], float] = time,
        keep_days: int | None = None,
        shards: int = 1,
    ) -> None:
        self._streams = EventStreams(redis, shards)
        self._days = EventDays(keep_days, clock)
        self._geo = geo
        self._history = history
        self._clock = clock
        self._rates_revision: int | None = None
        self._enricher = Enricher(geo.place, details, DailyRates(history))
        self._suppression = Suppression()
        self._suppression_mark: tuple[object, ...] | None = None
        self._persons = PersonKey(b"")
        self._suspects = Suspects()
        self._revised_at_once = ROWS
        self._revisions_failed = 0
        self._stored = metrics.counter("snapbid_events_stored_total")
        self._conflicts = metrics.counter("snapbid_event_conflicts_total")
        self._dead = metrics.counter("snapbid_event_dead_letters_total")
        self._lag = metrics.histogram("snapbid_event_lag_seconds", LAGS)

    async def begin(self) -> None:
        """Forget the requests read from the streams; the next round reads them again."""
        self._streams.forget()

    async def round(self, connection: asyncpg.Connection) -> int:
        """Drain queued events, for about ROUND_S; return how many events were drained.

        Raises the errors of Redis and the warehouse; the round can then be repeated. Raises
        IdleError if other drains have all streams, and ShardsUnavailableError if some streams are
        unavailable.
        """
        streams = await self._streams.share(connection)
        await self._days.look(connection, keeps=any(stream.number == 0 for stream in streams))
        await self._look_at_rates(connection)
        drained, errors, left = 0, dict[int, RedisError](), streams
        until = monotonic() + ROUND_S
        while left and monotonic() < until:  # round-robin, however full one of them is
            busy = []
            for stream in left:
                try:
                    count = await self._drain_some(connection, stream)
                except RedisError as error:
                    stream.forget()
                    errors[stream.number] = error
                    continue
                if count is not None:
                    drained += count
                    busy.append(stream)
            left = busy
        await self._revise(connection)
        self._streams.note(streams, errors)
        return drained

    async def _drain_some(self, connection: asyncpg.Connection, stream: EventStream) -> int | None:
        """Drain part of a stream; return the number of events, None if the stream is empty."""
        await stream.look()
        requests = await stream.take(ROWS, self._suspects.products)
        count = await self._drain_or_put_back(connection, stream, requests)
        suspect = self._suspects.next_of(stream.waits)
        if suspect is None:
            return count if requests else None
        more = await stream.take_of(suspect, ROWS)
        return count + await self._drain_or_put_back(connection, stream, more)

    async def _drain_or_put_back(
        self, connection: asyncpg.Connection, stream: EventStream, requests: Sequence[Waiting]
    ) -> int:
        """Drain requests; return the number of events.

        On failure, puts the requests back and marks their products as suspects. Raises the
        warehouse's error if the connection is lost, or if not even a minimal test event can be
        stored.
        """
        products = {request.product for request in requests}
        try:
            count, unstored = await self._drain(connection, requests)
        except Exception as error:
            stream.put_back(requests)
            is_new = not products <= self._suspects.products.keys()
            self._suspects.add(products)
            if connection.is_closed():
                raise
            await self._probe_with_plain_event(connection)
            if is_new:
                logger.warning(
                    "failed to store %(requests)d event requests: %(reason)s; retrying in smaller"
                    " batches",
                    {"requests": len(requests), "reason": type(error).__name__},
                )
            return 0
        self._suspects.clear(products)
        await stream.finish(requests, unstored)
        return count

    async def _probe_with_plain_event(self, connection: asyncpg.Connection) -> None:
        """Store a plain event and undo it; raise the warehouse's error if even that fails."""
        now = _moment(round(self._clock() * 1000))
        context = {"bonus_id": "plain"}
        sequence = sequences.digest("", sequences.CLAIMED, context)
        plain = EventRow(
            "plain", "", sequences.CLAIMED, now, now, None, None, None, _json(context), "{}", b"",
            sequence,
        )  # fmt: skip
        transaction = connection.transaction()
        await transaction.start()
        try:
            await persons.hold_erasure(connection)
            await events.limit_statements(connection, STATEMENT_S)
            await events.store(connection, await events.claim(connection, [plain]), [plain])
            await sequences.check(connection, [plain])
        finally:
            if not connection.is_closed():
                await transaction.rollback()

    async def _revise(self, connection: asyncpg.Connection) -> None:
        """Recompute the flags of cash-outs that came before events to which they refer.

        Works in pages, which shrink after failures. A cash-out that fails even in a page of its own
        keeps its flags.
        """
        until = monotonic() + REVISE_S
        more = 1
        while more and monotonic() < until:
            rows = self._revised_at_once
            try:
                more = await sequences.revise(connection, rows, STATEMENT_S)
            except Exception as error:
                self._revisions_failed += 1
                if connection.is_closed():
                    raise
                await self._probe_with_plain_event(connection)
                if self._revisions_failed < TWICE:
                    continue
                if rows == 1:
                    logger.error(
                        "failed to revise the flags of 1 cash-out: %(reason)s; keeping them",
                        {"reason": type(error).__name__},
                    )
                    await sequences.skip(connection)
                self._revised_at_once = max(1, rows // 2)
                self._revisions_failed = 0
            else:
                self._revised_at_once = min(ROWS, 2 * rows)
                self._revisions_failed = 0

    async def _look_at_rates(self, connection: asyncpg.Connection) -> None:
        revision = await rates.revision(connection)
        if revision != self._rates_revision:
            daily = DailyRates(self._history, await rates.fetch_all(connection))
            self._enricher = self._enricher._replace(rates=daily)
            self._rates_revision = revision

    async def _drain(
        self, connection: asyncpg.Connection, requests: Sequence[Waiting]
    ) -> tuple[int, Counter[str]]:
        """Store the events of requests, or dead-letter them.

        Return the number of events, and how many of them got no row, by minute and product.
        """
        letters: list[DeadLetter] = []
        unstored = Counter[str]()
        queued = [event for request in requests for event in _read(request, letters)]
        for start in range(0, len(queued), ROWS):
            chunk = queued[start : start + ROWS]
            rows = [
                (event, row) for event in chunk if (row := self._row(event, letters)) is not None
            ]
            await self._days.prepare(connection, {row.received_at for _, row in rows})
            stored = await self._store(connection, rows, letters)
            if len(stored) < len(chunk):
                unstored.update(_minute(it.received_at_ms, it.product) for it in chunk)
                unstored.subtract(
                    _minute(round(row.received_at.timestamp() * 1000), row.product)
                    for row in stored
                )
        if letters:
            await self._dead_letter(connection, letters)
        if queued:
            self._lag.observe(max(0.0, self._clock() - queued[0].received_at_ms / 1000))
        return len(queued), unstored

    async def _dead_letter(
        self, connection: asyncpg.Connection, letters: Sequence[DeadLetter]
    ) -> None:
        """Store events as dead letters, but drop those of forgotten persons."""
        async with connection.transaction():
            await self._hold_erasure(connection)
            kept = [
                each
                for each in letters
                if not forgetting.is_letter_of(each.payload, self._suppression)
            ]
            self._dead.inc(await events.dead_letter(connection, kept))
        if kept:
            logger.error(
                "dead-lettered %(events)d events: %(reasons)s; see the table event_dead_letters",
                {
                    "events": len(kept),
                    "reasons": ", ".join(sorted({letter.reason for letter in kept})),
                },
            )
        if dropped := len(letters) - len(kept):
            logger.error(
                "dropped %(events)d events that could not be stored: a dead letter would keep data"
                " of a forgotten person",
                {"events": dropped},
            )

    def _row(self, event: Queued, letters: list[DeadLetter]) -> EventRow | None:
        try:
            return _row(event, self._enricher)
        except Exception as error:  # its text may quote the event
            letters.append(event.letter(f"cannot be read: {type(error).__name__}"))
            return None

    async def _suppress(
        self, connection: asyncpg.Connection, rows: Sequence[EventRow]
    ) -> tuple[list[EventRow], dict[str, EventRow]]:
        """Remove data of forgotten persons from events.

        Returns all events, and, by event id, the originals of those that were emptied and are the
        first of their id. `forget` cannot run until the transaction ends.
        """
        await self._hold_erasure(connection)
        if not self._suppression.hashes:
            return list(rows), {}
        known = [forgetting.suppressed(row, self._suppression) for row in rows]
        theirs = dict[str, EventRow | None]()
        for row, kept in zip(rows, known, strict=True):
            theirs.setdefault(row.event_id, row if forgetting.is_emptied(kept) else None)
        return known, {id: row for id, row in theirs.items() if row is not None}

    async def _hold_erasure(self, connection: asyncpg.Connection) -> None:
        """Keep `forget` from running until the transaction ends; reload the suppression list."""
        await persons.hold_erasure(connection)
        mark = await persons.fetch_mark(connection)
        if mark != self._suppression_mark:
            self._suppression = await persons.fetch_suppression(connection)
            self._suppression_mark = mark
            self._persons = PersonKey(self._suppression.key)

    async def _store(
        self,
        connection: asyncpg.Connection,
        rows: Sequence[tuple[Queued, EventRow]],
        letters: list[DeadLetter],
    ) -> list[EventRow]:
        """Store rows in one transaction, and return the new ones.

        If the warehouse refuses the batch, or the batch has failed too often, each half is stored
        in turn. A batch of one row then becomes a dead letter in `letters`. Raises errors that were
        not caused by the rows.
        """
        if not rows:
            return []
        ids = [row.event_id for _, row in rows]
        if reason := self._suspects.verdict(ids):
            return await self._store_halves(connection, rows, letters, reason)
        if self._suspects.has_failed(ids):
            await self._probe_with_plain_event(connection)
        try:
            return await self._store_all(connection, [row for _, row in rows])
        except Exception as error:
            reason = _reason(error)
            if not _is_refusal(error):
                if not _is_store_failure(error):
                    self._suspects.note(ids, reason)
                raise
            return await self._store_halves(connection, rows, letters, reason)

    async def _store_halves(
        self,
        connection: asyncpg.Connection,
        rows: Sequence[tuple[Queued, EventRow]],
        letters: list[DeadLetter],
        reason: str,
    ) -> list[EventRow]:
        if len(rows) == 1:
            letters.append(rows[0][0].letter(reason))
            return []
        half = len(rows) // 2
        first = await self._store(connection, rows[:half], letters)
        return first + await self._store(connection, rows[half:], letters)

    async def _store_all(
        self, connection: asyncpg.Connection, rows: Sequence[EventRow]
    ) -> list[EventRow]:
        async with connection.transaction():
            known, theirs = await self._suppress(connection, rows)
            await events.hold_products(connection, {row.product for row in known})
            await events.limit_statements(connection, STATEMENT_S)
            known, clicks = await attribution.read_clicks(connection, known)
            new = await events.claim(connection, known)
            new = await attribution.count(connection, self._persons, new, clicks)
            conflicts = await events.store(connection, new, known)
            await sequences.check(connection, new)
            await audiences.absorb(connection, self._persons, new, clicks.members.get)
            forgotten = [theirs[row.event_id] for row in new if row.event_id in theirs]
            if forgotten:
                _, clicks = await attribution.read_clicks(connection, forgotten)
                await audiences.exclude(connection, self._persons, forgotten, clicks.members.get)
        self._stored.inc(len(new))
        self._conflicts.inc(conflicts)
        return new


def _is_refusal(error: BaseException) -> bool:
    """Return whether a row's data caused an error."""
    return _sqlstate(error)[:2] in DATA_ERRORS


def _is_store_failure(error: BaseException) -> bool:
    """Return whether the warehouse failed as a whole: it is full, read-only or shutting down."""
    return _sqlstate(error) in STORE_ERRORS


def _sqlstate(error: BaseException) -> str:
    """Return the SQLSTATE of an error; empty if PostgreSQL did not raise it."""
    return (error.sqlstate or "") if isinstance(error, asyncpg.PostgresError) else ""


def _reason(error: BaseException) -> str:
    """Describe why an event could not be stored, without quoting its values."""
    while isinstance(error, _CONNECTION_ENDED) and error.__context__ is not None:
        error = error.__context__
    name = type(error).__name__
    if isinstance(error, asyncpg.PostgresError):
        return f"{'refused' if _is_refusal(error) else 'fails'}: {name} ({error.sqlstate})"
    return f"fails: {name}"


def _read(request: Waiting, letters: list[DeadLetter]) -> list[Queued]:
    """Return the events of a request, in the order in which they were accepted."""
    assert request.packed is not None
    try:
        read = queue.decode(request.packed)
    except msgspec.DecodeError as error:
        reason = f"cannot be read: {type(error).__name__}"
        letters.append(DeadLetter(None, None, None, reason, request.packed))
        return []
    return [
        Queued(read.received_at_ms, read.product, event_id, envelope)
        for event_id, envelope in read.events
    ]


def _row(event: Queued, enricher: Enricher) -> EventRow:
    document = msgspec.json.decode(event.envelope)
    identity, context = document["identity"], document["context"]
    enriched = enricher.enrich(document).document
    return EventRow(
        event.event_id,
        event.product,
        document["event"],
        _moment(document["timestamp"]),
        _moment(event.received_at_ms),
        identity.get("client_user_id"),
        identity.get("anonymous_id"),
        identity.get("click_id"),
        _json(context),
        _json(enriched),
        sha256(event.envelope).digest()[:16],
        sequences.digest(event.product, document["event"], context),
        value_micros=value_micros(document, enriched),
    )


def _minute(received_at_ms: int, product: str) -> str:
    return queue.name_minute(received_at_ms // queue.MINUTE_MS, product)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _moment(epoch_ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=epoch_ms)
