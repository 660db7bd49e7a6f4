"""Runs several generators as one: the first plans, judges and reconciles, and directs the others.

A generator that joins receives the options, then one phase after another; it runs each phase as
soon as it arrives, and answers with its counts. Both sides send frames: a length of 4 bytes,
big-endian, and MessagePack. An answer may take hours, and far longer than its phase if the machine
is too slow for its share. So a joined generator also sends an empty frame each second; if nothing
arrives for `SILENCE_S`, it is considered frozen or unreachable.
"""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias, get_origin

import msgspec
from msgspec import Struct

from snapbid.base.version import version
from snapbid.loadtest.generator import Generator, PhaseCounts, RunCounts, Watcher
from snapbid.loadtest.options import Options
from snapbid.loadtest.plan import Phase

MAX_FRAME: Final = 64 << 20  # an hour's histograms take some 10 MB
BEAT_S: Final = 1.0
SILENCE_S: Final = 30.0  # also for one frame: 10 MB at 3 Mbit/s
Load: TypeAlias = Callable[[Options], Generator]


class JoinError(Exception):
    """The generators cannot run as one; the message says why."""


class Welcome(Struct, tag=True):
    """The first generator's version, and the options for the generator that joins."""

    version: str
    options: Options


class Ready(Struct, tag=True):
    """The answer to `Welcome`: whether the joining generator can run."""

    problem: str = ""  # why the generator cannot run; "" if it can


class RunPhase(Struct, tag=True):
    """An order to run a phase, answered by PhaseCounts."""

    phase: Phase


class StopPhase(Struct, tag=True):
    """An order to end the current phase early; the phase's PhaseCounts are the only answer."""


class Settle(Struct, tag=True):
    """The last command of a run: wait for outstanding notices and batches. RunCounts answers it."""


Order: TypeAlias = RunPhase | StopPhase | Settle


class Channel:
    """A connection between two generators."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.peer = "{}:{}".format(*writer.get_extra_info("peername")[:2])

    def send(self, message: Struct) -> None:
        frame = msgspec.msgpack.encode(message, enc_hook=str)
        self._writer.write(len(frame).to_bytes(4, "big") + frame)

    async def beat(self) -> None:
        """Send an empty frame every `BEAT_S` seconds, for ever."""
        while True:
            self._writer.write(bytes(4))
            await asyncio.sleep(BEAT_S)

    async def receive(self, kind: Any, silence_s: float | None = None) -> Any:
        """Receive a message of type `kind`.

        Raises JoinError if the peer disconnects, sends anything else, or takes longer than
        `silence_s` for a frame, even an empty one.
        """
        try:
            frame = b""
            while not frame:
                async with asyncio.timeout(silence_s):
                    frame = await self._frame()
            return msgspec.msgpack.decode(frame, type=kind, dec_hook=_rebuild)
        except TimeoutError as error:
            raise JoinError(f"{self.peer} is frozen or unreachable") from error
        except (asyncio.IncompleteReadError, OSError) as error:
            raise JoinError(f"{self.peer} disconnected") from error
        except msgspec.DecodeError as error:
            raise JoinError(f"{self.peer} is not snapbid load: {error}") from error

    async def _frame(self) -> bytes:
        length = int.from_bytes(await self._reader.readexactly(4), "big")
        if length > MAX_FRAME:
            raise JoinError(f"{self.peer} is not snapbid load")
        return await self._reader.readexactly(length)

    def close(self) -> None:
        self._writer.close()


def _rebuild(kind: type[Any], value: Any) -> Any:
    """Convert MessagePack's string back to a path, or its map back to a counter."""
    return (get_origin(kind) or kind)(value)


class JoinedGenerator:
    """The first generator's handle on a generator that has joined.

    `run` and `settle` raise JoinError if the connection fails or the generator falls silent.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def run(self, phase: Phase) -> PhaseCounts:
        """Have the generator run a phase."""
        self._channel.send(RunPhase(phase))
        counts: PhaseCounts = await self._channel.receive(PhaseCounts, SILENCE_S)
        return counts

    def stop(self) -> None:
        """Have the generator end the current phase."""
        self._channel.send(StopPhase())

    async def settle(self) -> RunCounts:
        """Have the generator await its outstanding notices and batches; return its counts."""
        self._channel.send(Settle())
        counts: RunCounts = await self._channel.receive(RunCounts, SILENCE_S)
        return counts


@asynccontextmanager
async def gathered(
    options: Options, say: Callable[[str], None]
) -> AsyncIterator[list[JoinedGenerator]]:
    """Wait until all other generators have joined; they stay connected until the context ends.

    A generator that connects but cannot run is reported through `say` and left out. Raises OSError
    if the address is taken.
    """
    if options.generators == 1:
        yield []
        return
    ready: asyncio.Queue[Channel] = asyncio.Queue()
    channels: list[Channel] = []

    async def admit(reader: StreamReader, writer: StreamWriter) -> None:
        channel = Channel(reader, writer)
        channels.append(channel)
        try:
            await _welcome(channel, options.share(len(channels), options.generators))
            ready.put_nowait(channel)
        except JoinError as problem:
            say(f"{channel.peer} did not join: {problem}")
            channel.close()

    server = await asyncio.start_server(admit, *options.listen)
    try:
        address = "{}:{}".format(*server.sockets[0].getsockname()[:2])
        say(f"waiting for {options.generators - 1} more: snapbid load --join {address}")
        joined = [await ready.get() for _ in range(options.generators - 1)]
        server.close()
        yield [JoinedGenerator(channel) for channel in joined]
    finally:
        server.close()
        for channel in channels:
            channel.close()


async def _welcome(channel: Channel, options: Options) -> None:
    """Send the options, and wait until the generator is ready.

    Raises JoinError if it cannot run.
    """
    channel.send(Welcome(version(), options))
    ready: Ready = await channel.receive(Ready)
    if ready.problem:
        raise JoinError(ready.problem)


async def join(host: str, port: int, load: Load, watch: Watcher) -> None:
    """Join the generator that listens at this address, and run phases as it directs.

    `load` creates a generator from the options; a ValueError that it raises is sent to the first
    generator, and raised here too. Raises JoinError if the versions differ or the first generator
    disconnects, and OSError if the target or the first generator does not answer.
    """
    channel = Channel(*await asyncio.open_connection(host, port))
    try:
        generator = await _accept(channel, load)
        try:
            await generator.open()
            channel.send(Ready())
            await _obey(channel, generator, watch)
        finally:
            generator.close()
    finally:
        channel.close()


async def _accept(channel: Channel, load: Load) -> Generator:
    welcome: Welcome = await channel.receive(Welcome)
    try:
        if welcome.version != version():
            raise JoinError(
                f"the joining generator runs snapbid {version()}, the first one {welcome.version}:"
                " install the same version on both"
            )
        return load(welcome.options)
    except (JoinError, ValueError) as problem:
        channel.send(Ready(str(problem)))
        raise


async def _obey(channel: Channel, generator: Generator, watch: Watcher) -> None:
    """Carry out the first generator's orders, up to and including `Settle`.

    If the first generator disconnects, end the current phase and raise JoinError.
    """
    running: asyncio.Task[None] | None = None
    beating = asyncio.create_task(channel.beat())
    try:
        while True:
            order: Order = await channel.receive(Order)
            if isinstance(order, RunPhase):
                running = asyncio.create_task(_run(channel, generator, order.phase, watch))
            elif isinstance(order, StopPhase):
                generator.stop()
            else:
                channel.send(await generator.settle())
                return
    finally:
        beating.cancel()
        generator.stop()
        if running is not None:
            await running


async def _run(channel: Channel, generator: Generator, phase: Phase, watch: Watcher) -> None:
    channel.send(await generator.run(phase, watch))
