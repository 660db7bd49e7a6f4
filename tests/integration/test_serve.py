"""`snapbid serve`: changes that reach it, workers that end, readiness, the private port."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from support.campaigns import put
from support.commands import invoke, succeed
from support.http import ask
from support.processes import accepts, eventually, workers_of
from support.soak.disk import mounted
from support.stack import Stack, execute, run
from support.wire import Wire, head

from snapbid.embedded import Redis
from workload.serving import free_ports

JSON = {"content-type": "application/json"}
CAMPAIGN: dict[str, Any] = {
    "id": "c1",
    "advertiser": "brand.example",
    "cpm": 2,
    "creatives": [{"id": "k", "media": "banner", "w": 300, "h": 250, "adm": "<p></p>"}],
}
BODY = json.dumps(
    {"id": "a", "tmax": 60_000, "imp": [{"id": "1", "banner": {"w": 300, "h": 250}}]}
).encode()
CONNECTIONS = 12  # so many new ones reach every worker, all but surely


def bid_path(ssp: str) -> str:
    return f"/api/v1/openrtb2/{ssp}/bid"


def statuses(stack: Stack, ssp: str = "acme") -> list[int]:
    """The statuses of the same bid request on several new connections; 0 where none came."""
    statuses = []
    for _ in range(CONNECTIONS):
        try:
            statuses.append(ask(stack.port, "POST", bid_path(ssp), BODY, JSON).status)
        except (OSError, HTTPException):
            statuses.append(0)
    return statuses


def all_answer(stack: Stack, status: int, ssp: str = "acme") -> None:
    eventually(
        lambda: statuses(stack, ssp) == [status] * CONNECTIONS,
        f"{status} from every worker for {ssp}",
    )


@pytest.fixture
def filled(database: str) -> str:
    asyncio.run(put(database, CAMPAIGN, ssp="acme"))
    return database


@pytest.fixture(scope="module")
def running(module_stack: Callable[..., Stack], module_own_redis: Redis) -> Stack:
    """A server beside which others are started."""
    return module_stack(
        SNAPBID_REDIS_URL=module_own_redis.url, SNAPBID_BASE_URL="https://rtb.example"
    )


def snapbid(dsn: str, *arguments: str) -> None:
    succeed({"SNAPBID_DATABASE_URL": dsn}, *arguments)


def test_changes_by_commands_reach_every_worker(
    database: str, start_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    stack = start_stack(SNAPBID_WORKERS="2")
    assert set(statuses(stack)) == {404}
    snapbid(database, "ssp", "add", "acme")
    all_answer(stack, 204)
    file = tmp_path / "campaigns.json"
    file.write_text(json.dumps(CAMPAIGN), encoding="utf-8")
    snapbid(database, "campaign", "import", str(file))
    all_answer(stack, 200)
    snapbid(database, "campaign", "pause", "c1")
    all_answer(stack, 204)
    snapbid(database, "campaign", "resume", "c1")
    all_answer(stack, 200)
    snapbid(database, "ssp", "add", "acme-eu", "--canonical", "acme")
    all_answer(stack, 200, "acme-eu")


def test_changes_by_plain_sql_reach_every_worker(
    filled: str, start_stack: Callable[..., Stack]
) -> None:
    stack = start_stack()
    all_answer(stack, 200)
    asyncio.run(execute(filled, "delete from campaign where id = 'c1'"))
    all_answer(stack, 204)


def test_invalid_campaigns_affect_no_other(filled: str, start_stack: Callable[..., Stack]) -> None:
    stack = start_stack()
    asyncio.run(
        execute(filled, "insert into campaign (id, document) values ('c0', '{\"id\": \"c0\"}')")
    )
    asyncio.run(execute(filled, "insert into ssp (descriptor, canonical) values ('x', 'x')"))
    all_answer(stack, 200, "x")
    eventually(lambda: "campaign 'c0' does not bid" in stack.output, "a word about it")


def test_a_restarted_warehouse_connection_is_followed_again(
    filled: str, start_stack: Callable[..., Stack]
) -> None:
    stack = start_stack()
    all_answer(stack, 200)
    asyncio.run(
        execute(
            filled,
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid()",
        )
    )
    snapbid(filled, "campaign", "pause", "c1")
    all_answer(stack, 204)


def test_a_killed_worker_is_replaced(filled: str, start_stack: Callable[..., Stack]) -> None:
    stack = start_stack(SNAPBID_WORKERS="2")
    assert stack.process
    server = stack.process.pid
    before = workers_of(server)
    assert len(before) == 2
    killed = before.pop()
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: len(workers_of(server) - {killed}) == 2, "two workers again")
    all_answer(stack, 200)
    assert before < workers_of(server)


def test_workers_that_do_not_answer_are_named(
    filled: str, start_stack: Callable[..., Stack]
) -> None:
    stack = start_stack(SNAPBID_WORKERS="2")
    assert stack.process
    eventually(lambda: not is_named(stack), "a worker answers")
    stopped = workers_of(stack.process.pid)
    for worker in stopped:
        os.kill(worker, signal.SIGSTOP)
    try:
        eventually(lambda: is_named(stack), "nobody answers")
        assert "\nsnapbid_port_up 0" in stack.get("/metrics", ops=True)[1].decode()
    finally:
        for worker in stopped:
            os.kill(worker, signal.SIGCONT)
    eventually(lambda: not is_named(stack), "a worker answers again")


def is_named(stack: Stack) -> bool:
    """Whether the verdict names workers that do not answer."""
    verdict = json.loads(stack.get("/ops/data", ops=True)[1])["verdict"]
    found = any(cause["text"].startswith("no worker of this") for cause in verdict["causes"])
    assert not found or verdict["state"] == "not bidding"
    return found


def test_the_threads_of_a_worker_are_scheduled_as_batch(running: Stack) -> None:
    """They would interrupt each other for each request (`serve.schedule_as_batch`)."""
    assert running.process
    (worker,) = workers_of(running.process.pid)
    threads = [int(each.name) for each in Path(f"/proc/{worker}/task").iterdir()]
    assert len(threads) > 1
    assert {os.sched_getscheduler(each) for each in threads} == {os.SCHED_BATCH}


def test_a_request_in_flight_is_answered_before_the_end(
    filled: str, start_stack: Callable[..., Stack]
) -> None:
    stack = start_stack()
    assert stack.process
    all_answer(stack, 200)
    with Wire(stack.port) as wire:
        headers = {"host": "x", "content-length": len(BODY), "expect": "100-continue", **JSON}
        wire.write(head("POST", bid_path("acme"), headers), BODY[:10])
        assert wire.read().status == 100  # so it has been taken up
        stack.process.send_signal(signal.SIGTERM)
        eventually(lambda: not accepts(stack.port), "nobody is let in any more")
        wire.write(BODY[10:])
        assert wire.read().status == 200
    assert stack.process.wait(60) == 0
    assert "Traceback" not in stack.output


@pytest.mark.parametrize("workers", ["1", "2"])
def test_sigterm_ends_it_with_status_0(start_stack: Callable[..., Stack], workers: str) -> None:
    stack = start_stack(SNAPBID_WORKERS=workers)
    assert stack.process
    pids = workers_of(stack.process.pid)
    assert stack.stop() == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_readyz_names_a_redis_that_is_unavailable(
    own_redis: Redis, start_stack: Callable[..., Stack]
) -> None:
    stack = start_stack(SNAPBID_REDIS_URL=own_redis.url)
    assert stack.get("/readyz") == (200, b'{"status":"ready"}')
    own_redis.stop()
    eventually(lambda: stack.get("/readyz")[0] == 503, "a Redis that is gone to be noticed")
    assert json.loads(stack.get("/readyz")[1])["missing"] == ["redis"]
    assert stack.get("/healthz")[0] == 200
    own_redis.start()
    eventually(lambda: stack.get("/readyz")[0] == 200, "readiness with Redis back")


def test_metrics_are_on_the_private_port_alone(
    filled: str, start_stack: Callable[..., Stack]
) -> None:
    stack = start_stack(SNAPBID_WORKERS="2")
    all_answer(stack, 200)
    asked = statuses(stack) + statuses(stack)
    assert stack.get("/metrics")[0] == 404
    assert stack.get("/")[0] == 302
    status, body = stack.get("/metrics", ops=True)
    assert status == 200
    counted = [
        float(line.rpartition(" ")[2])
        for line in body.decode().splitlines()
        if line.startswith("snapbid_bid_requests_total{")
        and 'outcome="bid"' in line
        and 'ssp="acme"' in line
    ]
    assert sum(counted) >= len(asked)  # of both workers together
    assert stack.get(bid_path("acme"), ops=True)[0] == 404


def refused(environ: dict[str, str], status: int = 2) -> list[str]:
    """What `serve` says when it does not start."""
    done = run(environ, "serve")
    assert (done.returncode, "Traceback" in done.stderr) == (status, False), done.stderr
    return done.stderr.splitlines()


def test_refuses_to_start_with_wrong_settings(tmp_path: Path) -> None:
    assert refused({}) == [
        "SNAPBID_REDIS_URL must be set",
        "SNAPBID_DATABASE_URL must be set",
        "SNAPBID_JWT_SECRET must be set",
    ]
    said = refused({"SNAPBID_PORT": "0", "SNAPBID_WORKERS": "x", "SNAPBID_JWT_SECRET": "short"})
    for name in ("SNAPBID_PORT", "SNAPBID_WORKERS", "SNAPBID_JWT_SECRET"):
        assert any(line.startswith(f"{name} ") for line in said)


def test_refuses_to_start_with_a_corrupt_geo_database(
    database: str, redis_url: str, tmp_path: Path
) -> None:
    broken = tmp_path / "geo.mmdb"
    broken.write_bytes(b"nonsense" * 1000)
    settings = Stack(
        {
            "SNAPBID_HOME": str(tmp_path / "home"),
            "SNAPBID_DATABASE_URL": database,
            "SNAPBID_REDIS_URL": redis_url,
            "SNAPBID_GEO_DB": str(broken),
        }
    )
    (said,) = refused(settings.environ)
    settings.close()
    assert said.startswith(f"SNAPBID_GEO_DB: geo database {broken} ")


def test_refuses_to_start_on_a_taken_port(running: Stack) -> None:
    (ops_port,) = free_ports(1)
    (said,) = refused({**running.environ, "SNAPBID_OPS_PORT": str(ops_port)}, 1)
    assert said.startswith(f"SNAPBID_PORT {running.port} on 127.0.0.1 cannot be used")
    assert running.get("/readyz")[0] == 200


def test_refuses_the_home_of_another_server_until_that_has_ended(
    start_stack: Callable[..., Stack], filled: str
) -> None:
    first = start_stack(SNAPBID_WORKERS="2")
    assert first.process
    (ops_port,) = free_ports(1)
    elsewhere = {"SNAPBID_HOST": "127.0.0.2", "SNAPBID_OPS_PORT": str(ops_port)}
    (said,) = refused({**first.environ, **elsewhere}, 1)
    assert said == (
        f"SNAPBID_HOME {first.environ['SNAPBID_HOME']} is in use on port {first.port} by process "
        f"{first.process.pid}: stop it, or set SNAPBID_HOME to another directory"
    )
    first.process.send_signal(signal.SIGHUP)
    all_answer(first, 200)
    first.process.kill()
    first.process.wait()
    first.start()
    all_answer(first, 200)


def test_refuses_to_start_in_an_impossible_home(running: Stack) -> None:
    port, ops_port = map(str, free_ports(2))
    ports = {"SNAPBID_PORT": port, "SNAPBID_OPS_PORT": ops_port}
    (said,) = refused({**running.environ, **ports, "SNAPBID_HOME": "/proc/none/home"})
    assert said == (
        "SNAPBID_HOME /proc/none/home cannot be used: No such file or directory: set it to a "
        "directory that you can write to"
    )


def test_refuses_to_start_if_it_cannot_write_to_its_home(running: Stack, tmp_path: Path) -> None:
    port, ops_port = map(str, free_ports(2))
    ports = {"SNAPBID_PORT": port, "SNAPBID_OPS_PORT": ops_port}
    (tmp_path / f"serve-{port}" / "releases").mkdir(parents=True)
    (said,) = refused({**running.environ, **ports, "SNAPBID_HOME": str(tmp_path)})
    assert said.startswith(f"SNAPBID_HOME {tmp_path} cannot be used: Is a directory")


def test_refuses_to_start_on_a_full_disk(running: Stack, tmp_path: Path) -> None:
    port, ops_port = map(str, free_ports(2))
    ports = {"SNAPBID_PORT": port, "SNAPBID_OPS_PORT": ops_port}
    with mounted(tmp_path / "full", 1) as disk:
        if disk is None:
            pytest.skip("no tmpfs can be mounted here")
        disk.fill()
        (said,) = refused({**running.environ, **ports, "SNAPBID_HOME": str(tmp_path / "full")})
    assert said.startswith(f"SNAPBID_HOME {tmp_path / 'full'} cannot be used: No space left on")


@pytest.mark.parametrize(
    ("host", "reached"),
    [
        ("::1", ["::1"]),
        ("::", ["::1", "127.0.0.1"]),
        ("0.0.0.0", ["127.0.0.1"]),
        ("localhost", ["localhost"]),
    ],
)
def test_listens_on_any_address_or_name(
    start_stack: Callable[..., Stack], host: str, reached: list[str]
) -> None:
    """With everything that knows the address: notification URLs, the private port, the status."""
    stack = start_stack(
        SNAPBID_HOST=host, SNAPBID_OPS_HOST=host, SNAPBID_OPS_TOKEN="a-token-of-the-tests"
    )
    shown = f"[{host}]" if ":" in host else host
    eventually(lambda: "listening on" in stack.output, "word of the port")
    assert (
        f"listening on http://{shown}:{stack.port} (SNAPBID_WORKERS: 1), private port "
        f"http://{shown}:{stack.ops_port}/ops, notification URLs at http://{shown}:{stack.port}\n"
    ) in stack.output
    warned = f"begin with http://{shown}:{stack.port}, which SSPs cannot reach" in stack.output
    assert warned == (host in ("::", "0.0.0.0"))
    for address in reached:
        assert ask(stack.port, "GET", "/readyz", host=address).status == 200
    own = {name: text for name, text in stack.environ.items() if name.startswith("SNAPBID_")}
    told = invoke(own, "status")
    assert "server  " in told.stdout, told.stderr


def test_a_missing_schema_is_logged_once_until_migrated(
    database: str, fresh_redis: str, tmp_path: Path
) -> None:
    """By `serve` and by the drain, each with the command to run."""
    asyncio.run(execute(database, "drop schema public cascade"))
    asyncio.run(execute(database, "create schema public"))
    own = {
        "SNAPBID_HOME": str(tmp_path / "home"),
        "SNAPBID_DATABASE_URL": database,
        "SNAPBID_REDIS_URL": fresh_redis,
    }
    with contextlib.ExitStack() as stack:
        serve = stack.enter_context(contextlib.closing(Stack(own)))
        drain = stack.enter_context(contextlib.closing(Stack(own, "drain")))
        for process in (serve, drain):
            process.launch()
        said = "the warehouse's schema does not fit this program: run snapbid migrate"
        eventually(lambda: said in serve.output and said in drain.output, "word of the schema")
        eventually(lambda: b"campaigns" in serve.get("/readyz")[1], "an answer")
        snapbid(database, "migrate")
        serve.await_ready()
        for process in (serve, drain):
            assert process.output.count(said) == 1, process.output
            assert "Traceback" not in process.output


def test_listening_address_is_logged(running: Stack) -> None:
    eventually(lambda: "listening on" in running.output, "word of the port")
    assert (
        f"listening on {running.base_url} (SNAPBID_WORKERS: 1), private port "
        f"{running.ops_url}/ops, "
        "notification URLs at https://rtb.example\n"
    ) in running.output


def test_log_lines_as_json(filled: str, start_stack: Callable[..., Stack]) -> None:
    """Also Granian's own, and those of workers."""
    stack = start_stack(SNAPBID_LOG="json")
    assert stack.process
    (worker,) = workers_of(stack.process.pid)
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: "Unexpected exit" in stack.output, "Granian's line about the worker")
    all_answer(stack, 200)
    eventually(lambda: "listening on" in stack.output, "the addresses")
    assert stack.stop() == 0
    lines = [json.loads(line) for line in stack.output.splitlines()]
    common = {"time", "level", "logger", "pid", "message"}
    assert all(common <= line.keys() for line in lines)
    (listening,) = (line for line in lines if line["message"].startswith("listening on"))
    assert (listening["url"], listening["workers"]) == (stack.base_url, 1)
    assert listening["logger"] == "snapbid.server.serve"
    (published, *_) = (line for line in lines if "ssps" in line)
    assert (published["campaigns"], published["ssps"]) == (1, 1)
    (exited,) = (line for line in lines if "Unexpected exit" in line["message"])
    assert exited["logger"] == "_granian"
