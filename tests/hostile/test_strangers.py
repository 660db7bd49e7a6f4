"""Who may send as an SSP: strangers are refused, and nobody sends more than was agreed."""

import asyncio
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any

import pytest
from support.bystander import BODY, JSON, PATH
from support.commands import succeed
from support.http import Reply, ask_on, connected
from support.ops import samples
from support.processes import eventually
from support.stack import Stack

from snapbid.embedded import demo

LIMIT = 20
OTHER = PATH.replace("acme", "nova")


@pytest.fixture
def stack(database: str, start_stack: Callable[..., Stack]) -> Stack:
    asyncio.run(demo.seed(database))
    return start_stack(SNAPBID_WORKERS="2", SNAPBID_TRUSTED_PROXIES="127.0.0.8/29, 127.0.0.99")


def narrow(stack: Stack, *arguments: str) -> None:
    succeed(stack.environ, "ssp", "set", "acme", *arguments)


def bid(client: HTTPConnection, path: str = PATH, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask_on(client, "POST", path, BODY, JSON | named)


def status(stack: Stack, source: str, path: str = PATH, **headers: str) -> int:
    with connected(stack.port, source=source) as client:
        return bid(client, path, **headers).status


def everywhere(stack: Stack, source: str, wanted: int, **headers: str) -> None:
    """Wait until every worker answers so; each connection may be with another one."""
    eventually(
        lambda: all(status(stack, source, **headers) == wanted for _ in range(20)),
        f"{wanted} for {source}",
    )


def outcome(stack: Stack, reason: str) -> float:
    counted: Any = samples(stack)["snapbid_bid_requests_total"]
    return float(counted.get((("outcome", reason), ("ssp", "acme")), 0))


def test_only_named_addresses_may_send(stack: Stack) -> None:
    everywhere(stack, "127.0.0.1", 200)
    narrow(stack, "--allow", "127.0.0.2", "--allow", "198.51.100.0/24", "--allow", "2001:db8::/32")
    everywhere(stack, "127.0.0.1", 403)
    everywhere(stack, "127.0.0.2", 200)
    with connected(stack.port, source="127.0.0.1") as client:
        refused = bid(client)
        assert (refused.status, refused.body) == (
            403,
            b'{"error":"forbidden","detail":"this SSP may not send requests from this address"}',
        )
        assert bid(client, OTHER).status in (200, 204), "on the same connection, for another SSP"
        answer = ask_on(client, "GET", PATH)
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
    eventually(lambda: outcome(stack, "forbidden") >= 9, "refusals counted")
    narrow(stack, "--allow", "any")
    everywhere(stack, "127.0.0.1", 200)


def test_addresses_behind_a_proxy(stack: Stack) -> None:
    narrow(stack, "--allow", "198.51.100.0/24", "--allow", "2001:db8::/32")
    everywhere(stack, "127.0.0.1", 403)
    for source, forwarded, wanted in (
        ("127.0.0.1", "198.51.100.1", 403),  # no proxy: it may write what it likes
        ("127.0.0.9", "198.51.100.1", 200),
        ("127.0.0.9", "::ffff:198.51.100.1", 200),
        ("127.0.0.9", "2001:db8::5", 200),
        ("127.0.0.9", "192.0.2.1, 198.51.100.1", 200),
        ("127.0.0.9", "198.51.100.1, 192.0.2.1", 403),  # written by 192.0.2.1 itself
        ("127.0.0.9", "198.51.100.1, 127.0.0.99", 200),
        ("127.0.0.9", "198.51.100.1, unknown", 403),
        ("127.0.0.9", "", 403),
    ):
        given = status(stack, source, x_forwarded_for=forwarded)
        assert given == wanted, (source, forwarded)
    assert status(stack, "127.0.0.9") == 403


def test_removed_ssps_are_unknown(stack: Stack) -> None:
    narrow(stack, "--allow", "127.0.0.2")
    everywhere(stack, "127.0.0.2", 200)
    for variant in ("acme-eu", "acme-video", "acme"):
        succeed(stack.environ, "ssp", "remove", variant)
    everywhere(stack, "127.0.0.1", 404)
    assert status(stack, "127.0.0.2") == 404
    assert status(stack, "127.0.0.1", OTHER) in (200, 204)


def test_a_limit_holds_in_every_second_over_all_workers(stack: Stack) -> None:
    narrow(stack, "--qps", str(LIMIT))

    def is_limited() -> bool:
        with connected(stack.port, source="127.0.0.1") as client:
            return [bid(client).status for _ in range(3 * LIMIT)].count(204) > 0

    eventually(lambda: all(is_limited() for _ in range(8)), "the limit at every worker")
    let_through: list[tuple[float, float]] = []
    until = time.monotonic() + 4

    def flood() -> None:
        with connected(stack.port, source="127.0.0.1") as client:
            while time.monotonic() < until:
                began = time.monotonic()
                given = bid(client).status
                assert given in (200, 204)
                if given == 200:
                    let_through.append((began, time.monotonic()))

    floods = [threading.Thread(target=flood) for _ in range(6)]
    for each in floods:
        each.start()
    for each in floods:
        each.join()
    assert len(let_through) >= LIMIT, "what was agreed is let through"
    # Requests that were both sent and answered within a second were admitted within it.
    for began, _ in let_through:
        inside = [each for each in let_through if began <= each[0] and each[1] < began + 1]
        assert len(inside) <= LIMIT
    eventually(lambda: outcome(stack, "rate") > LIMIT, "what was refused is counted")
    assert status(stack, "127.0.0.1", OTHER) in (200, 204)
    narrow(stack, "--qps", "any")
    everywhere(stack, "127.0.0.1", 200)
