"""Requests that are only half sent: they end by themselves, and keep nobody from being served."""

import asyncio
import contextlib
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.bystander import BODY, JSON, PATH, REQUEST
from support.processes import eventually
from support.stack import Databases, Stack
from support.wire import Wire, head

from snapbid.embedded import Redis, demo

HALF_SENT = 5_000
FEW_FILES = 400  # of which a worker uses three quarters for connections


def bid_head(length: int = len(BODY)) -> bytes:
    return head("POST", PATH, {"host": "x", "content-length": length, **JSON})


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * HALF_SENT + 2_000
    if hard not in (resource.RLIM_INFINITY,) and hard < wanted:
        pytest.skip(f"a process may open only {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(server: Stack) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), 60)


def is_closed(client: socket.socket) -> bool:
    """Whether the server has closed the connection; reads what it sent before."""
    client.setblocking(False)
    try:
        while client.recv(65_536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


@pytest.mark.usefixtures("many_files")
def test_thousands_of_missing_bodies(server: Stack, key: str) -> None:
    event = {"host": "x", "content-length": 100, "x-api-key": key, **JSON}
    halves = (
        bid_head() + BODY[:1],
        bid_head(),
        head("POST", "/v3/s2s/event", event) + b"{",
        head("POST", "/nowhere", event) + b"{",
    )
    with contextlib.ExitStack() as opened:
        clients = []
        for number in range(HALF_SENT):
            client = opened.enter_context(connect(server))
            client.sendall(halves[number % len(halves)])
            clients.append(client)
        with Wire(server.port) as wire:  # behind all of them
            wire.write(REQUEST)
            assert wire.read().status in (200, 204)  # half-sent ones may count as waiting
        eventually(lambda: all(map(is_closed, clients)), "the server to end them")


def test_half_sent_heads_time_out(server: Stack) -> None:
    """Long before an idle connection does."""
    with connect(server) as fresh, Wire(server.port) as used:
        fresh.sendall(REQUEST[:30])
        used.write(REQUEST)
        assert used.read().status == 200
        time.sleep(0.1)  # the kernel tells when something came by its clock's ticks
        used.write(REQUEST[:30])
        eventually(lambda: is_closed(fresh) and is_closed(used.socket), "their end")


def test_half_closed_clients_harm_nobody(server: Stack) -> None:
    """They get no answer (server/README.md, Connections), and hold no place."""
    with contextlib.ExitStack() as opened:
        for start in (REQUEST, REQUEST[:-1], REQUEST[:30], b""):
            for _ in range(50):
                wire = opened.enter_context(Wire(server.port))
                wire.write(start)
                wire.half_close()
                wire.socket.settimeout(60)
                with contextlib.suppress(ConnectionError):
                    answer = wire.socket.recv(64)
                    assert answer[:12] in (b"", b"HTTP/1.1 200", b"HTTP/1.1 400")
        with Wire(server.port) as wire:
            wire.write(REQUEST)
            assert wire.read().status == 200


def test_a_late_body_is_answered_before_the_connection_ends(server: Stack, key: str) -> None:
    for start in (bid_head() + BODY[:1], bid_head()):
        with Wire(server.port) as wire:
            wire.write(start)
            reply = wire.read()
            assert (reply.status, reply.headers["connection"]) == (408, "close")
            assert reply.json() == {
                "error": "request_timeout",
                "detail": "the body did not arrive in time",
            }
            assert wire.at_end()
    with Wire(server.port) as wire:
        event = {"host": "x", "content-length": 100, "x-api-key": key, **JSON}
        wire.write(head("POST", "/v3/s2s/event", event))
        reply = wire.read()
        assert (reply.status, reply.json()["code"]) == (408, "REQUEST_TIMEOUT")
        assert wire.at_end()


def test_a_late_body_of_a_recorded_request(
    start_stack: Callable[..., Stack], database: str, tmp_path: Path
) -> None:
    asyncio.run(demo.seed(database))
    stack = start_stack(
        SNAPBID_RECORD=str(tmp_path / "record"),
        SNAPBID_RECORD_SAMPLE="1",
        SNAPBID_BODY_TIMEOUT_S="1",
    )
    for start in (bid_head() + BODY[:1], bid_head()):
        with Wire(stack.port) as wire:
            wire.write(start)
            assert wire.read().status == 408


def test_an_idle_connection_ends_once_its_time_is_over(
    start_stack: Callable[..., Stack], database: str
) -> None:
    asyncio.run(demo.seed(database))
    stack = start_stack(SNAPBID_IDLE_TIMEOUT_S="2")
    with Wire(stack.port) as wire:
        for _ in range(2):
            asked = time.monotonic()
            wire.write(REQUEST)
            assert wire.read().status == 200
        assert wire.at_end()
        assert time.monotonic() - asked > 1.9


def test_a_body_that_comes_byte_by_byte_is_late_too(server: Stack) -> None:
    """The whole body has one deadline: each byte does not begin another."""
    with Wire(server.port) as wire:
        wire.write(bid_head(200_000))
        wire.socket.settimeout(0.05)
        with contextlib.suppress(ConnectionError):
            for _ in range(1_000):  # 50 s
                wire.write(b" ")
                with contextlib.suppress(TimeoutError):
                    assert wire.socket.recv(16).startswith(b"HTTP/1.1 408")
                    return
        pytest.fail("the connection was not ended, or without an answer")


def test_a_body_behind_another_request_is_late_too(server: Stack) -> None:
    """Sent in one piece with a whole request, whose answer comes first."""
    with Wire(server.port) as wire:
        wire.write(REQUEST, bid_head(), BODY[:1])
        assert wire.read().status == 200
        assert wire.read().status == 408
        assert wire.at_end()


@pytest.fixture(scope="module")
def small(
    databases: Databases, module_own_redis: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """A server with a low limit of open files."""
    with databases.fresh() as database:
        asyncio.run(demo.seed(database))
        stack = Stack(
            {
                "SNAPBID_HOME": str(tmp_path_factory.mktemp("small")),
                "SNAPBID_DATABASE_URL": database,
                "SNAPBID_REDIS_URL": module_own_redis.url,
            }
        )
        with contextlib.closing(stack):
            stack.launch("sh", "-c", f'ulimit -n {FEW_FILES}; exec "$@"', "sh")
            stack.await_ready()
            yield stack


@pytest.mark.parametrize(
    "start", [b"", b"POST ", bid_head(), REQUEST], ids=["nothing", "half a head", "head", "idle"]
)
def test_half_sent_requests_take_no_connection_slots(small: Stack, start: bytes) -> None:
    """More connections than the server has places for: it makes room."""
    with contextlib.ExitStack() as opened:
        for _ in range(2 * FEW_FILES):
            client = opened.enter_context(connect(small))
            client.sendall(start)
        with Wire(small.port) as wire:
            wire.write(head("GET", "/healthz", {"host": "x"}))
            assert wire.read("GET").status == 200


@pytest.mark.parametrize("start", [b"", b"POST ", REQUEST[:-1]], ids=["nothing", "head", "body"])
def test_a_server_stops_beside_half_sent_requests(
    start_stack: Callable[..., Stack], database: str, start: bytes
) -> None:
    """By itself: a worker that is killed cannot put its affairs in order."""
    asyncio.run(demo.seed(database))
    stack = start_stack()
    with contextlib.ExitStack() as opened:
        for _ in range(50):
            wire = opened.enter_context(Wire(stack.port))
            wire.write(start)
        with Wire(stack.port) as wire:  # behind all of them
            wire.write(REQUEST)
            assert wire.read().status in (200, 204)
        assert stack.stop() == 0
    assert "killed" not in stack.output
