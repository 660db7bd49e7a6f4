"""`snapbid up --machines`: several servers, two drains and a cluster in one command."""

import contextlib
import http.client
import itertools
import json
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.commands import succeed
from support.processes import children_of, eventually
from support.spending import bid_request
from support.stack import Stack, run

from snapbid.embedded.cluster import HOST, free_ports
from snapbid.embedded.fleet import PORT_STEP

READY = "Ctrl-C stops everything"


@pytest.fixture
def home(initialise: Callable[[Path], None]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="snapbid-up-") as path:
        initialise(Path(path))
        yield Path(path)


def ports() -> tuple[int, int]:
    """Ports of the first of two machines, those of the second being free too."""
    while True:
        (port,) = free_ports(1)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for number in (port, port + 1, port + PORT_STEP, port + PORT_STEP + 1):
                stack.enter_context(socket.create_server((HOST, number)))
            return port, port + 1


@contextlib.contextmanager
def started(home: Path) -> Iterator[Stack]:
    port, ops_port = ports()
    environ = {"SNAPBID_HOME": str(home), "SNAPBID_PORT": str(port)}
    own = Stack({**environ, "SNAPBID_OPS_PORT": str(ops_port)}, "up", "--machines", "2")
    own.port, own.ops_port = port, ops_port
    with contextlib.closing(own):
        own.launch()
        await_text(own, READY)
        yield own
        assert own.stop(signal.SIGINT) == 0
        assert "Traceback" not in own.output


def await_text(own: Stack, text: str) -> None:
    process = own.process
    assert process
    eventually(lambda: text in own.output or process.poll() is not None, text)
    assert text in own.output, own.output


def ask(port: int, path: str, document: object = None) -> tuple[int, bytes]:
    client = http.client.HTTPConnection(HOST, port, timeout=10)
    with contextlib.closing(client):
        if document is None:
            client.request("GET", path)
        else:
            headers = {"content-type": "application/json"}
            client.request("POST", path, json.dumps(document), headers)
        answer = client.getresponse()
        return answer.status, answer.read()


def await_metric(ops_port: int, line: str) -> None:
    eventually(lambda: line.encode() in ask(ops_port, "/metrics")[1], line)


def is_whole(port: int) -> bool:
    status, body = ask(port, "/readyz")
    return status == 200 and b"away" not in body


def a_creative_suspensions_on_both(environ: dict[str, str], *ports: int) -> None:
    """Losses at either machine count together; a suspension and its end reach both."""
    auctions = itertools.count()

    def bid(port: int) -> Any:
        imp = {"id": "1", "banner": {"w": 333, "h": 444}}
        document = {"id": f"rest-{next(auctions)}", "imp": [imp], "tmax": 60_000}
        status, body = ask(port, "/api/v1/openrtb2/acme/bid", document)
        return json.loads(body)["seatbid"][0]["bid"][0] if status == 200 else None

    creative = {"id": "c", "media": "banner", "w": 333, "h": 444, "adm": "<p></p>"}
    campaign = {"id": "rejected", "advertiser": "a.example", "cpm": 1, "creatives": [creative]}
    succeed(environ, "campaign", "import", "-", input=json.dumps(campaign))
    eventually(lambda: all(map(bid, ports)), "both offer it")

    def rejects(port: int, other: int) -> bool:
        """Reject what one machine offers at the other; return whether it offers something."""
        made = bid(port)
        if made is not None:
            lurl = urlsplit(made["lurl"].replace("${AUCTION_LOSS}", "202"))
            assert ask(other, f"{lurl.path}?{lurl.query}")[0] == 200
        return made is not None

    first, second = ports
    eventually(
        lambda: not rejects(first, second) and not rejects(second, first), "suspended on both"
    )
    succeed(environ, "creative", "resume", "rejected")
    eventually(lambda: all(map(bid, ports)), "both offer it again")


def test_two_machines_are_one_bidder(home: Path) -> None:
    with started(home) as own:
        first, second = own.port, own.port + PORT_STEP
        assert is_whole(first)
        assert is_whole(second)
        status, _ = ask(first, "/api/v1/openrtb2/acme/bid", bid_request("shared"))
        assert status == 200
        for port in (first, second):
            assert ask(port, "/rtb/win?id=shared&impId=1")[0] == 200
        await_metric(second + 1, 'snapbid_notices_total{kind="win",outcome="duplicate"} 1')

        environ = dict(
            line.split("=", 1)
            for line in run({"SNAPBID_HOME": str(home)}, "env").stdout.splitlines()
        )
        assert environ["SNAPBID_REDIS_URL"].startswith("redis+cluster://:")
        assert environ["SNAPBID_REDIS_URL"].partition("@")[0] not in own.output
        assert "demo" in succeed(environ, "campaign", "list")
        a_creative_suspensions_on_both(environ, first, second)
        assert own.process
        nodes = [pid for pid, line in children_of(own.process.pid).items() if "redis-" in line]
        assert len(nodes) == 6
        os.kill(nodes[0], signal.SIGKILL)
        await_text(own, "is started again")
        eventually(lambda: is_whole(first) and is_whole(second), "a ledger that is whole")
        assert ask(second, "/rtb/bill?id=shared&impId=1")[0] == 200
    with started(home) as own:
        assert ask(own.port, "/rtb/bill?id=shared&impId=1")[0] == 200
        await_metric(own.ops_port, 'snapbid_notices_total{kind="billing",outcome="duplicate"} 1')
    done = run({"SNAPBID_HOME": str(home)}, "up")
    assert done.returncode == 1
    assert "has the ledger of a cluster: start it with --machines" in done.stderr


def test_what_cannot_be_started_is_named(tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir()
    environ = {"SNAPBID_HOME": str(tmp_path)}
    done = run(environ, "up", "--machines", "2")
    assert done.returncode == 1
    assert "has the ledger of one Redis: start it without --machines" in done.stderr
    for port, ops_port in ((8000, 8010), (65_530, 8001)):
        own = {"SNAPBID_PORT": str(port), "SNAPBID_OPS_PORT": str(ops_port)}
        done = run({**environ, **own}, "up", "--machines", "2")
        assert done.returncode == 1
        assert f"(found {port} and {ops_port})" in done.stderr
