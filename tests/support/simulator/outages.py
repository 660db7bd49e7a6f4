"""The steps that break a cluster, or change it."""

from typing import Final

from support.simulator.stage import Stage
from support.simulator.topology import Cluster, Group, Node

LOOK_S: Final = 1.0  # between notes that what is broken still is
MOVE_STEPS: Final = 4  # in which the keys of a slot arrive


class ClusterStage(Stage):
    """Of a world with a cluster; else these steps do nothing."""

    def _group(self, number: int) -> tuple[Cluster, Group] | None:
        cluster = self.world.cluster
        return None if cluster is None else (cluster, cluster.groups[number % len(cluster.groups)])

    def _do_replica(self, group: int, seconds: float) -> None:
        """A replica is cut off."""
        found = self._group(group)
        if found is not None and found[0].cut_off(found[1]):
            self._doubt_until(self.world.loop.time() + seconds)
            self._later(seconds, found[0].rejoin, found[1])

    def _do_primary(self, group: int, down: float, back: float, full: int) -> None:
        """A primary is killed; its replica takes over, and it comes back as a replica.

        `full`: meanwhile all nodes refuse to serve what they have, since not all slots are served.
        """
        found = self._group(group)
        if found is None or found[0].move is not None or not found[1].primary.is_up:
            return
        cluster, own = found
        cluster.is_down = bool(full)
        self._end(own.primary)
        self._doubt_until(self.world.loop.time() + down + back)
        self._later(down, cluster.fill_in, own)
        self._later(down + back, self._start, own.primary)

    def _do_swap(self, group: int) -> None:
        """A replica takes over from a primary that is there."""
        found = self._group(group)
        if found is not None:
            found[0].swap(found[1])
            self._doubt_until(self.world.loop.time())

    def _do_move(self, shard: int, to: int, seconds: float) -> None:
        """The slot of a shard moves to another primary, one key after the other."""
        found = self._group(to)
        if found is None or not found[0].begin_move(shard % self.world.shards, found[1]):
            return
        self._doubt_until(self.world.loop.time() + seconds)
        for number in range(MOVE_STEPS if seconds > 0 else 0):
            self._later(seconds * number / MOVE_STEPS, found[0].move_some)
        self._later(seconds, found[0].end_move)

    def _end(self, node: Node) -> None:
        assert self.world.cluster is not None
        self.world.cluster.end(node)
        for wire in self.world.network.wires("redis"):
            self.world.network.cut(wire, self.world.nodes[node])

    def _start(self, node: Node) -> None:
        """It comes back; it has all data where nobody has taken over."""
        assert self.world.cluster is not None
        self.world.cluster.start(node)
        self.world.cluster.is_down = False

    def _doubt_until(self, end: float) -> None:
        """What machines had under way may be in doubt, and others may serve."""
        self.books.began(self.world.loop.time())
        for wire in self.world.network.wires("redis"):
            self.world.network.trouble(wire)
        if self.world.loop.time() < end:
            self._later(min(LOOK_S, end - self.world.loop.time()), self._doubt_until, end)

    def _up(self, store: str) -> None:
        if store == "redis" and store in self._busy and self.world.cluster is not None:
            self.world.cluster.restarted()
        super()._up(store)

    def _heal_cluster(self) -> None:
        if self.world.cluster is not None:
            self.world.cluster.heal()
            self.books.wrong += self.world.cluster.wrong
            self._doubt_until(self.world.loop.time())
