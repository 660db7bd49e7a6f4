"""Connections to a single Redis, a primary behind sentinels, or the nodes of a cluster."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
    parse_url,
)
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError
from redis.maint_notifications import MaintNotificationsConfig

from snapbid.base import addresses
from snapbid.base.addresses import Arrangement, Node, RedisAddress
from snapbid.base.redis_keys import ShardKeys
from snapbid.redisclient.cluster import PrimaryRedis, RoutedRedis
from snapbid.redisclient.nodes import (
    ClusterNodes,
    SentinelNodes,
    SlotNodes,
    is_elsewhere,
    slot_of,
)
from snapbid.redisclient.replicas import (
    GRACE_S,
    ReplicaDemand,
    Replication,
    TooFewReplicasError,
)

CONNECT_TIMEOUT_S = 1.0
ANSWER_TIMEOUT_S = 1.0
_TIMEOUTS: Final[dict[str, Any]] = {
    "socket_connect_timeout": CONNECT_TIMEOUT_S,
    "socket_timeout": ANSWER_TIMEOUT_S,
}


def connect(url: str) -> Redis:
    """Return a pooled client for use off the bid path; it connects on first use."""
    return Connections(url).client()


async def scan(redis: Redis, prefix: str, size: int) -> AsyncIterator[list[bytes]]:
    """Yield the keys with a prefix in batches of `size`; a scan may repeat keys."""
    batch: list[bytes] = []
    async for key in redis.scan_iter(match=f"{prefix}*", count=size):
        batch.append(key)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


class Connector:
    """Factory for connections to one Redis, which are not yet open and have no read timeout."""

    def __init__(self, connections: "Connections", redis: Redis) -> None:
        self._connections = connections
        self._pool = redis.connection_pool

    def __call__(self) -> AbstractConnection:
        return self._pool.connection_class(**self._pool.connection_kwargs)

    @property
    def url(self) -> str:
        return self._connections.url

    @property
    def demand(self) -> ReplicaDemand:
        """How many replicas must confirm a write; reliable only after the first connection."""
        return self._connections.demand

    def doubt(self, error: Exception) -> None:
        """Correct the slot map after a failed connection; do nothing for a single Redis."""


class SlotConnector(Connector):
    """Factory for connections to the node that serves a slot at the time they open."""

    def __init__(
        self, connections: "Connections", address: RedisAddress, nodes: SlotNodes, slot: int
    ) -> None:
        options = _options(address, address.nodes[0])
        secure = issubclass(options.pop("connection_class", Connection), SSLConnection)
        self._options = options | {"nodes": nodes, "slot": slot, **_once()}
        self._class = _SecureSlotConnection if secure else _SlotConnection
        self._connections = connections
        self._nodes = nodes

    def __call__(self) -> AbstractConnection:
        return self._class(**self._options)

    def doubt(self, error: Exception) -> None:
        self._nodes.doubt(error)


class Connections:
    """Factory for the clients and connections of a URL, which share one slot map.

    `replicas`: how many replicas must confirm a write before it counts. If None, a cluster with
    replicas, or a primary behind sentinels that has any, requires one, except for a shard that has
    had no replica for some time (replicas.py).
    """

    def __init__(self, url: str, replicas: int | None = None) -> None:
        self.url = url
        self._address = address = addresses.parse(url)
        self._replicas = replicas
        self._nodes = _nodes(address)
        self._replications: dict[int, Replication] = {}

    @property
    def demand(self) -> ReplicaDemand:
        """How many replicas must confirm a write; reliable only once the nodes are known."""
        if self._replicas is not None:
            return ReplicaDemand(self._replicas)
        return ReplicaDemand(int(self._nodes is not None and self._nodes.has_replicas), GRACE_S)

    def connector(self, key: str) -> Connector:
        """Return a factory for connections to the node that serves a key."""
        if self._nodes is not None:
            return SlotConnector(self, self._address, self._nodes, slot_of(key))
        url = self._address.url
        return Connector(self, Redis.from_url(url, socket_connect_timeout=CONNECT_TIMEOUT_S))

    def client(self) -> Redis:
        """Return a pooled client for use off the bid path."""
        if self._nodes is not None:
            is_cluster = self._address.arrangement is Arrangement.CLUSTER
            made = RoutedRedis if is_cluster else PrimaryRedis
            return made(self._nodes, partial(client_of, self._address))
        return _pooled(self._address.url)

    async def count_primaries(self) -> int:
        """Count the primaries among which keys are divided. Raises RedisError or OSError."""
        return 1 if self._nodes is None else len(await self._nodes.primaries())

    async def replicate(self, redis: Redis, keys: ShardKeys) -> None:
        """Wait until replicas have all earlier writes to a shard. Raises RedisError.

        Does not wait while the shard continues without a replica, but checks for one from time to
        time.
        """
        now = asyncio.get_running_loop().time
        replication = self._replications.setdefault(keys.number, Replication())
        if replication.is_unreplicated and not replication.is_due(now()):
            return
        if commands := replication.first(keys, self.demand, now()):
            async with redis.pipeline(transaction=False) as pipe:
                for command in commands:
                    pipe.execute_command(*command)
                replies = await pipe.execute()
            try:
                replication.decide(replies, now())
            except TooFewReplicasError as error:
                if self._nodes is not None:
                    self._nodes.doubt(error)
                raise


def connector(url: str) -> Connector:
    """Return a factory for connections to a single Redis."""
    return Connections(url).connector("")


class _SlotConnection(Connection):
    def __init__(self, nodes: SlotNodes, slot: int, **options: Any) -> None:
        super().__init__(**options)
        self._nodes = nodes
        self._slot = slot

    async def _connect(self) -> None:
        self.host, self.port = await self._nodes.primary_of(self._slot)
        await super()._connect()  # type: ignore[no-untyped-call]


class _SecureSlotConnection(_SlotConnection, SSLConnection):
    pass


def _options(address: RedisAddress, node: Node) -> dict[str, Any]:
    """Return the arguments for a connection to a node."""
    return {**parse_url(address.node_url(node)), "socket_connect_timeout": CONNECT_TIMEOUT_S}


def _once() -> dict[str, Any]:
    """Return the options that keep redis-py from sending anything twice."""
    return {"retry": Retry(NoBackoff(), 0)}


def client_of(address: RedisAddress, node: Node) -> Redis:
    """Return a client for a cluster node, or for a primary known to sentinels."""
    return _pooled(address.node_url(node), **_once())


class _PooledConnection(AbstractConnection):
    """A connection that its pool replaces once the server serves its keys no longer.

    A demoted primary keeps its connections open, also those that came by a name, or through a
    proxy, that now leads to its successor.
    """

    async def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().read_response(*args, **options)
        except ResponseError as error:
            if is_elsewhere(error):
                self.mark_for_reconnect()  # type: ignore[no-untyped-call]
            raise


class _PooledTcp(_PooledConnection, Connection):
    pass


class _PooledTls(_PooledConnection, SSLConnection):
    pass


class _PooledUnix(_PooledConnection, UnixDomainSocketConnection):
    pass


_POOLED: Final[dict[type[AbstractConnection], type[AbstractConnection]]] = {
    Connection: _PooledTcp,
    SSLConnection: _PooledTls,
    UnixDomainSocketConnection: _PooledUnix,
}


def _pooled(url: str, **more: Any) -> Redis:
    """Return a pooled client for one server."""
    options = {**_TIMEOUTS, **more, **parse_url(url)}
    options["connection_class"] = _POOLED[options.get("connection_class", Connection)]
    # With these notifications, redis-py takes closed connections from its pool without a look.
    options["maint_notifications_config"] = MaintNotificationsConfig(enabled=False)
    return Redis.from_pool(ConnectionPool(**options))


def _nodes(address: RedisAddress) -> SlotNodes | None:
    """Return a new slot map; None for a single Redis."""
    if address.arrangement is Arrangement.ONE:
        return None
    if address.arrangement is Arrangement.SENTINEL:
        return SentinelNodes(address.nodes, address.service, partial(connection_to, address))
    return ClusterNodes(address.nodes, partial(connection_to, address))


def connection_to(address: RedisAddress, node: Node) -> AbstractConnection:
    """Return a connection to a sentinel or cluster node, not yet open."""
    options = _options(address, node)
    if address.arrangement is Arrangement.SENTINEL:
        for name in ("username", "password", "db"):
            options.pop(name, None)
        own = {name.removeprefix("sentinel_"): value for name, value in address.sentinel_options}
        options |= own
    made = options.pop("connection_class", Connection)
    connection: AbstractConnection = made(**options, **_once())
    return connection
