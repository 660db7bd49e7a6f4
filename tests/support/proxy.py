"""A proxy that breaks the wire between a client and a server, over TCP or a unix socket.

    async with FaultProxy(redis_socket) as proxy:
        proxy.stall()            nothing passes either way, connections stay open
        proxy.stall(Way.ANSWERS) requests reach the server, answers do not come back
        proxy.stall(new=False)   as above, but connections made from now on pass
        proxy.delay_s = 0.2      everything is delayed
        proxy.cut()              end every connection
        await proxy.refuse()     stop listening
        await proxy.resume()     listen, and pass on what was held back
    proxy.redirect(upstream) new connections go to another server, existing ones stay
        proxy.answer_bytes = 4   cut all connections after so many bytes of the next answer
        proxy.damage(Way.ANSWERS) the next length in a direction promises more than follows

What a client sent before it gave up is held back as well, and reaches the server at `resume`: a
network may deliver late.
"""

import asyncio
import contextlib
import re
import socket
import tempfile
from collections import Counter
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

TcpAddress = tuple[str, int]


class Way(Enum):
    """A direction through the proxy."""

    REQUESTS = 1
    ANSWERS = 2


class FaultProxy:
    """Listens like `upstream`: on a socket of the same name in a temporary folder, or on TCP."""

    def __init__(self, upstream: Path | TcpAddress) -> None:
        self._upstream = upstream
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._port = 0
        if isinstance(upstream, Path):
            self._folder = tempfile.TemporaryDirectory(prefix="proxy-")
        self._gates = _gates()  # of connections to come
        self._all_gates = [self._gates]
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.delay_s = 0.0
        self.accepted = 0
        self.answer_bytes: int | None = None
        self.held: Counter[Way] = Counter()  # pieces that are held back
        self._damaging: set[Way] = set()

    @property
    def socket(self) -> Path:
        """The path of its unix socket."""
        assert self._folder
        assert isinstance(self._upstream, Path)
        return Path(self._folder.name) / self._upstream.name

    @property
    def port(self) -> int:
        """Its TCP port on 127.0.0.1."""
        return self._port

    @property
    def redis_url(self) -> str:
        """Its address for redis-py."""
        if self._folder:
            return f"unix://{quote(str(self.socket))}"
        return f"redis://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        await self.resume()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.refuse()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.cut()
        if self._folder:
            self._folder.cleanup()

    async def resume(self, *ways: Way) -> None:
        """Let everything pass again, or one direction; first what was held back."""
        if self._server is None:
            self._server = await self._listen()
        for gates in self._all_gates:
            for way in ways or Way:
                gates[way].set()

    def stall(self, *ways: Way, new: bool = True) -> None:
        """Hold back a direction or both; on new connections, too, unless `new` is false."""
        for gates in self._all_gates:
            for way in ways or Way:
                if new or gates is not self._gates:
                    gates[way].clear()

    def redirect(self, upstream: TcpAddress) -> None:
        """Connect clients to another server from now on; existing connections stay."""
        assert isinstance(self._upstream, tuple)
        self._upstream = upstream

    def cut(self) -> None:
        """End every connection on both sides; what is held back is lost."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def disconnect(self) -> None:
        """End every connection, and refuse new ones."""
        await self.refuse()
        self.cut()

    def damage(self, way: Way) -> None:
        """Make the next length in a direction larger than what follows."""
        self._damaging.add(way)

    def spare(self) -> None:
        """Cancel damage and cuts that have not happened yet."""
        self._damaging.clear()
        self.answer_bytes = None

    async def refuse(self) -> None:
        """Stop listening; existing connections stay."""
        if self._server is not None:
            # Closed at once, it would leak what it has just accepted (CPython issue 109564).
            for listening in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listening.fileno())
            await asyncio.sleep(0)
            self._server.close()
            self._server = None
            if self._folder:
                self.socket.unlink(missing_ok=True)

    async def _listen(self) -> asyncio.Server:
        if self._folder:
            return await asyncio.start_unix_server(self._accept, self.socket)
        server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = server.sockets[0].getsockname()[1]
        return server

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        accepting = asyncio.current_task()
        assert accepting is not None
        self._tasks.add(accepting)
        try:
            if isinstance(self._upstream, Path):
                to = await asyncio.open_unix_connection(self._upstream)
            else:
                to = await asyncio.open_connection(*self._upstream)
        except (OSError, asyncio.CancelledError):  # cancelled by `__aexit__`
            writer.transport.abort()
            return
        finally:
            self._tasks.discard(accepting)
        for side in (writer, to[1]):
            if isinstance(self._upstream, tuple):
                side.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._writers.add(side)
        gates = _gates()
        for way in Way:
            if self._gates[way].is_set():
                gates[way].set()
        self._all_gates.append(gates)
        for way, come, go in ((Way.REQUESTS, reader, to[1]), (Way.ANSWERS, to[0], writer)):
            pump = asyncio.create_task(self._pump(way, gates[way], come, go))
            self._tasks.add(pump)
            pump.add_done_callback(self._tasks.discard)

    async def _pump(
        self,
        way: Way,
        gate: asyncio.Event,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                self.held[way] += 1
                await self._pass(gate)
                self.held[way] -= 1
                if way in self._damaging and (damaged := _with_longer_length(data)):
                    self._damaging.discard(way)
                    data = damaged
                last = way is Way.ANSWERS and self.answer_bytes is not None
                writer.write(data[: self.answer_bytes] if last else data)
                await writer.drain()
                if last:
                    self.answer_bytes = None
                    self.cut()
            await self._pass(gate)
        self._writers.discard(writer)
        writer.close()

    async def _pass(self, gate: asyncio.Event) -> None:
        await gate.wait()
        if self.delay_s:
            await asyncio.sleep(self.delay_s)


def _gates() -> dict[Way, asyncio.Event]:
    return {way: asyncio.Event() for way in Way}


def _with_longer_length(data: bytes) -> bytes | None:
    """Bytes of Redis or PostgreSQL with their first length increased; None if there is none."""
    match = re.match(rb"[$*](?=\d+\r\n)", data)
    if match:
        return data[:1] + b"9" + data[1:]
    if 4 <= int.from_bytes(data[1:5]) < len(data):
        return data[:1] + bytes((data[1] | 0x20,)) + data[2:]
    return None
