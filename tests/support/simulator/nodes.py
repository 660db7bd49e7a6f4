"""What a node of a simulated cluster answers by itself; the real Redis executes the rest.

It serves the slots of its group alone (MOVED), and of one that is moving the keys that are still
there (ASK, TRYAGAIN). It says how many replicas have what was written, knows the scripts that it
was given, and tells scripts which run of Redis it is.
"""

from hashlib import sha1
from typing import Any, Final

import hiredis
from redis.crc import key_slot

from support.simulator.servers import RedisSession
from support.simulator.topology import PORT, Cluster, Node

_RUN: Final = b"redis.call('INFO', 'server'):match('run_id:(%x+)')"
_KEYLESS: Final = frozenset((
    b"AUTH", b"CLIENT", b"CLUSTER", b"DISCARD", b"EXEC", b"HELLO", b"INFO", b"MULTI", b"PING",
    b"ROLE", b"SCAN", b"SCRIPT", b"SELECT", b"TIME", b"UNWATCH", b"WAIT",
))  # fmt: skip
_MANY: Final = frozenset((b"DEL", b"EXISTS", b"UNLINK", b"WATCH"))
_TWO: Final = frozenset((b"RENAME", b"RENAMENX"))


class NodeStore:
    """A node, as the network knows it."""

    name = "redis"

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self._cluster = cluster
        self.node = node

    def open(self) -> "NodeSession":
        if not (self.node.is_up and self._cluster.redis.is_up):
            raise ConnectionRefusedError(f"{self.node.path} is down")
        return NodeSession(self._cluster, self.node)


class NodeSession:
    """One connection to a node; `delay_s`: how long its last answer took."""

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self._cluster = cluster
        self._node = node
        self._below = RedisSession(cluster.redis)
        self._requests = hiredis.Reader()
        self._is_queueing = self._is_refused = False  # of a transaction
        self.delay_s = 0.0

    def execute(self, data: bytes) -> bytes:
        self._requests.feed(data)
        self.delay_s = 0.0
        replies, passed = b"", b""
        while (command := self._requests.gets()) is not False:
            own = self._answer(command)
            if own is None:
                passed += _packed(command)
                continue
            if passed:
                replies, passed = replies + self._below.execute(passed), b""
            replies += own
        return replies + (self._below.execute(passed) if passed else b"")

    def close(self) -> None:
        self._below.close()

    def _answer(self, command: list[bytes]) -> bytes | None:
        """The node's own; None where Redis has to execute the command, which is made its own."""
        name = command[0].upper()
        own = {
            b"WAIT": self._wait,
            b"ROLE": self._role,
            b"CLUSTER": self._describe,
            b"SCRIPT": self._script,
        }.get(name)
        if own is not None:
            return own(command)
        if name == b"EXEC" and self._is_refused:
            self._below.execute(_packed([b"DISCARD"]))
            self._is_queueing = self._is_refused = False
            return b"-EXECABORT Transaction discarded because of previous errors.\r\n"
        if name in (b"MULTI", b"EXEC", b"DISCARD"):
            self._is_queueing, self._is_refused = name == b"MULTI", False
            return None
        refusal = None if name in _KEYLESS else self._refusal(_keys(name, command))
        if refusal is None and name == b"EVALSHA":
            known = self._node.scripts.get(command[1])
            if known is None:
                refusal = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"
            else:
                command[1] = known
                self._check_place(command[3])
        elif name == b"EVAL":
            command[1] = self._own_text(command[1])
        self._is_refused |= self._is_queueing and refusal is not None
        return refusal

    def _refusal(self, keys: list[bytes]) -> bytes | None:
        cluster, slot = self._cluster, key_slot(keys[0])
        if cluster.is_down:
            return b"-CLUSTERDOWN The cluster is down\r\n"
        owner = cluster.owner(slot)
        if owner.primary is not self._node:
            return _elsewhere("MOVED", slot, owner.primary)
        move = cluster.move
        if move is None or move.slot != slot:
            return None
        here = [self._is_here(key) for key in keys]
        if all(here):
            return None
        if any(here):
            return b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n"
        return _elsewhere("ASK", slot, move.to.primary)

    def _is_here(self, key: bytes) -> bool:
        move, client = self._cluster.move, self._cluster.redis.client
        return move is not None and key not in move.moved and bool(client.exists(key))

    def _check_place(self, key: bytes) -> None:
        """A script finds the keys that it does not name where all of its slot's are."""
        move = self._cluster.move
        if move is not None and move.moved and move.slot == key_slot(key) and _stands_for_all(key):
            self._cluster.wrong.append("a script finds half of its keys: the others have moved")

    def _wait(self, command: list[bytes]) -> bytes:
        group = self._cluster.group_of(self._node)
        if group.primary is not self._node:
            return b"-ERR WAIT cannot be used with replica instances.\r\n"
        if group.replicas < int(command[1]):
            self.delay_s += int(command[2]) / 1000
        return b":%d\r\n" % group.replicas

    def _role(self, _command: list[bytes]) -> bytes:
        """A replica that is not cut off has all of what its primary has."""
        group = self._cluster.group_of(self._node)
        replicas = [[group.replica.host.encode(), b"%d" % PORT, b"1"]] * group.replicas
        return _resp([b"master", 1, replicas])

    def _script(self, command: list[bytes]) -> bytes:
        scripts = self._node.scripts
        if command[1].upper() == b"EXISTS":
            return b"*%d\r\n" % len(command[2:]) + b"".join(
                b":%d\r\n" % (known in scripts) for known in command[2:]
            )
        text = command[2]
        name = sha1(text).hexdigest().encode()
        loaded = self._below.execute(_packed([b"SCRIPT", b"LOAD", self._own_text(text)]))
        scripts[name] = loaded.split(b"\r\n")[1]
        return b"$40\r\n%s\r\n" % name

    def _own_text(self, text: bytes) -> bytes:
        """A script to which Redis is this run of this node."""
        return text.replace(_RUN, b"'%s'" % self._node.run.encode())

    def _describe(self, command: list[bytes]) -> bytes:
        cluster = self._cluster
        if command[1].upper() == b"SLOTS":
            return _resp([
                [first, last, *(_fields(node) for node in (group.primary, group.replica)
                                if node.is_up or node is group.primary)]
                for first, last, group in cluster.ranges
            ])  # fmt: skip
        return _resp("\n".join(self._member(node) for node in cluster.nodes).encode())

    def _member(self, node: Node) -> str:
        group = self._cluster.group_of(node)
        is_primary = node is group.primary
        flags = ["master" if is_primary else "slave", *(() if node.is_up else ("fail",))]
        if node is self._node:
            flags.insert(0, "myself")
        own = [
            f"{first}-{last}"
            for first, last, owner in self._cluster.ranges
            if is_primary and owner is group
        ]
        primary = "-" if is_primary else group.primary.id
        return " ".join(
            [node.id, f"{node.path}@1{PORT}", ",".join(flags), primary, "0 0 1 connected", *own]
        )


def _keys(name: bytes, command: list[bytes]) -> list[bytes]:
    """Those of a command that has some."""
    if name in (b"EVAL", b"EVALSHA"):
        return command[3 : 3 + int(command[2])]
    if name == b"MEMORY":
        return command[2:3]
    if name in _MANY:
        return command[1:]
    return command[1:3] if name in _TWO else command[1:2]


def _stands_for_all(key: bytes) -> bool:
    """Whether it is named for all keys of its shard."""
    return key.endswith(b":epoch")


def _elsewhere(how: str, slot: int, node: Node) -> bytes:
    return f"-{how} {slot} {node.path}\r\n".encode()


def _fields(node: Node) -> list[Any]:
    return [node.host.encode(), PORT, node.id.encode()]


def _resp(value: Any) -> bytes:
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, bytes):
        return b"$%d\r\n%s\r\n" % (len(value), value)
    return b"*%d\r\n" % len(value) + b"".join(map(_resp, value))


def _packed(command: list[bytes]) -> bytes:
    return _resp(command)
