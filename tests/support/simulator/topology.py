"""A Redis Cluster whose data is that of the one real Redis: nodes, slots, and what breaks them.

Each primary has a replica, which has every write in the moment in which it is made. A replica that
is cut off has what was written until then: a copy, which becomes the data of the primary's slots
where it takes over, unless it was cut off for too long. What a node answers by itself is in
nodes.py.
"""

import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from redis.crc import key_slot

from snapbid.base.redis_keys import ShardKeys
from support.simulator.servers import RedisServer

SLOTS: Final = 16_384
FIRST_COPY: Final = 2  # the number of that of the first group; an older Redis is number 1
PORT: Final = 7000
PROMOTED_S: Final = 13.0  # for which a replica may be cut off and take over; below GRACE_S


class Node:
    """A process of Redis; `scripts`: those that it knows, by their hashes, as Redis has them."""

    def __init__(self, host: str, run: str) -> None:
        self.host = host
        self.run = run
        self.is_up = True
        self.scripts: dict[bytes, bytes] = {}

    @property
    def path(self) -> str:
        return f"{self.host}:{PORT}"

    @property
    def id(self) -> str:
        return self.host.replace(".", "").rjust(40, "0")


class Group:
    """A primary with its replica. `is_cut`: the replica has no more than its copy, of `cut_at`."""

    def __init__(self, number: int, primary: Node, replica: Node) -> None:
        self.number = number
        self.primary = primary
        self.replica = replica
        self.is_cut = False
        self.cut_at = 0.0

    @property
    def is_whole(self) -> bool:
        return self.primary.is_up and self.replicas == 1

    @property
    def replicas(self) -> int:
        """How many have what the primary has."""
        return int(self.replica.is_up and not self.is_cut)


class Move(NamedTuple):
    """Of a slot; `moved` are the keys that have arrived."""

    slot: int
    to: Group
    moved: set[bytes]


class Cluster:
    """`primaries`: how many, which share the slots. `rng` draws the ids of runs of Redis."""

    def __init__(
        self, redis: RedisServer, primaries: int, rng: random.Random, clock: Callable[[], float]
    ) -> None:
        self.redis = redis
        self._clock = clock
        self._rng = rng
        self.groups = [
            Group(number, *(Node(f"10.0.{role}.{number + 1}", self._run()) for role in (0, 1)))
            for number in range(primaries)
        ]
        self._owners = [self.groups[slot * primaries // SLOTS] for slot in range(SLOTS)]
        self.ranges = _ranges(self._owners)
        self.move: Move | None = None
        self.wrong: list[str] = []  # what no node should have been asked
        self.is_down = False  # as all nodes say, because a primary is

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(node.path for node in self.nodes)}"

    @property
    def nodes(self) -> list[Node]:
        return [node for group in self.groups for node in (group.primary, group.replica)]

    def group_of(self, node: Node) -> Group:
        return next(group for group in self.groups if node in (group.primary, group.replica))

    def owner(self, slot: int) -> Group:
        return self._owners[slot]

    # -- what breaks it ------------------------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        return self.move is None and all(group.is_whole for group in self.groups)

    def cut_off(self, group: Group) -> bool:
        """Its replica gets nothing any more."""
        if not group.is_whole or self.move is not None:
            return False
        self.redis.save(FIRST_COPY + group.number)
        group.is_cut, group.cut_at = True, self._clock()
        return True

    def rejoin(self, group: Group) -> None:
        """The replica has all again, if its primary is there to give it."""
        if group.primary.is_up:
            group.is_cut = False

    def end(self, node: Node) -> None:
        """Its process ends."""
        node.is_up = False

    def fill_in(self, group: Group) -> None:
        """Have the replica become the primary of its group, with what it has, if that is down."""
        self.is_down = False
        if group.primary.is_up or not group.replica.is_up:
            return
        if group.is_cut and self._clock() - group.cut_at > PROMOTED_S:
            return
        if group.is_cut:
            self.redis.put_back(FIRST_COPY + group.number, self._has(group))
            group.is_cut = False
        group.primary, group.replica = group.replica, group.primary

    def start(self, node: Node) -> None:
        """Its process is there again; as a replica, where another one is the primary now."""
        if not node.is_up:
            node.is_up, node.run, node.scripts = True, self._run(), {}

    def swap(self, group: Group) -> None:
        """The replica takes over while the primary is there, which becomes a replica."""
        if self.is_whole:
            group.primary, group.replica = group.replica, group.primary

    def begin_move(self, shard: int, to: Group) -> bool:
        """The slot of a shard; keys go one by one."""
        slot = key_slot(ShardKeys(shard).epoch.encode())
        if not self.is_whole or self.owner(slot) is to:
            return False
        self.move = Move(slot, to, set())
        return True

    def move_some(self) -> None:
        """Some of what has not arrived yet does."""
        if self.move is not None:
            keys: Any = self.redis.client.keys()
            left = sorted(key for key in keys if key_slot(key) == self.move.slot)
            self.move.moved.update(key for key in left if self._rng.random() < 0.5)

    def end_move(self) -> None:
        if self.move is not None:
            self._owners[self.move.slot] = self.move.to
            self.ranges = _ranges(self._owners)
            self.move = None

    def restarted(self) -> None:
        """All processes are others, and replicas have what there is."""
        for group in self.groups:
            group.is_cut = False
        for node in self.nodes:
            node.is_up = False
            self.start(node)
        self.is_down = False

    def heal(self) -> None:
        for group in self.groups:
            self.fill_in(group)
        for node in self.nodes:
            self.start(node)
        for group in self.groups:
            self.rejoin(group)
        self.end_move()

    def _has(self, group: Group) -> Callable[[bytes], bool]:
        return lambda key: self.owner(key_slot(key)) is group

    def _run(self) -> str:
        return self._rng.randbytes(20).hex()


def _ranges(owners: list[Group]) -> list[tuple[int, int, Group]]:
    """First slot, last slot, and whose they are."""
    ranges: list[tuple[int, int, Group]] = []
    for slot, group in enumerate(owners):
        if ranges and ranges[-1][2] is group:
            ranges[-1] = (ranges[-1][0], slot, group)
        else:
            ranges.append((slot, slot, group))
    return ranges
