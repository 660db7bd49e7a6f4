"""Simulated connections from the machines to the two stores.

What a program writes travels for a while, is executed by the real server in the moment in which it
arrives, and the answer travels back. A wire between a machine and a store may be slow, stalled in
either direction, cut, or refused; a connection that ends loses what is under way, or some of it
still arrives, or its answer is cut short. Each connection draws its delays from a seed of its own.
"""

import asyncio
import random
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final, NamedTuple, Protocol

from support.simulator.loop import Process, VirtualLoop

DELAY_S: Final = (0.00005, 0.0005)  # one way
LATE_S: Final = 5.0  # after which what a connection had sent may still arrive
CALM_S: Final = 10.0  # between two troubles that are not one
LIKELY_TO_ARRIVE: Final = 0.5
LIKELY_TO_BE_LATE: Final = 0.3
TICK_S: Final = 1e-7  # between messages of a connection, which keep their order
NOBODY: Final = Context()  # in which the network works: it outlives every process


class Session(Protocol):
    """A connection to a real server; each call blocks until the server is done.

    `delay_s`: what it would have waited for with the last one, in virtual time.
    """

    delay_s: float

    def execute(self, data: bytes) -> bytes: ...

    def close(self) -> None: ...


class Store(Protocol):
    """A real server. `open` raises OSError while it is down."""

    name: str

    def open(self) -> Session: ...


class Held(NamedTuple):
    """What goes on once a wire has healed, and for whom."""

    action: Callable[[], None]
    context: Context


class Wire:
    """Between a machine and a store, for all connections of that pair."""

    def __init__(self) -> None:
        self.refuses = False
        self.slow_s = 0.0
        self.holds_requests = False
        self.holds_replies = False
        self.requests: list[Held] = []
        self.replies: list[Held] = []
        self.connections: dict[int, Connection] = {}
        self.bad = (-100.0, -100.0)  # virtual time: since when, and until when it was so lately
        self.first_bad = float("inf")  # the first time

    @property
    def is_whole(self) -> bool:
        return not (self.refuses or self.slow_s or self.holds_requests or self.holds_replies)

    def bad_since(self, now: float) -> float:
        """Since when it has not been whole, or not for long; infinity where it is."""
        since, until = self.bad
        return since if not self.is_whole or now - until < CALM_S else float("inf")


class Network:
    """All wires; `trace` is told of each message."""

    def __init__(self, loop: VirtualLoop, seed: str, trace: Callable[..., None]) -> None:
        self.messages = 0
        self._loop = loop
        self._seed = seed
        self._trace = trace
        self._stores: dict[str, Store] = {}
        self._wires: dict[tuple[str, str], Wire] = {}
        self._made: dict[str, int] = {}

    def add(self, path: str, store: Store) -> None:
        self._stores[path] = store

    def wire(self, machine: str, store: str) -> Wire:
        return self._wires.setdefault((machine, store), Wire())

    def wires(self, store: str) -> list[Wire]:
        return [wire for (_, name), wire in sorted(self._wires.items()) if name == store]

    def trouble(self, wire: Wire) -> None:
        """Something is wrong with it now."""
        since, until = wire.bad
        now = self._loop.time()
        wire.bad = (since if now - until < CALM_S else now, now)
        wire.first_bad = min(wire.first_bad, now)

    def hold(self, wire: Wire, *, requests: bool, replies: bool) -> None:
        self.trouble(wire)
        wire.holds_requests |= requests
        wire.holds_replies |= replies

    def heal(self, wire: Wire) -> None:
        """What was held goes on, in its order."""
        wire.refuses = wire.holds_requests = wire.holds_replies = False
        wire.slow_s = 0.0
        self.trouble(wire)
        held, wire.requests = wire.requests + wire.replies, []
        wire.replies = []
        for action, context in held:
            self._loop.call_soon(action, context=context)

    def cut(self, wire: Wire, store: Store | None = None) -> None:
        """End all connections of a wire, or those to a store, as seen from both ends."""
        self.trouble(wire)
        for connection in list(wire.connections.values()):
            if store in (None, connection.store):
                connection.reset()

    def connect(
        self, process: Process, factory: Callable[[], asyncio.Protocol], path: str
    ) -> "asyncio.Future[tuple[asyncio.Transport, asyncio.Protocol]]":
        future: asyncio.Future[Any] = self._loop.create_future()
        name = next(path_of for path_of in self._stores if path.startswith(path_of))
        store = self._stores[name]
        number = self._made[process.name] = self._made.get(process.name, 0) + 1
        wire = self.wire(process.machine, store.name)
        rng = random.Random(f"{self._seed} {process.name} {number}")
        label = f"{process.name}/{store.name}/{number}"

        def arrive() -> None:
            if future.done():
                return
            if wire.holds_requests or wire.holds_replies:
                wire.requests.append(Held(arrive, process.context))
                return
            try:
                if wire.refuses:
                    raise ConnectionRefusedError(f"{store.name} refuses connections")
                session = store.open()
            except OSError as error:
                future.set_exception(error)
                return
            self._trace("connect", label)
            protocol = factory()
            connection = Connection(self, self._loop, process, wire, session, rng, label)
            connection.store = store
            connection.set_protocol(protocol)
            protocol.connection_made(connection)
            future.set_result((connection, protocol))

        delay_s = rng.uniform(*DELAY_S) * 2 + wire.slow_s
        self._loop.call_later(delay_s, arrive, context=process.context)
        return future

    def note(self, label: str, kind: str, data: bytes) -> None:
        self.messages += 1
        # asyncpg's statements have names that go on from run to run.
        self._trace(kind, label, len(data) if "/redis/" in label else 0)


class Connection(asyncio.Transport):
    """The client's end of a connection; an asyncio transport."""

    def __init__(
        self,
        network: Network,
        loop: VirtualLoop,
        process: Process,
        wire: Wire,
        session: Session,
        rng: random.Random,
        label: str,
    ) -> None:
        super().__init__()
        self.store: Store | None = None
        self._network = network
        self._loop = loop
        self._process = process
        self._wire = wire
        self._session: Session | None = session
        self._rng = rng
        self._label = label
        self._protocol: Any = None
        self._is_open = True  # for the client
        self._is_whole = True  # on the way to the server
        self._pending = bytearray()
        self._request_at = self._reply_at = 0.0
        self._not_before = 0.0
        self._under_way = 0
        wire.connections[id(self)] = self
        process.on_kill.append(self.vanish)

    # -- what the program calls --------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol  # type: ignore[no-any-return]

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return not self._is_open

    def is_reading(self) -> bool:
        return True

    def pause_reading(self) -> None:
        """A reader that is slow is not simulated."""

    def resume_reading(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_open:
            return
        if not self._pending:
            self._loop.call_soon(self._send, context=self._process.context)
        self._pending += data

    def close(self) -> None:
        """What was written arrives before the end."""
        if self._is_open:
            self._send()
            self._is_open = False
            self._loop.call_soon(self._told, None, context=self._process.context)
            self._finish()

    def abort(self) -> None:
        """What is under way arrives or not."""
        if self._is_open:
            self._is_open = False
            self._loop.call_soon(self._told, None, context=self._process.context)
            self._forget_some()
            self._finish()

    # -- what happens to it ------------------------------------------------------------------

    def vanish(self) -> None:
        """The process is gone; the system closes its end."""
        if self._is_open:
            self._is_open = False
            self._forget_some()
            self._finish()

    def reset(self) -> None:
        """The wire was cut, or the server has ended."""
        self._end_session()
        if self._is_open:
            self._is_open = False
            error = ConnectionResetError("the connection was reset")
            self._loop.call_soon(self._told, error, context=self._process.context)

    def _told(self, error: Exception | None) -> None:
        self._protocol.connection_lost(error)

    def _forget_some(self) -> None:
        self._is_whole = self._rng.random() < LIKELY_TO_ARRIVE
        if self._rng.random() < LIKELY_TO_BE_LATE:
            self._not_before = self._loop.time() + self._rng.random() * LATE_S

    def _finish(self) -> None:
        if not self._under_way:
            self._end_session()

    def _end_session(self) -> None:
        self._wire.connections.pop(id(self), None)
        self._is_whole = False
        if self._session is not None:
            self._session.close()
            self._session = None

    # -- messages ----------------------------------------------------------------------------

    def _delay_s(self) -> float:
        return self._rng.uniform(*DELAY_S) + self._wire.slow_s * self._rng.random()

    def _send(self) -> None:
        data = bytes(self._pending)
        self._pending.clear()
        if not data or not self._is_open:
            return
        self._under_way += 1
        self._request_at = max(self._request_at + TICK_S, self._loop.time() + self._delay_s())
        self._loop.call_at(self._request_at, self._arrive, data, context=NOBODY)

    def _arrive(self, data: bytes) -> None:
        wire = self._wire
        if self._session is None:
            return
        if wire.holds_requests:
            wire.requests.append(Held(lambda: self._arrive(data), NOBODY))
            return
        if not self._is_whole:
            self._under_way = 0
            self._end_session()
            return
        if self._loop.time() < self._not_before:
            self._not_before += TICK_S
            self._loop.call_at(self._not_before, self._arrive, data, context=NOBODY)
            return
        self._network.note(self._label, "request", data)
        try:
            replies = self._session.execute(data)
        except OSError:
            self.reset()
            return
        self._under_way -= 1
        if not self._is_open:
            self._finish()
            return
        if replies:
            at = self._loop.time() + self._session.delay_s + self._delay_s()
            self._reply_at = max(self._reply_at + TICK_S, at)
            self._loop.call_at(self._reply_at, self._reply, replies, context=self._process.context)

    def _reply(self, data: bytes) -> None:
        if not self._is_open or self._session is None:
            return
        if self._wire.holds_replies:
            self._wire.replies.append(Held(lambda: self._reply(data), self._process.context))
            return
        self._network.note(self._label, "reply", b"")  # whose size tells of the server
        self._protocol.data_received(data)
