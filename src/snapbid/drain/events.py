"""Accepted events from the streams into the warehouse, exactly once (contract 7).

A round takes requests of each stream that this drain carries, of the products in turns, enriches
their events, stores them in one transaction together with the flags of their sequences, and then
deletes the entries. Whatever dies in between, the next round does the same again: the warehouse
keeps the first event of each id, so storing it again changes nothing.

What the warehouse refuses is found by halving, and goes to the dead letters, alone. So does what
fails in any other way, slowly or with the connection: its products are carried apart from others
from then on, and in halves of what has failed twice (suspects.py). That is the events' doing only
where the warehouse takes a plain event at the same time.

Events of one product are stored by one drain at a time. They may be in several streams where the
number of shards was changed, and of a sequence each drain must see what the other has stored.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from time import monotonic, time
from typing import Final, NamedTuple

import asyncpg
import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.base.suppression import Suppression, texts
from snapbid.drain import sequences
from snapbid.drain.event_days import EventDays
from snapbid.drain.lags import LAGS
from snapbid.drain.streams import EventStream, EventStreams, Waiting
from snapbid.drain.suspects import TWICE, Suspects
from snapbid.events.enrich import Enricher
from snapbid.metrics import Metrics
from snapbid.queues import queue
from snapbid.reference.agents import details
from snapbid.reference.geo import GeoDatabase
from snapbid.reference.history import DailyRates, History
from snapbid.warehouse import events, persons, rates
from snapbid.warehouse.events import DeadLetter, EventRow

ROWS: Final = 1_000  # in one transaction
ROUND_S: Final = 3.0  # then others have their turn, whatever is left
REVISE_S: Final = 1.0  # of a round, for cash-outs that are flagged anew
STATEMENT_S: Final = 3.0  # in a transaction, once it has its locks
DATA_ERRORS: Final = ("22", "23", "54", "P0")  # SQLSTATE classes that are about the row itself
STORE_ERRORS: Final = frozenset(("25006", "53100", "53300", "57P01", "57P02", "57P03", "58030"))
"""SQLSTATEs that are about no row: read only, disk full, too many connections, ending, I/O."""

_CONNECTION_ENDED: Final = (asyncpg.InterfaceError, asyncpg.PostgresConnectionError)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

logger = logging.getLogger("snapbid")


class Queued(NamedTuple):
    """One event as it was accepted."""

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
    """Carries the streams; `clock` gives epoch seconds, events are kept for `keep_days`."""

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
        self._suspects = Suspects()
        self._revised_at_once = ROWS
        self._revisions_failed = 0
        self._stored = metrics.counter("snapbid_events_stored_total")
        self._conflicts = metrics.counter("snapbid_event_conflicts_total")
        self._dead = metrics.counter("snapbid_event_dead_letters_total")
        self._lag = metrics.histogram("snapbid_event_lag_seconds", LAGS)

    async def begin(self) -> None:
        """Take nothing for granted that is in memory; entries are deleted by name."""
        self._streams.forget()

    async def round(self, connection: asyncpg.Connection) -> int:
        """Carry what is there, for some seconds at most; give how many events.

        Raises what Redis and the warehouse raise; it can be repeated then. Raises IdleError where
        other drains have all streams, ShardsAwayError where only some streams are away.
        """
        streams = await self._streams.share(connection)
        await self._days.look(connection, keeps=any(stream.number == 0 for stream in streams))
        await self._look_at_rates(connection)
        carried, errors, left = 0, dict[int, RedisError](), streams
        until = monotonic() + ROUND_S
        while left and monotonic() < until:  # all of them in turn, whichever has the most
            busy = []
            for stream in left:
                try:
                    count = await self._carry_some(connection, stream)
                except RedisError as error:
                    stream.forget()
                    errors[stream.number] = error
                    continue
                if count is not None:
                    carried += count
                    busy.append(stream)
            left = busy
        await self._revise(connection)
        self._streams.note(streams, errors)
        return carried

    async def _carry_some(self, connection: asyncpg.Connection, stream: EventStream) -> int | None:
        """Carry some of what waits; give how many events that were, None where nothing waits."""
        await stream.look()
        requests = await stream.take(ROWS, self._suspects.products)
        count = await self._carry_or_put_back(connection, stream, requests)
        suspect = self._suspects.next_of(stream.waits)
        if suspect is None:
            return count if requests else None
        more = await stream.take_of(suspect, ROWS)
        return count + await self._carry_or_put_back(connection, stream, more)

    async def _carry_or_put_back(
        self, connection: asyncpg.Connection, stream: EventStream, requests: Sequence[Waiting]
    ) -> int:
        """Carry requests; where they fail though the warehouse is well they wait, apart."""
        products = {request.product for request in requests}
        try:
            count = await self._carry(connection, requests)
        except Exception as error:
            stream.put_back(requests)
            is_new = not products <= self._suspects.products.keys()
            self._suspects.add(products)
            if connection.is_closed():
                raise
            await self._take_a_plain_event(connection)
            if is_new:
                name = type(error).__name__
                logger.warning("storing %d requests failed, trying parts: %s", len(requests), name)
            return 0
        self._suspects.clear(products)
        await stream.finish(requests)
        return count

    async def _take_a_plain_event(self, connection: asyncpg.Connection) -> None:
        """Raise what the warehouse raises where it takes no event at all; nothing is stored."""
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
            await events.store(connection, [plain])
            await sequences.check(connection, [plain])
        finally:
            if not connection.is_closed():
                await transaction.rollback()

    async def _revise(self, connection: asyncpg.Connection) -> None:
        """Flag cash-outs anew, in pages; those that fail, at last alone, keep their flags."""
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
                await self._take_a_plain_event(connection)
                if self._revisions_failed < TWICE:
                    continue
                if rows == 1:
                    logger.error("an event keeps its flags: %s", type(error).__name__)
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

    async def _carry(self, connection: asyncpg.Connection, requests: Sequence[Waiting]) -> int:
        letters: list[DeadLetter] = []
        queued = [event for request in requests for event in _read(request, letters)]
        for start in range(0, len(queued), ROWS):
            chunk = queued[start : start + ROWS]
            rows = [
                (event, row) for event in chunk if (row := self._row(event, letters)) is not None
            ]
            await self._days.prepare(connection, {row.received_at for _, row in rows})
            await self._store(connection, rows, letters)
        if letters:
            new = await events.bury(connection, letters)
            self._dead.inc(new)
            logger.error(
                "%d events cannot be stored and are in event_dead_letters: %s",
                len(letters),
                ", ".join(sorted({letter.reason for letter in letters})),
            )
        if queued:
            self._lag.observe(max(0.0, self._clock() - queued[0].received_at_ms / 1000))
        return len(queued)

    def _row(self, event: Queued, letters: list[DeadLetter]) -> EventRow | None:
        try:
            return _row(event, self._enricher)
        except Exception as error:  # whose text may quote the event
            letters.append(event.letter(f"cannot be read: {type(error).__name__}"))
            return None

    async def _suppress(
        self, connection: asyncpg.Connection, rows: Sequence[EventRow]
    ) -> list[EventRow]:
        """Empty the events of persons who are forgotten, whatever happens in the meantime."""
        await persons.hold_erasure(connection)
        mark = await persons.fetch_mark(connection)
        if mark != self._suppression_mark:
            self._suppression = await persons.fetch_suppression(connection)
            self._suppression_mark = mark
        if not self._suppression.hashes:
            return list(rows)
        return [_emptied(row) if _is_of(row, self._suppression) else row for row in rows]

    async def _store(
        self,
        connection: asyncpg.Connection,
        rows: Sequence[tuple[Queued, EventRow]],
        letters: list[DeadLetter],
    ) -> None:
        """Store in one transaction; halve what is refused, or has failed often enough before."""
        if not rows:
            return
        ids = [row.event_id for _, row in rows]
        if reason := self._suspects.verdict(ids):
            await self._store_halves(connection, rows, letters, reason)
            return
        if self._suspects.has_failed(ids):
            await self._take_a_plain_event(connection)
        try:
            await self._store_all(connection, [row for _, row in rows])
        except Exception as error:
            reason = _reason(error)
            if not _is_refusal(error):
                if not _is_of_the_store(error):
                    self._suspects.note(ids, reason)
                raise
            await self._store_halves(connection, rows, letters, reason)

    async def _store_halves(
        self,
        connection: asyncpg.Connection,
        rows: Sequence[tuple[Queued, EventRow]],
        letters: list[DeadLetter],
        reason: str,
    ) -> None:
        if len(rows) == 1:
            letters.append(rows[0][0].letter(reason))
            return
        half = len(rows) // 2
        await self._store(connection, rows[:half], letters)
        await self._store(connection, rows[half:], letters)

    async def _store_all(self, connection: asyncpg.Connection, rows: Sequence[EventRow]) -> None:
        async with connection.transaction():
            known = await self._suppress(connection, rows)
            await events.hold_products(connection, {row.product for row in known})
            await events.limit_statements(connection, STATEMENT_S)
            stored = await events.store(connection, known)
            new = {row.event_id: row for row in known if row.event_id in stored.event_ids}
            await sequences.check(connection, list(new.values()))
        self._stored.inc(len(stored.event_ids))
        self._conflicts.inc(stored.conflicts)


def _is_refusal(error: BaseException) -> bool:
    """Whether an error is about the data of a row."""
    state = error.sqlstate if isinstance(error, asyncpg.PostgresError) else None
    return (state or "")[:2] in DATA_ERRORS


def _is_of_the_store(error: BaseException) -> bool:
    """Whether an error says that the store is full, read only or ending, whatever it stores."""
    state = error.sqlstate if isinstance(error, asyncpg.PostgresError) else None
    return state in STORE_ERRORS


def _reason(error: BaseException) -> str:
    """Why an event is not stored, without its values."""
    while isinstance(error, _CONNECTION_ENDED) and error.__context__ is not None:
        error = error.__context__
    name = type(error).__name__
    if isinstance(error, asyncpg.PostgresError):
        return f"{'refused' if _is_refusal(error) else 'fails'}: {name} ({error.sqlstate})"
    return f"fails: {name}"


def _read(request: Waiting, letters: list[DeadLetter]) -> list[Queued]:
    """The events of a request, in the order in which they were accepted."""
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
        _json(enricher.enrich(document).document),
        sha256(event.envelope).digest()[:16],
        sequences.digest(event.product, document["event"], context),
    )


def _is_of(row: EventRow, suppression: Suppression) -> bool:
    """Whether any id of the event, or any text of its context, is that of a forgotten person."""
    ids = (row.client_user_id, row.anonymous_id, row.click_id)
    named = (*filter(None, ids), *texts(msgspec.json.decode(row.context)))
    return any(map(suppression.has_id, named))


def _emptied(row: EventRow) -> EventRow:
    return row._replace(
        client_user_id=None,
        anonymous_id=None,
        click_id=None,
        context="{}",
        enrichment="{}",
        sequence=None,
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _moment(epoch_ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=epoch_ms)
