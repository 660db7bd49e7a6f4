"""The private port tells nothing without its token; no process has a secret it does not need."""

import base64
import contextlib
import json
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.ops import ask
from support.processes import descendants, eventually
from support.stack import Stack, run
from support.wire import Wire, head

from snapbid.embedded import Redis

TOKEN = "token-of-the-private-port-in-tests"
PATHS = ("/metrics", "/ops", "/ops/data", "/ops/ops.js", "/", "/nothing")


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture(scope="module", params=["127.0.0.1", "0.0.0.0"])
def guarded(
    request: pytest.FixtureRequest, module_stack: Callable[..., Stack], module_own_redis: Redis
) -> Stack:
    own = {"SNAPBID_REDIS_URL": module_own_redis.url}
    return module_stack(SNAPBID_OPS_HOST=request.param, SNAPBID_OPS_TOKEN=TOKEN, **own)


def test_everything_needs_the_token(guarded: Stack) -> None:
    wrong = (
        None, "", TOKEN, "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}",
        f"Bearer x{TOKEN}", f"Token {TOKEN}", f"Digest {TOKEN}", "Basic", "Basic !",
        f"Basic {TOKEN}", basic("operator", ""), basic("operator", TOKEN + "x"), basic(TOKEN, ""),
        basic("", TOKEN)[:-4], "Bearer \xff",
    )  # fmt: skip
    for path in PATHS:
        for authorization in wrong:
            headers = {} if authorization is None else {"authorization": authorization}
            status, answered, body = ask(guarded, "GET", path, b"", ops=True, **headers)
            assert status == 401, (path, authorization)
            assert "Basic realm" in answered["www-authenticate"], "a browser asks its user"
            assert json.loads(body)["error"] == "unauthorized"
    with Wire(guarded.ops_port) as wire:  # twice: which of the two would count?
        twice = head("GET", "/metrics", {"host": "localhost", "authorization": f"Bearer {TOKEN}"})
        wire.write(twice[:-2], f"authorization: Bearer {TOKEN}x\r\n\r\n".encode())
        assert wire.socket.recv(64).startswith(b"HTTP/1.0 401")


def test_clients_that_go_away_leave_no_traceback(guarded: Stack) -> None:
    """Which would look like a crash in the log; the stack fails at the end if it has one."""
    request = head("GET", "/metrics", {"host": "localhost", "authorization": f"Bearer {TOKEN}"})
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", guarded.ops_port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(request)  # closed with a reset
    assert ask(guarded, "GET", "/metrics", ops=True, authorization=f"Bearer {TOKEN}")[0] == 200
    assert "Traceback" not in guarded.output


def test_the_token_opens_everything(guarded: Stack) -> None:
    for right in (
        f"Bearer {TOKEN}",
        f"bearer  {TOKEN}",
        basic("operator", TOKEN),
        basic("", TOKEN),
    ):
        for path in ("/metrics", "/ops", "/ops/data", "/ops/ops.js"):
            assert ask(guarded, "GET", path, ops=True, authorization=right)[0] == 200
    assert TOKEN not in guarded.output


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "::ffff:127.0.0.1"])
def test_non_loopback_addresses_need_a_token(database: str, redis_url: str, host: str) -> None:
    done = run(
        {
            "SNAPBID_DATABASE_URL": database,
            "SNAPBID_REDIS_URL": redis_url,
            "SNAPBID_JWT_SECRET": "x" * 32,
            "SNAPBID_OPS_HOST": host,
        },
        "serve",
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"SNAPBID_OPS_TOKEN must be set, since SNAPBID_OPS_HOST {host} is not")


def environment(pid: int) -> dict[str, str] | None:
    """None for one that has ended, as PostgreSQL's own workers do."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return dict(line.partition("=")[::2] for line in text.split("\0") if line)


@pytest.fixture(scope="module")
def up(
    tmp_path_factory: pytest.TempPathFactory, initialise: Callable[[Path], None]
) -> Iterator[Stack]:
    """`snapbid up` with a private port for other machines; a test may start it anew."""
    home = tmp_path_factory.mktemp("up") / "home"
    initialise(home)
    own = {"SNAPBID_HOME": str(home), "SNAPBID_JWT_SECRET": "s" * 40, "SNAPBID_OPS_HOST": "0.0.0.0"}
    stack = Stack(own, "up")
    with contextlib.closing(stack):
        stack.launch()
        stack.await_ready()
        eventually(lambda: "Ctrl-C stops everything" in stack.output, "its greeting")
        yield stack


def test_each_process_has_the_secrets_that_it_needs(up: Stack) -> None:
    """And `up` makes the token, keeps it, and tells it to its user alone."""
    assert up.process
    home = Path(up.environ["SNAPBID_HOME"])
    token = (home / "ops-token").read_text()
    told = run({"SNAPBID_HOME": str(home)}, "env").stdout
    assert f"SNAPBID_OPS_TOKEN={token}\n" in told
    assert token not in up.output
    assert (home / "ops-token").stat().st_mode & 0o077 == 0
    assert ask(up, "GET", "/metrics", ops=True)[0] == 401
    assert ask(up, "GET", "/metrics", ops=True, authorization=f"Bearer {token}")[0] == 200
    processes = descendants(up.process.pid)
    for kind, needs_the_secrets in {
        "snapbid drain": False,
        "redis-server": False,
        "postgres": False,
        "snapbid serve": True,
    }.items():
        pids = [pid for pid, command in processes.items() if kind in command]
        assert pids, (kind, processes)
        all_held = [held for pid in pids if (held := environment(pid)) is not None]
        assert all_held, kind
        for held in all_held:
            assert ("SNAPBID_JWT_SECRET" in held) == needs_the_secrets, kind
            assert ("SNAPBID_OPS_TOKEN" in held) == needs_the_secrets, kind
    workers = [pid for pid, command in processes.items() if "spawn_main" in command]
    assert workers
    for pid in workers:
        held = environment(pid)
        assert held is not None
        assert ("SNAPBID_JWT_SECRET" in held, "SNAPBID_OPS_TOKEN" in held) == (True, False)


def test_up_keeps_its_token(up: Stack) -> None:
    assert up.process
    token = Path(up.environ["SNAPBID_HOME"], "ops-token").read_text()
    assert up.stop() == 0
    up.launch()
    up.await_ready()
    assert ask(up, "GET", "/metrics", ops=True, authorization=f"Bearer {token}").status == 200
