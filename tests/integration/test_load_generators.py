"""Several `snapbid load` as one: one plans, judges and reconciles, the others join it."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.generators import listening
from support.processes import eventually
from support.stack import Stack, run
from support.stub_bidder import StubBidder, bid

from snapbid.base.version import version
from snapbid.loadtest import joining
from snapbid.loadtest.accounts import Account
from snapbid.loadtest.auctions import BID_PATH
from snapbid.loadtest.client import Call
from snapbid.loadtest.event_sender import BatchCounts
from snapbid.loadtest.generator import PhaseCounts, RunCounts
from snapbid.loadtest.measure import ClockReading
from snapbid.loadtest.notice_sender import Delay, NoticeCounts, NoticeHabits
from snapbid.loadtest.options import Mix, Options, Target
from snapbid.loadtest.plan import Phase
from snapbid.loadtest.tally import Tally

END_S = 120.0
PATIENT = ("--no-reconcile", "--warmup", "0s", "--timeout", "10s", "--objective", "p99=20s")

TWO = ("--generators", "2", "--rate", "20")


@pytest.fixture
def lead(tmp_path: Path) -> Iterator[Any]:
    """Start the first generator of a run; gives its process and where the others join."""
    with contextlib.ExitStack() as ended:

        def start(*arguments: str) -> tuple[Stack, str]:
            environ = {"SNAPBID_HOME": str(tmp_path / "home")}
            given = ("--listen", "127.0.0.1:0", "--json", str(tmp_path / "result.json"))
            process = Stack(environ, "load", *given, *arguments)
            ended.enter_context(contextlib.closing(process))
            return process, listening(process)

        yield start


def ended(process: Stack) -> int:
    """Wait for the end; returns the exit status."""
    assert process.process
    return process.process.wait(END_S)


@contextlib.contextmanager
def joined(address: str, tmp_path: Path) -> Iterator[Stack]:
    process = Stack({"SNAPBID_HOME": str(tmp_path / "home")}, "load", "--join", address)
    with contextlib.closing(process):
        process.launch()
        yield process


def test_three_generators_count_as_one(lead: Any, plain: tuple[str, ...], tmp_path: Path) -> None:
    stub = StubBidder(bid)
    with stub.running():
        first, address = lead(
            stub.url, *PATIENT, *plain, "--generators", "3", "--steps", "60,90", "--duration", "1s",
            "--arrivals", "even", "--win-rate", "1", "--bill-rate", "0", "--win-delay", "0s",
        )  # fmt: skip
        with joined(address, tmp_path) as second, joined(address, tmp_path) as third:
            assert [ended(each) for each in (first, second, third)] == [0, 0, 0], first.output
    result = json.loads((tmp_path / "result.json").read_text())
    assert [phase["rate"] for phase in result["phases"]] == [60, 90]
    assert [phase["offered"] for phase in result["phases"]] == [60, 90]
    assert [phase["kinds"] for phase in result["phases"]] == [{"bid": 60}, {"bid": 90}]
    assert stub.asked["bid"] == 150
    assert result["notices"]["fired"] == {"win": 150}
    assert result["settings"]["generators"] == "3, each with these connections"


def test_a_generator_that_leaves_ends_the_run(
    lead: Any, plain: tuple[str, ...], tmp_path: Path
) -> None:
    stub = StubBidder(bid)
    with stub.running():
        first, address = lead(stub.url, *PATIENT, *plain, *TWO, "--duration", "60s")
        with joined(address, tmp_path):
            eventually(lambda: stub.asked["bid"] > 0, "bids are asked for")
        assert ended(first) == 1
    assert " disconnected" in first.output.splitlines()[-1]
    assert "Traceback" not in first.output


def test_the_others_stop_when_the_first_one_ends(
    lead: Any, plain: tuple[str, ...], tmp_path: Path
) -> None:
    stub = StubBidder(bid)
    with stub.running():
        first, address = lead(stub.url, *PATIENT, *plain, *TWO, "--duration", "60s")
        with joined(address, tmp_path) as second:
            eventually(lambda: stub.asked["bid"] > 0, "the second generator sends")
            first.stop()
            assert ended(second) == 1
            assert second.output.endswith(
                f"\nsnapbid load --join {address}: {address} disconnected\n"
            )


def test_unknown_peers_are_named_and_left_out(
    lead: Any, plain: tuple[str, ...], tmp_path: Path
) -> None:
    stub = StubBidder(bid)
    with stub.running():
        first, address = lead(stub.url, *PATIENT, *plain, *TWO, "--duration", "1s")
        host, port = address.split(":")
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            eventually(lambda: "is not snapbid load" in first.output, "the stranger is named")
        with socket.create_connection((host, int(port))) as stranger:
            frame = msgspec.msgpack.encode(joining.Ready("\x1b]0;title\x07"))
            stranger.sendall(len(frame).to_bytes(4, "big") + frame)
            eventually(lambda: r"did not join: \x1b]0;title\x07" in first.output, "it is named")
        with joined(address, tmp_path) as second:
            assert (ended(first), ended(second)) == (0, 0), first.output


def test_remote_targets_need_every_operators_consent(tmp_path: Path) -> None:
    """The first one's word does not count for the machine that joins."""
    first = Stack(
        {"SNAPBID_HOME": str(tmp_path / "home")}, "load", "http://192.0.2.1:80", *PATIENT,
        "--i-own-this-target", "--generators", "2", "--listen", "127.0.0.1:0",
    )  # fmt: skip
    with contextlib.closing(first):
        address = listening(first)
        refused = run({"SNAPBID_HOME": str(tmp_path / "home")}, "load", "--join", address)
        assert refused.returncode == 2
        assert "pass --i-own-this-target if it is yours" in refused.stderr
        words = "did not join: http://192.0.2.1:80 is not"
        eventually(lambda: words in first.output, "the first one says so")


SOME_OPTIONS = Options(
    target=Target("http://127.0.0.1:8000", "127.0.0.1", 8000, True),
    path=BID_PATH,
    canonical={},
    rates=[10.0],
    find_capacity=False,
    max_rate=10.0,
    duration_s=1.0,
    warmup_s=0.0,
    ramp_s=0.0,
    even=True,
    connections=1,
    timeout_s=1.0,
    objectives=[],
    abort_on=[],
    phases=[],
    mixes=[Mix({}, Path("plain.jsonl"))],
    requests=1,
    habits=NoticeHabits(0, 0, 0, Delay(0, 0), Delay(0, 0), Delay(0, 0)),
    events=None,
    tokens=None,
    seed=1,
)


def test_counts_of_several_generators_add_up() -> None:
    one, other = (Tally(start=at, until=at + 2.0, timeout_s=1.0) for at in (0.0, 100.0))
    for tally, due, kind in ((one, 0.5, "bid"), (other, 100.5, "bid"), (other, 102.0, "no bid")):
        tally.offer(due, due)
        call: Any = Call(b"", due, None, None)  # type: ignore[arg-type]
        tally.end(call, due + 0.01 * (due - tally.start), kind)
    counts = PhaseCounts(one, ClockReading(3.0, 1.0, 0.0), 3.0)
    counts += PhaseCounts(other, ClockReading(3.0, 2.0, 0.5), 2.5)
    assert (counts.tally.kinds, counts.tally.offered) == ({"bid": 2, "no bid": 1}, 3)
    assert [second.offered for second in counts.tally.seconds] == [2, 0, 1]
    assert counts.tally.histogram.count == counts.tally.wait.count == 3
    assert (counts.tally.answered, counts.tally.answered_in_phase) == (3, 2)
    assert (counts.clocks.processor_s, counts.seconds) == (2.0, 2.5)

    whole = RunCounts({"acme": Account(bids=1)}, NoticeCounts(), BatchCounts(sent=1))
    whole += RunCounts({"acme": Account(bids=2), "nova": Account(wins=1)},
                       NoticeCounts(example="no"), BatchCounts(sent=2, example="late"))  # fmt: skip
    assert whole.accounts == {"acme": Account(bids=3), "nova": Account(wins=1)}
    assert whole.batches is not None
    assert (whole.batches.sent, whole.batches.example, whole.notices.example) == (3, "late", "no")


async def test_a_generator_that_falls_silent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It disconnects neither when it is frozen nor when the network is lost."""

    async def alive_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(4))
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readexactly(1 << 20)
        writer.close()
        await writer.wait_closed()
        over.set()

    over = asyncio.Event()
    monkeypatch.setattr(joining, "SILENCE_S", 0.1)
    server = await asyncio.start_server(alive_once, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        channel = joining.Channel(*await asyncio.open_connection("127.0.0.1", port))
        joined = joining.JoinedGenerator(channel)
        for answer in (joined.run(Phase("load", 3600.0, 1.0)), joined.settle()):
            with pytest.raises(joining.JoinError, match=f"127.0.0.1:{port} is frozen or"):
                await answer
        channel.close()
        await over.wait()


class Settled:
    """A generator whose notices are open until `done` is set."""

    def __init__(self) -> None:
        self.done = asyncio.Event()

    async def open(self) -> None: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...

    async def settle(self) -> RunCounts:
        await self.done.wait()
        return RunCounts({}, NoticeCounts(), None)


async def test_a_joined_generator_shows_that_it_is_alive() -> None:
    """Until it answers, which may take as long as the delays of its notices."""

    async def first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel = joining.Channel(reader, writer)
        channel.send(joining.Welcome(version(), SOME_OPTIONS))
        await channel.receive(joining.Ready)
        channel.send(joining.Settle())
        signs.put_nowait(await reader.readexactly(8))
        generator.done.set()
        signs.put_nowait(await channel.receive(RunCounts))
        channel.close()

    def load(options: Options) -> Any:
        return generator

    generator = Settled()
    signs: asyncio.Queue[Any] = asyncio.Queue()
    server = await asyncio.start_server(first, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        await joining.join(host, port, load, lambda *_: None)
        assert await signs.get() == bytes(8)
        assert (await signs.get()).accounts == {}


async def test_another_version_does_not_join() -> None:
    async def first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel = joining.Channel(reader, writer)
        channel.send(joining.Welcome("0.0.9", SOME_OPTIONS))
        answers.put_nowait(await channel.receive(joining.Ready))
        channel.close()

    def never(options: Any) -> Any:
        raise AssertionError

    answers: asyncio.Queue[joining.Ready] = asyncio.Queue()
    server = await asyncio.start_server(first, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        with pytest.raises(joining.JoinError, match=r"runs snapbid .*, the first one 0\.0\.9"):
            await joining.join(host, port, never, lambda *_: None)
        assert "the first one 0.0.9" in (await answers.get()).problem
