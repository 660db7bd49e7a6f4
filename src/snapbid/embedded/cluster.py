"""A private Redis Cluster on loopback ports: three primaries with a replica each.

Its nodes are what the one private Redis is, with a port and a password besides, since nodes meet
over TCP. Ports and password are made once and kept in the home: nodes remember each other by them.
"""

import contextlib
import random
import socket
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, Protocol

import redis
from redis.exceptions import RedisError

from snapbid.embedded.home import Home
from snapbid.embedded.process import EmbeddedError
from snapbid.embedded.redis import Redis

HOST: Final = "127.0.0.1"
PRIMARIES: Final = 3
NODE_TIMEOUT_MS: Final = 2000  # until a node is held to be away
BUS: Final = 10_000  # from a node's port to that of the cluster's bus
SLOTS: Final = 16_384
PATIENCE_S: Final = 90.0
OPTIONS: Final = {
    "cluster-enabled": "yes",
    "cluster-replica-validity-factor": "0",
    "cluster-require-full-coverage": "no",
    "repl-diskless-sync": "yes",
    "repl-diskless-sync-delay": "0",
    "repl-ping-replica-period": "1",
}


class Node(Protocol):
    """A node that runs."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    def call(self, *command: Any) -> Any:
        """The reply to a command. Raises RedisError."""
        ...


class ClusterNode(Redis):
    """One node; its replies need the password, on its socket too."""

    def __init__(
        self, home: Home, number: int, port: int, password: str, tell: Callable[[str], None]
    ) -> None:
        super().__init__(home, tell, f"node-{number}", siblings=2 * PRIMARIES)
        self.name = f"Redis node {number}"
        self.host, self.port = HOST, port
        self._password = password

    def call(self, *command: Any) -> Any:
        with contextlib.closing(self._client()) as client:
            return client.execute_command(*command)  # type: ignore[no-untyped-call]

    def _client(self) -> redis.Redis:
        options: dict[str, Any] = {"socket_timeout": 5.0, "decode_responses": True}
        return redis.Redis(host=HOST, port=self.port, password=self._password, **options)

    def _options(self) -> dict[str, str]:
        return {
            **super()._options(),
            **OPTIONS,
            "port": str(self.port),
            "bind": HOST,
            "cluster-node-timeout": str(NODE_TIMEOUT_MS),
        }

    def _secrets(self) -> dict[str, str]:
        return {"requirepass": self._password, "masterauth": self._password}

    def _answers(self, command: bytes = b"PING", answer: bytes = b"+PONG") -> bool:
        return super()._answers(
            b"AUTH %b\r\n%b" % (self._password.encode(), command), b"+OK\r\n%b" % answer
        )


class Cluster:
    """The nodes, primaries first as long as none has failed. `form` them once they run."""

    def __init__(self, home: Home, tell: Callable[[str], None] = lambda _: None) -> None:
        self._password = home.kept("redis-password")
        ports = home.kept("redis-ports", lambda: " ".join(map(str, free_ports(2 * PRIMARIES))))
        self.nodes = [
            ClusterNode(home, number, int(port), self._password, tell)
            for number, port in enumerate(ports.split(), 1)
        ]
        self._formed = home.path / "redis-formed"
        if not self._formed.exists():  # nothing is in them yet
            for node in self.nodes:
                node.remove_data()

    @property
    def url(self) -> str:
        nodes = ",".join(f"{HOST}:{node.port}" for node in self.nodes)
        return f"redis+cluster://:{self._password}@{nodes}"

    def form(self) -> None:
        """Make a cluster of the nodes, if they are none yet, and wait until all slots are served.

        Raises EmbeddedError.
        """
        try:
            if not self._formed.exists():
                form(self.nodes, PRIMARIES)
            _await(lambda: all(map(is_in_step, self.nodes)))
        except (RedisError, OSError) as error:
            raise EmbeddedError(f"the Redis Cluster cannot be formed: {error}") from error
        self._formed.touch()


def form(nodes: Sequence[Node], primaries: int) -> None:
    """Give the first nodes all slots, and each of them its share of the others as replicas.

    Raises RedisError, and EmbeddedError where they do not meet.
    """
    leading, following = nodes[:primaries], nodes[primaries:]
    bounds = [SLOTS * number // primaries for number in range(primaries + 1)]
    for node, (first, end) in zip(leading, pairwise(bounds), strict=True):
        node.call("CLUSTER", "ADDSLOTS", *range(first, end))
    for number, node in enumerate(nodes, 1):
        node.call("CLUSTER", "SET-CONFIG-EPOCH", number)
        node.call("CLUSTER", "MEET", nodes[0].host, nodes[0].port)
    ids = [str(node.call("CLUSTER", "MYID")) for node in nodes]
    _await(lambda: all(all(id in _known(node) for id in ids) for node in nodes))
    for number, node in enumerate(following):
        node.call("CLUSTER", "REPLICATE", ids[number % primaries])


def is_in_step(node: Node) -> bool:
    """Whether a node serves its part of a whole cluster, and has a replica, or is one in step."""
    state, role = str(node.call("CLUSTER", "INFO")), node.call("ROLE")
    is_replicated = role[3] == "connected" if role[0] == "slave" else bool(role[2])
    return "cluster_state:ok" in state.replace("'", "").replace(": ", ":") and is_replicated


def free_ports(count: int) -> list[int]:
    """Ports below those given to clients, free together with those of the bus."""
    ports: set[int] = set()
    while len(ports) < count:
        port = random.randrange(12_000, 22_000)
        with (
            contextlib.suppress(OSError),
            socket.create_server((HOST, port)),
            socket.create_server((HOST, port + BUS)),
        ):
            ports.add(port)
    return sorted(ports)


def _known(node: Node) -> str:
    return str(node.call("CLUSTER", "NODES"))


def _await(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; while nodes do not answer it does not."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(RedisError, OSError):
            if condition():
                return
        if time.monotonic() > deadline:
            raise EmbeddedError("the Redis Cluster does not become whole: see log/node-*.log")
        time.sleep(0.05)
