"""A client for a cluster, or for a primary behind sentinels, off the bid path.

Each command goes to the node that serves its key; the keys of a pipeline share a slot. Unlike
redis-py's cluster client, this client never repeats a command whose reply was lost (an increment
might count twice), and does not follow redirections into half-moved slots (see nodes.py).
"""

from collections.abc import Callable
from typing import Any, Final

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import ConnectionError, DataError, RedisError

from snapbid.base.addresses import Node
from snapbid.redisclient.nodes import SlotNodes, is_moved, slot_of

_MATCH: Final = ("MATCH", b"MATCH")
# Index of the key, where it is not the first argument.
_KEY_AT: Final = {"EVAL": 3, "EVALSHA": 3, "MEMORY USAGE": 1, "MEMORY": 2}


class RoutedRedis(Redis):
    """A client that sends each command to the primary that serves its key.

    `client_of` creates a client for one node.
    """

    def __init__(self, nodes: SlotNodes, client_of: Callable[[Node], Redis]) -> None:
        super().__init__(connection_pool=ConnectionPool())  # for its encoder
        self._nodes = nodes
        self._client_of = client_of
        self._clients: dict[Node, Redis] = {}

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        if args[0] == "SCRIPT LOAD":
            return await self._load(*args)
        slot = self.slot_of(args)
        for is_last in (False, True):
            client = await self.primary(slot)
            try:
                return await client.execute_command(*args, **options)  # type: ignore[no-untyped-call]
            except (RedisError, OSError) as error:
                self._nodes.doubt(error)
                if is_last or not is_moved(error):
                    raise
        raise AssertionError

    async def _load(self, *args: Any) -> Any:
        """Load a script into every primary that answers."""
        loaded: Any = None
        for node in await self._nodes.primaries():
            try:
                loaded = await self._client(node).execute_command(*args)  # type: ignore[no-untyped-call]
            except (RedisError, OSError) as error:
                self._nodes.doubt(error)
        if loaded is None:
            raise ConnectionError("no primary of the cluster answers")
        return loaded

    def slot_of(self, command: tuple[Any, ...]) -> int:
        """Return the slot of a command's key."""
        return slot_of(_key(command))

    async def primary(self, slot: int) -> Redis:
        """Return a client for the node that serves a slot."""
        return self._client(await self._nodes.primary_of(slot))

    def doubt(self, error: Exception) -> None:
        """Correct the slot map after a failed command, or have it fetched again."""
        self._nodes.doubt(error)

    def _client(self, node: Node) -> Redis:
        client = self._clients.get(node)
        if client is None:
            client = self._clients[node] = self._client_of(node)
        return client

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> "SlotPipeline":
        return SlotPipeline(self, transaction)

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        for client in self._clients.values():
            await client.aclose(close_connection_pool)


class PrimaryRedis(RoutedRedis):
    """A client that sends all commands to the current primary."""

    def slot_of(self, command: tuple[Any, ...]) -> int:
        return 0


class SlotPipeline(Pipeline):
    """A pipeline whose keys share a slot, sent to the node of the first key."""

    def __init__(self, cluster: RoutedRedis, transaction: bool) -> None:
        super().__init__(cluster.connection_pool, cluster.response_callbacks, transaction, None)
        self._cluster = cluster

    async def immediate_execute_command(self, *args: Any, **options: Any) -> Any:
        if self.connection is None:
            await self._go_to(args)
        try:
            return await super().immediate_execute_command(*args, **options)  # type: ignore[no-untyped-call]
        except (RedisError, OSError) as error:
            self._cluster.doubt(error)
            raise

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        if self.connection is None and self.command_stack:
            await self._go_to(self.command_stack[0][0])
        try:
            replies = await super().execute(raise_on_error)
        except (RedisError, OSError) as error:
            self._cluster.doubt(error)
            raise
        for reply in replies:
            if isinstance(reply, Exception):
                self._cluster.doubt(reply)
        return replies

    async def _go_to(self, command: tuple[Any, ...]) -> None:
        client = await self._cluster.primary(self._cluster.slot_of(command))
        self.connection_pool = client.connection_pool


def _key(command: tuple[Any, ...]) -> str | bytes:
    """Return the first key of a command; for SCAN its pattern, whose hash tag gives the slot."""
    name = str(command[0])
    if name == "SCAN":
        # redis-py passes it as str or bytes.
        index = next((n for n, word in enumerate(command, 1) if word in _MATCH), 0)
    else:
        index = _KEY_AT.get(name.upper(), 1)
    key = command[index] if 0 < index < len(command) else None
    if isinstance(key, bytes):
        return key
    if not isinstance(key, str):
        raise DataError(f"{name} names no key, so no node of a cluster can be chosen for it")
    return key
