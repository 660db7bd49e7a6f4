"""The engine of round trips to Redis: one at a time, each with all waiting requests.

An idle connection sends at once. On a busy connection, requests that arrive during a round trip
wait for the next, so batches grow with the load; no request waits for a timer. If many requests are
ready at once, the first are sent early, and Redis works on them while this process prepares the
rest.

`RoundTrips` keeps the connection, decides when to send, closes a connection that has stalled, and
has replicas confirm writes. Its user (`TripUser`) keeps the requests: it encodes the next batch,
handles the replies, times requests out and fails them when the connection is lost. Nothing is ever
sent twice. A ticker enforces the time limits: often during a round trip, otherwise once a beat.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError, InvalidResponse, RedisError, ResponseError

from snapbid.base.beat import BEAT_S, left
from snapbid.base.reasons import text_of, unreadable_file
from snapbid.base.redis_keys import ShardKeys
from snapbid.base.tasks import end
from snapbid.redisclient._wire import Reply as Reply
from snapbid.redisclient._wire import Turn, answer, pack_command
from snapbid.redisclient._wire import unanswered as unanswered
from snapbid.redisclient.connection import Connector
from snapbid.redisclient.nodes import is_moved
from snapbid.redisclient.replicas import Command, Replication

ITERATIONS: Final = 16  # of the event loop, for which a batch may grow
ENOUGH: Final = 32  # bids or notices at which a batch is sent at once
TICK_S: Final = BEAT_S / 52  # between ticks while a round trip is under way: 5 ms
REST_S: Final = BEAT_S  # between ticks while none is
RETRY_S: Final = (0.05, 0.1, 0.2, 0.4)

T = TypeVar("T")

Pending: TypeAlias = "asyncio.Future[T] | Reply[T]"
"""The future of a reply."""

logger = logging.getLogger(__name__)


class Request(Protocol):
    """A request waiting for a reply."""

    @property
    def done(self) -> "Pending[Any]": ...


R = TypeVar("R", bound=Request)


class Requests(Generic[R]):
    """Requests of one kind: `waiting` for a round trip, or `sent` in the current one."""

    def __init__(self) -> None:
        self.waiting: list[R] = []
        self.sent: list[R] = []

    def __iter__(self) -> Iterator[R]:
        return chain(self.sent, self.waiting)

    def take(self, most: int) -> list[R]:
        """Take up to `most` waiting requests to send, dropping requests that are already done."""
        self.sent = unanswered(self.waiting[:most])
        self.waiting = self.waiting[most:]
        return self.sent

    def resolve(self, results: Iterable[Any]) -> None:
        """Resolve the sent requests with their results, in order."""
        answer(self.sent, results)
        self.sent = []

    def clear(self) -> list[R]:
        """Remove and return all requests."""
        requests = [*self.sent, *self.waiting]
        self.sent, self.waiting = [], []
        return requests


class TripUser(Protocol):
    """The owner of a connection's requests; all times are event loop times."""

    @property
    def waiting(self) -> int:
        """The number of requests waiting for a round trip."""

    async def prepare(self, connection: AbstractConnection) -> None:
        """Set up a new connection. An exception ends the connection."""

    def next_batch(self, now: float) -> Sequence[Command]:
        """Return the commands of the next round trip; without commands, there is no round trip."""

    def receive(self, replies: list[Any], asked_at: float, now: float) -> None:
        """Handle the replies to the last batch. An exception ends the connection."""

    def expire(self, now: float, waited_s: float) -> None:
        """Time out overdue requests; the round trip under way has lasted `waited_s`."""

    def is_due(self, now: float) -> bool:
        """Whether a round trip is due even though no request is waiting."""

    def disconnected(self) -> None:
        """Fail all requests: the connection has ended, or could not be made."""


class RoundTrips:
    """Round trips over one connection, which is replaced whenever it ends, until `close`.

    A redirection to another node is followed at once. The start and end of an outage of `subject`
    are logged. An idle connection that Redis closed is not an outage; nor is a first attempt that
    times out, since a starting process is busy. `stall_s`: time limit for connecting and
    `prepare` together, and for each round trip. `tick_s`: time between ticks during a round trip,
    at most a beat. `enough`: a batch is sent at once if this many requests are waiting.
    """

    def __init__(
        self,
        connect: Connector,
        user: TripUser,
        subject: str,
        stall_s: float,
        tick_s: float = TICK_S,
        enough: int = ENOUGH,
    ) -> None:
        self._connect = connect
        self._enough = enough
        self._user = user
        self._subject = subject
        self.stall_s = stall_s
        self.connected = False  # whether requests are taken
        self._task: asyncio.Task[None] | None = None
        self._wire: Wire | None = None
        self._sent_at: float | None = None
        self._waited_from = 0.0  # `_sent_at`, plus the time that this process was busy
        self._gathering = False
        self._tick_s = tick_s
        self._timer: asyncio.TimerHandle | None = None  # of the next tick
        self._tick_at = 0.0
        self._is_resting = False  # until the next beat
        self._has_batch = False  # else the round trip only looks for replicas
        self.replication = Replication()

    @property
    def is_busy(self) -> bool:
        """Whether a round trip is in progress."""
        return self._sent_at is not None

    def open(self) -> None:
        """Start connecting; requires a running loop."""
        self._loop = asyncio.get_running_loop()
        self._turn = Turn(self._loop)
        self.reply = self._turn.reply  # returns a future for the answer to a request
        self._task = self._loop.create_task(self._run())
        self._schedule_tick()

    async def flush(self) -> None:
        """Wait until all requests are answered or the connection is lost."""
        while self.connected and (self.is_busy or self._user.waiting):
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        """Disconnect and stop."""
        if self._task is not None:
            await end(self._task)
        if self._timer is not None:
            self._timer.cancel()

    def end(self, error: Exception) -> None:
        """End the connection with an error; until it is replaced, no requests are accepted."""
        self.connected = False
        if self._wire is not None:
            self._wire.end(error)

    # -- requests ---------------------------------------------------------------------------------

    def schedule(self, waiting: int = 0) -> None:
        """Schedule a batch unless one is in progress.

        It is sent at once if the number of `waiting` requests is large enough.
        """
        if self._sent_at is not None:
            return
        if waiting >= self._enough:
            self._send()
        elif not self._gathering:
            self._gathering = True
            self._loop.call_soon(self._gather, 0, ITERATIONS)

    def _gather(self, before: int, iterations: int) -> None:
        """Let ready requests join the batch, for as long as each loop iteration brings more.

        So an idle process sends after one iteration, while in a busy process more requests share
        the cost of a round trip.
        """
        waiting = self._user.waiting
        if iterations and before < waiting < self._enough:
            self._loop.call_soon(self._gather, waiting, iterations - 1)
            return
        self._gathering = False
        self._send()

    def _send(self) -> None:
        if self._wire is None or self._sent_at is not None:
            return
        now = self._loop.time()
        commands = self._user.next_batch(now)
        self._has_batch = bool(commands)
        if commands or self.replication.is_due(now):
            self._sent_at = self._waited_from = now
            self._wire.send(*commands, *self.replication.ask(now))
            if self._is_resting and self._timer is not None:
                self._timer.cancel()
                self._schedule_tick()

    def _answered(self, replies: list[Any]) -> None:
        """Handle the replies to the last round trip."""
        now, asked_at = self._loop.time(), self._sent_at
        replies = self.replication.take(replies, now)
        assert asked_at is not None
        self._sent_at = None
        if self._has_batch:
            self._turn.begin()
            try:
                self._user.receive(replies, asked_at, now)
            finally:
                self._turn.end()
        if waiting := self._user.waiting:
            self.schedule(waiting)

    def _schedule_tick(self) -> None:
        self._is_resting = not self.is_busy
        left_s = left(REST_S if self._is_resting else self._tick_s)
        self._tick_at = self._loop.time() + left_s
        self._timer = self._loop.call_later(left_s, self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        late_s = now - self._tick_at
        try:
            self.tick(now, late_s if late_s > self._tick_s else 0.0)
        finally:
            self._schedule_tick()

    def tick(self, now: float, busy_s: float = 0.0) -> None:
        """End overdue requests and a stalled connection, or start a round trip that is due.

        `now`: loop time. `busy_s`: the time since the last tick in which this process was too busy
        to read a reply; this time does not count against Redis.
        """
        if self._sent_at is not None:
            self._waited_from = min(self._waited_from + busy_s, now)
            waited_s = now - self._waited_from
            self._user.expire(now, waited_s)
            if waited_s > self.stall_s:
                self.end(RedisError(f"no reply for {self.stall_s:g} s"))
        elif self._wire is not None and self._is_due(now):
            self.schedule()

    def _is_due(self, now: float) -> bool:
        return bool(self._user.waiting) or self._user.is_due(now) or self.replication.is_due(now)

    # -- the connection ---------------------------------------------------------------------------

    async def _run(self) -> None:
        failures, is_new = 0, True
        lost_at: float | None = None
        while True:
            connection = self._connect()
            has_moved = False
            try:
                async with asyncio.timeout(self.stall_s):
                    await connection.connect()  # type: ignore[no-untyped-call]
                    await self._user.prepare(connection)
                self._wire = Wire(connection, self._answered)
                self.connected = True
                if lost_at is not None:
                    logger.info(
                        "%(subject)s available again after %(seconds).1f s",
                        {"subject": self._subject, "seconds": self._loop.time() - lost_at},
                    )
                failures, lost_at, is_new = 0, None, False
                await self._wire.ended
            except (RedisError, OSError, EOFError) as error:  # TimeoutError is an OSError
                self._connect.doubt(error)
                has_moved = failures == 0 and is_moved(error)
                is_starting = is_new and failures == 0 and isinstance(error, TimeoutError)
                is_harmless = has_moved or is_starting or isinstance(error, ClosedIdleError)
                if lost_at is None and not is_harmless:
                    logger.warning(
                        "%(subject)s unavailable: %(reason)s",
                        {"subject": self._subject, "reason": self._reason(error)},
                    )
                    lost_at = self._loop.time()
                failures += 1
            except Exception:
                logger.exception("%(subject)s: unexpected error", {"subject": self._subject})
                failures += 1
            finally:
                self._wire, self._sent_at, self.connected = None, None, False
                self._user.disconnected()
                await connection.disconnect(nowait=True)
            if not has_moved:
                await asyncio.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])

    def _reason(self, error: Exception) -> str:
        if isinstance(error, TimeoutError) and not str(error):
            return f"not connected within {self.stall_s:g} s"
        return unreadable_file(error, self._connect.url) or text_of(error)

    async def confirm(self, connection: AbstractConnection, keys: ShardKeys) -> None:
        """Wait until replicas have a shard's writes; from then on, have them confirm each batch.

        For use in `TripUser.prepare`. Raises RedisError.
        """
        replies: list[Any] = []
        for command in self.replication.first(keys, self._connect.demand, self._loop.time()):
            await connection.send_command(*command)
            replies.append(await connection.read_response())
        self.replication.decide(replies, self._loop.time())


def expect(reply: Any) -> Any:
    """Return a reply, or raise it if Redis answered with an error."""
    if isinstance(reply, ResponseError):
        raise reply
    return reply


# -- the wire -------------------------------------------------------------------------------------

_PARTIAL: Final = object()


class ClosedIdleError(ConnectionError):
    """Redis closed a connection that was idle for longer than Redis' setting `timeout` allows."""

    def __init__(self) -> None:
        super().__init__("Redis has closed the connection")


class Wire(asyncio.Protocol):
    """An idle connection taken over from redis-py, which remains responsible for closing it.

    Once all commands of a `send` are answered, `answered` is called with the replies, which may
    include ResponseErrors; only then may `send` be called again. An exception in `answered` ends
    the connection. Awaiting `ended` raises the reason why the connection ended.
    """

    def __init__(
        self, connection: AbstractConnection, answered: Callable[[list[Any]], None]
    ) -> None:
        self._answered = answered
        self._reader = hiredis.Reader(InvalidResponse, ResponseError, notEnoughData=_PARTIAL)
        self._replies: list[Any] = []
        self._expected = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        assert connection._writer is not None
        self._transport = connection._writer.transport
        self._transport.set_protocol(self)

    def send(self, *commands: tuple[Any, ...]) -> None:
        """Send commands; all earlier ones must have been answered.

        If the connection is closing, nothing is sent, and `ended` gets an exception. A task that
        awaits `ended` resumes in a later iteration of the event loop.
        """
        if self._transport.is_closing():
            self.end(ClosedIdleError())
            return
        self._expected = len(commands)
        self._replies = []
        self._transport.write(b"".join(map(pack_command, commands)))

    def end(self, error: Exception) -> None:
        """Abort the connection with an error."""
        if not self.ended.done():
            self.ended.set_exception(error)
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not _PARTIAL:
                if not isinstance(reply, hiredis.PushNotification):
                    self._replies.append(reply)
                    if len(self._replies) == self._expected:
                        self._answered(self._replies)
        except Exception as error:
            self.end(error)

    def connection_lost(self, error: Exception | None) -> None:
        if error is None and len(self._replies) == self._expected:
            error = ClosedIdleError()
        self.end(error or ConnectionError("Redis has closed the connection"))
