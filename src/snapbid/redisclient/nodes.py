"""Find the node that serves a key, through the slot map of a cluster, or through sentinels.

The map comes from whichever node answers first. It is used until a node does not answer, or
contradicts it with CLUSTERDOWN, READONLY, or MOVED (which names the node that now serves the slot).
The next lookup then queries the last known nodes and the nodes of the URL again. If the first
answer is outdated, the nodes it names contradict it, and it is replaced in the same way.

Redirections of single commands (ASK) are not followed. They concern slots that are moving: the keys
of a moving slot are split over two nodes, and no script could see all of them. So every script also
names a key that never exists (`ShardKeys.script_keys`). While a slot is moving, the cluster then
redirects or refuses every script on it, and the slot is unavailable until it has moved.
"""

import asyncio
import random
import re
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Final, NamedTuple, Protocol

from redis.asyncio.connection import AbstractConnection
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    ConnectionError,
    MovedError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from snapbid.base.addresses import Node
from snapbid.redisclient.replicas import TooFewReplicasError

SLOTS: Final = 16_384
ASKED_AT_ONCE: Final = 3
ANSWER_S: Final = 0.5  # timeout of a node's answer
ASK_AGAIN_S: Final = 5.0  # between questions to sentinels

_MOVED: Final = re.compile(r"(?:MOVED )?([0-9]{1,5}) (.*):([0-9]{1,5})")
_ELSEWHERE: Final = re.compile(
    "(?:(?:ERR )?Error running script .*: -)?"  # Redis 6.2
    "(?:MOVED |ASK |TRYAGAIN|CLUSTERDOWN|READONLY|MASTERDOWN|LOADING|UNBLOCKED|CROSSSLOT)"
)
_REDIRECTIONS: Final = (MovedError, AskError, TryAgainError, ClusterDownError, ReadOnlyError)


class SlotRange(NamedTuple):
    """Slots `first` to `last`, and the node that serves them."""

    first: int
    last: int
    primary: Node


class MemberNode(NamedTuple):
    """A node as listed by CLUSTER NODES; `primary`: the id of a replica's primary, else empty."""

    id: str
    address: str
    flags: frozenset[str]
    primary: str
    slots: int

    @property
    def is_failing(self) -> bool:
        """Whether the queried node, or the cluster, considers the node failed."""
        return bool(self.flags & {"fail", "fail?"})


class SlotNotServedError(ConnectionError):
    """No node serves the slot right now."""


def is_elsewhere(error: Exception) -> bool:
    """Whether an error means that the node does not currently serve the command's key."""
    if isinstance(error, ResponseError):
        return isinstance(error, _REDIRECTIONS) or _ELSEWHERE.match(str(error)) is not None
    return False


def is_moved(error: Exception) -> bool:
    """Whether an error says that another node serves the slot (MOVED)."""
    return isinstance(error, MovedError) or str(error).startswith("MOVED ")


def _is_doubtful(error: Exception) -> bool:
    """Whether an error suggests that a primary failed or was replaced."""
    failed = (ConnectionError, TimeoutError, OSError, TooFewReplicasError)
    return is_elsewhere(error) or isinstance(error, failed)


class SlotNodes(Protocol):
    """A map of hash slots to Redis nodes."""

    has_replicas: bool

    async def primary_of(self, slot: int) -> Node: ...

    async def primaries(self) -> list[Node]: ...

    def doubt(self, error: Exception) -> None: ...


class SentinelNodes:
    """The primary that sentinels report under a name; it serves all slots.

    They are asked again every `ASK_AGAIN_S`: a primary that has been replaced takes writes until it
    is demoted, which takes Sentinel ten seconds, or for ever if it cannot reach it.
    """

    def __init__(
        self,
        sentinels: Sequence[Node],
        service: str,
        connect: Callable[[Node], AbstractConnection],
    ) -> None:
        self._sentinels = sentinels
        self._service = service
        self._connect = connect
        self._primary: Node | None = None
        self._asked_at = -inf
        self.has_replicas = False  # stays true: replicas may just be unavailable

    async def primary_of(self, slot: int) -> Node:
        """Return the primary, which serves all slots.

        Raises ConnectionError if no sentinel knows the primary.
        """
        now = asyncio.get_running_loop().time()
        if self._primary is None or now - self._asked_at >= ASK_AGAIN_S:
            self._asked_at = now
            answers = await asyncio.gather(*map(self._ask, self._sentinels), return_exceptions=True)
            known = [each for each in answers if isinstance(each, WatchedPrimary)]
            if known:
                newest = max(known, key=lambda each: each.epoch)
                self._primary = newest.address
                self.has_replicas = self.has_replicas or newest.replicas > 0
            elif self._primary is None:
                raise ConnectionError(f"no sentinel knows the primary: {answers[-1]}")
        assert self._primary is not None
        return self._primary

    async def primaries(self) -> list[Node]:
        """Return a list that contains only the primary."""
        return [await self.primary_of(0)]

    def doubt(self, error: Exception) -> None:
        """Have the primary looked up again if an error suggests that it failed or was replaced."""
        if _is_doubtful(error):
            self._primary = None

    async def _ask(self, sentinel: Node) -> "WatchedPrimary":
        try:
            (reply,) = await ask(self._connect(sentinel), f"SENTINEL MASTER {self._service}")
        except ResponseError as error:
            host, port = sentinel
            raise ConnectionError(
                f"the sentinel {host}:{port} knows no primary named {self._service!r} ({error})"
            ) from error
        return WatchedPrimary.parse(reply)


class WatchedPrimary(NamedTuple):
    """A primary as a sentinel describes it; `epoch` grows with each failover."""

    name: str
    address: Node
    replicas: int
    epoch: int

    @classmethod
    def parse(cls, reply: Any) -> "WatchedPrimary":
        """Parse an entry of the reply to SENTINEL MASTERS, or the reply to SENTINEL MASTER."""
        fields = reply if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
        known = {name.decode(): value.decode() for name, value in dict(fields).items()}
        address = known["ip"], int(known["port"])
        return cls(known["name"], address, int(known["num-slaves"]), int(known["config-epoch"]))


class ClusterNodes:
    """The slot map of a cluster; `connect` creates a connection to a node without opening it."""

    def __init__(
        self, seeds: Sequence[Node], connect: Callable[[Node], AbstractConnection]
    ) -> None:
        self._seeds = seeds
        self._connect = connect
        self._slots: list[Node | None] = [None] * SLOTS
        self._known: list[Node] = []
        self._is_doubtful = True
        self._asking = asyncio.Lock()
        self.has_replicas = False  # stays true: replicas may just be unavailable

    async def primary_of(self, slot: int) -> Node:
        """Return the node that serves a slot. Raises ConnectionError if none does."""
        if self._is_doubtful:
            await self._ask()
        node = self._slots[slot]
        if node is None:
            self._is_doubtful = True
            raise SlotNotServedError(f"no node of the cluster serves slot {slot}")
        return node

    async def primaries(self) -> list[Node]:
        """Return all nodes that serve slots."""
        if self._is_doubtful:
            await self._ask()
        return sorted({node for node in self._slots if node is not None})

    def doubt(self, error: Exception) -> None:
        """Correct the map after MOVED; have it fetched again if an error suggests other changes."""
        if is_moved(error):
            moved = _MOVED.match(str(error))
            if moved is not None and moved[2]:
                self._slots[int(moved[1]) % SLOTS] = (moved[2].strip("[]"), int(moved[3]))
                return
        if _is_doubtful(error):
            self._is_doubtful = True

    async def _ask(self) -> None:
        async with self._asking:
            if not self._is_doubtful:
                return
            nodes = list(dict.fromkeys([*self._known, *self._seeds]))
            random.shuffle(nodes)
            errors: list[Exception] = []
            for start in range(0, len(nodes), ASKED_AT_ONCE):
                asked = nodes[start : start + ASKED_AT_ONCE]
                described = await _first(map(self._describe, asked), errors)
                if described is not None:
                    self._take(*described)
                    return
            reason = f": {errors[-1]}" if errors else ""
            raise ConnectionError(f"no node of the cluster answers{reason}") from None

    def _take(self, ranges: Iterable[SlotRange], members: Iterable[Node], replicas: bool) -> None:
        slots: list[Node | None] = [None] * SLOTS
        for first, last, primary in ranges:
            slots[first : last + 1] = [primary] * (last + 1 - first)
        self._slots, self._known = slots, list(members)
        self.has_replicas = self.has_replicas or replicas
        self._is_doubtful = False

    async def _describe(self, node: Node) -> tuple[list[SlotRange], list[Node], bool]:
        slots, nodes = await ask(self._connect(node), "CLUSTER SLOTS", "CLUSTER NODES")
        ranges, members = parse_slots(slots, node)
        return ranges, members, has_replicas(parse_members(nodes.decode()))


async def ask(connection: AbstractConnection, *commands: str) -> list[Any]:
    """Connect, send commands and return the replies. Raises RedisError or OSError."""
    replies = []
    try:
        async with asyncio.timeout(ANSWER_S):
            await connection.connect()  # type: ignore[no-untyped-call]
            for command in commands:
                await connection.send_command(*command.split())
                replies.append(await connection.read_response())
    finally:
        await connection.disconnect(nowait=True)
    return replies


async def _first(questions: Iterable[Any], errors: list[Exception]) -> Any:
    """Return the first answer to several queries, None if all fail; append errors to `errors`."""
    asked = [asyncio.ensure_future(question) for question in questions]
    try:
        for answered in asyncio.as_completed(asked):
            try:
                return await answered
            except (RedisError, OSError) as error:
                errors.append(error)
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    return None


def parse_slots(reply: Sequence[Any], asked: Node) -> tuple[list[SlotRange], list[Node]]:
    """Parse the reply of node `asked` to CLUSTER SLOTS; return the slot ranges and all nodes."""
    ranges, members = [], []
    for first, last, *nodes in reply:
        own = [_node(fields, asked) for fields in nodes]
        ranges.append(SlotRange(int(first), int(last), own[0]))
        members += own
    return ranges, list(dict.fromkeys(members))


def _node(fields: Sequence[Any], asked: Node) -> Node:
    host = (fields[0] or b"").decode()
    return host if host not in ("", "?") else asked[0], int(fields[1])


def parse_members(text: str) -> list[MemberNode]:
    """Parse the reply to CLUSTER NODES."""
    members = []
    for line in text.splitlines():
        id, address, flags, primary, _ping, _pong, _epoch, _link, *slots = line.split()
        count = sum(_count(part) for part in slots if not part.startswith("["))
        members.append(
            MemberNode(
                id,
                re.split("[@,]", address)[0],
                frozenset(flags.split(",")),
                "" if primary == "-" else primary,
                count,
            )
        )
    return members


def has_replicas(members: Iterable[MemberNode]) -> bool:
    """Whether there are replicas, or failed primaries without slots, which rejoin as replicas."""
    return any(node.primary or (node.is_failing and not node.slots) for node in members)


def slot_of(key: str | bytes) -> int:
    return key_slot(key if isinstance(key, bytes) else key.encode())


def _count(part: str) -> int:
    first, _, last = part.partition("-")
    return int(last or first) - int(first) + 1
