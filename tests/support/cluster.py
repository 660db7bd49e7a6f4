"""A real Redis Cluster, and a primary found by sentinels, of the embedded redis-server."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self

import redis
from redis.crc import key_slot
from redis.exceptions import RedisError

from snapbid.embedded.process import spawn, stop
from snapbid.embedded.redis_server import installed

HOST: Final = "127.0.0.1"
SLOTS: Final = 16_384
BUS: Final = 10_000  # from a node's port to that of the cluster's bus
NODE_TIMEOUT_MS: Final = 1000  # until a node counts as unavailable; a busy machine needs some time
PATIENCE_S: Final = 90.0
SERVICE: Final = "ledger"


def until(condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until a condition holds; errors of Redis mean that it does not yet."""
    deadline = time.monotonic() + patience_s
    while True:
        with contextlib.suppress(RedisError, OSError):
            if condition():
                return
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.02)


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


class Tls:
    """An authority, and a certificate of it for HOST."""

    def __init__(self, folder: Path) -> None:
        self.authority, self.certificate, self.key = (
            folder / name for name in ("ca.pem", "cert.pem", "key.pem")
        )
        made = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout")
        authority_key, options = folder / "ca.key", folder / "options"
        options.write_text(f"subjectAltName=IP:{HOST}\n")
        for command in (
            ("req", "-x509", *made, authority_key, "-out", self.authority, "-subj", "/CN=tests"),
            ("req", *made, self.key, "-out", folder / "request", "-subj", f"/CN={HOST}"),
            ("x509", "-req", "-in", folder / "request", "-CA", self.authority, "-CAkey",
             authority_key, "-CAcreateserial", "-extfile", options, "-out", self.certificate),
        ):  # fmt: skip
            subprocess.run(["openssl", *command], check=True, capture_output=True)

    def is_known(self) -> bool:
        """Whether the redis-server was built with TLS."""
        command = [installed()[0].path, "--port", "0", "--tls-port", "-1"]
        return b"Bad directive" not in subprocess.run(command, capture_output=True).stderr

    def options(self, port: int) -> dict[str, str]:
        return {
            "port": "0",
            "tls-port": str(port),
            "tls-cluster": "yes",
            "tls-replication": "yes",
            "tls-auth-clients": "no",
            "tls-ca-cert-file": str(self.authority),
            "tls-cert-file": str(self.certificate),
            "tls-key-file": str(self.key),
        }


class Server:
    """One redis-server on a port of its own."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        tls: Tls | None = None,
        host: str = HOST,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._tls = tls
        self._environ = environ
        self.host = host
        (self.port,) = free_ports(1)
        self.folder = folder / str(self.port)
        self.folder.mkdir()
        self._options = options
        self.process: subprocess.Popen[bytes] | None = None
        self.is_paused = False
        self.start()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def client(self) -> redis.Redis:
        """A new client, which ends with its process."""
        return self.client_of(decode_responses=True)

    def client_of(self, **options: Any) -> redis.Redis:
        if self._tls is not None:
            options |= {"ssl": True, "ssl_ca_certs": str(self._tls.authority)}
        return redis.Redis(host=self.host, port=self.port, socket_timeout=5.0, **options)

    def start(self) -> None:
        own = {
            "port": str(self.port),
            "bind": self.host,
            "protected-mode": "no",  # Redis 7 would admit nobody but 127.0.0.1
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes",  # one that comes back has its data
            "repl-diskless-sync": "yes",
            "repl-diskless-sync-delay": "0",
            "repl-ping-replica-period": "1",
        }
        server = installed()[0]
        if server.release >= (7, 0):  # before, a node connected from the address in "bind" anyway
            own["bind-source-addr"] = self.host
        if self._tls is not None:
            own |= self._tls.options(self.port)
        named = [part for name, value in own.items() for part in (f"--{name}", value)]
        self.process = spawn(
            [server.path, *self._options, *named],
            death_signal=signal.SIGKILL,
            log=self.folder / "log",
            env=None if self._environ is None else {**os.environ, **self._environ},
        )
        self.is_paused = False
        until(self.ask_ping, f"{self.address} answers")

    def ask_ping(self) -> bool:
        with contextlib.closing(self.client) as client:
            return bool(client.ping())

    def call(self, *command: Any) -> Any:
        with contextlib.closing(self.client) as client:
            return client.execute_command(*command)  # type: ignore[no-untyped-call]

    def kill(self) -> None:
        assert self.process
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        assert self.process
        self.process.send_signal(signal.SIGSTOP)
        self.is_paused = True

    def go_on(self) -> None:
        assert self.process
        self.process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def close(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            stop(self.process, signal.SIGKILL)


class Cluster:
    """Primaries with as many replicas each; replicas come last in `nodes`.

    `hosts`: the address of each, and what its environment has besides.
    """

    def __init__(
        self,
        folder: Path,
        primaries: int = 3,
        replicas: int = 1,
        tls: Tls | None = None,
        hosts: Sequence[tuple[str, Mapping[str, str] | None]] = (),
    ) -> None:
        options = (
            "--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT_MS),
            "--cluster-replica-validity-factor", "7", "--repl-timeout", "4",
            "--cluster-require-full-coverage", "no",
        )  # fmt: skip
        hosts = hosts or [(HOST, None)] * (primaries * (1 + replicas))
        self.nodes = [
            Server(folder, *options, tls=tls, host=host, environ=environ) for host, environ in hosts
        ]
        self._form(primaries)
        self.await_health()

    def _form(self, primaries: int) -> None:
        """Give the first nodes all slots, and each of them its share of the others as replicas."""
        leading, following = self.nodes[:primaries], self.nodes[primaries:]
        bounds = [SLOTS * number // primaries for number in range(primaries + 1)]
        for node, (first, end) in zip(leading, pairwise(bounds), strict=True):
            node.call("CLUSTER", "ADDSLOTS", *range(first, end))
        for number, node in enumerate(self.nodes, 1):
            node.call("CLUSTER", "SET-CONFIG-EPOCH", number)
            node.call("CLUSTER", "MEET", self.nodes[0].host, self.nodes[0].port)
        ids = {self.id_of(node) for node in self.nodes}
        until(
            lambda: all({line[0] for line in self.lines(node)} == ids for node in self.nodes),
            "nodes that have met",
        )
        for number, node in enumerate(following):
            node.call("CLUSTER", "REPLICATE", self.id_of(leading[number % primaries]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for node in self.nodes:
            node.close()

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(node.address for node in self.nodes[:2])}"

    def lines(self, node: Server) -> list[list[str]]:
        """CLUSTER NODES as a node sees it: a list of words for each."""
        with contextlib.closing(node.client_of()) as client:
            client.set_response_callback("CLUSTER NODES", lambda reply, **_: reply)
            text: Any = client.execute_command("CLUSTER NODES")  # type: ignore[no-untyped-call]
        return [line.split() for line in text.decode().splitlines()]

    def id_of(self, node: Server) -> str:
        return str(node.call("CLUSTER", "MYID"))

    def named(self, address: str) -> Server:
        port = int(address.partition("@")[0].rpartition(":")[2])
        return next(node for node in self.nodes if node.port == port)

    def running(self) -> list[Server]:
        return [node for node in self.nodes if node.process and node.process.poll() is None]

    def primary_of(self, key: str) -> Server:
        """The node that says that it serves the key itself."""
        return self.owner(key_slot(key.encode()))

    def owner(self, slot: int) -> Server:
        """The node that says that it serves a slot; of one that is stopped, the others say so."""
        seen = None
        for node in self.running():
            for line in [] if node.is_paused else self.lines(node):
                if "master" in line[2] and any(_has(part, slot) for part in line[8:]):
                    if "myself" in line[2]:
                        return node
                    seen = line[1]
        if seen is None:
            raise RedisError(f"nobody serves slot {slot}")
        return self.named(seen)

    def seen_owner(self, slot: int, by: Server) -> Server | None:
        """Whose a slot is as another node sees it."""
        for line in self.lines(by):
            if "fail" not in line[2] and any(_has(part, slot) for part in line[8:]):
                return self.named(line[1])
        return None

    def replica_of(self, primary: Server) -> Server:
        """A replica of a primary, as that one sees it."""
        own = self.id_of(primary)
        return next(self.named(line[1]) for line in self.lines(primary) if line[3] == own)

    def revive(self) -> None:
        """Start what has ended, continue what was stopped."""
        for node in self.nodes:
            if node in self.running():
                node.go_on()
            else:
                node.start()

    def heal(self) -> None:
        """As `revive`, and wait for health."""
        self.revive()
        self.await_health()

    def await_health(self) -> None:
        """Wait until all nodes agree that every slot is served, and every primary has a replica.

        And until all can tell that one is unavailable: after their clock is set back, some do not
        before it shows again what it had shown.
        """

        def is_healthy() -> bool:
            if len(self.running()) < len(self.nodes):
                self.revive()  # a node that a thread had started ended with it, a moment ago
                return False
            views = {
                tuple(
                    sorted(
                        (line[0], line[2].replace("myself,", ""), line[3], *line[8:])
                        for line in self.lines(node)
                    )
                )
                for node in self.nodes
            }
            if len(views) != 1 or any("fail" in line[1] for line in next(iter(views))):
                return False
            return all(_is_in_step(node) and not self._hears_ahead(node) for node in self.nodes)

        try:
            until(is_healthy, "a healthy cluster")
        except AssertionError as error:
            for node in self.nodes:
                error.add_note(f"{node.port} sees " + " | ".join(map(" ".join, self.lines(node))))
            raise

    def _hears_ahead(self, node: Server) -> bool:
        """Whether its record of another node is later than now, by its clock."""
        heard_ms = max(int(line[5]) for line in self.lines(node))
        seconds, micros = map(int, node.call("TIME"))  # asked last: it hears of others all the time
        return heard_ms > seconds * 1000 + micros // 1000

    def flush(self) -> None:
        for node in self.nodes:
            if node.call("ROLE")[0] == "master":
                node.call("FLUSHALL")

    # -- slots ------------------------------------------------------------------------------------

    def begin_to_move(self, slot: int, to: Server) -> Server:
        """Open a slot on both sides; give the node that has it."""
        source = self.owner(slot)
        to.call("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(to))
        return source

    def move_keys(self, slot: int, source: Server, to: Server, but: tuple[str, ...] = ()) -> int:
        """Move the keys of an open slot, but for those with these first parts; give how many."""
        left = {name.encode() for name in but}
        with contextlib.closing(source.client_of()) as client:  # names of keys are bytes
            found: Any = client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, SLOTS)  # type: ignore[no-untyped-call]
            keys = [key for key in found if key.split(b":")[1] not in left]
            if keys:
                client.execute_command("MIGRATE", to.host, to.port, "", 0, 5000, "KEYS", *keys)  # type: ignore[no-untyped-call]
        return len(keys)

    def end_move(self, slot: int, source: Server, to: Server) -> None:
        """Have every primary know whose the slot is now."""
        id = self.id_of(to)
        others = [node for node in self.nodes if node not in (source, to)]
        for node in (to, source, *others):
            if node.call("ROLE")[0] == "master":
                node.call("CLUSTER", "SETSLOT", slot, "NODE", id)

    def move(self, slot: int, to: Server) -> None:
        source = self.begin_to_move(slot, to)
        while self.move_keys(slot, source, to):
            pass
        self.end_move(slot, source, to)


class Sentinels:
    """A primary with a replica, and three sentinels that watch them."""

    def __init__(self, folder: Path) -> None:
        self.primary = Server(folder)
        self.replica = Server(folder, "--replicaof", HOST, str(self.primary.port))
        self.watchers: list[Server] = []
        for _ in range(3):
            self.watchers.append(Sentinel.watching(folder, self.primary))
        until(self._is_complete, "sentinels that know each other")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for server in (*self.watchers, self.primary, self.replica):
            server.close()

    @property
    def url(self) -> str:
        watchers = ",".join(server.address for server in self.watchers)
        return f"redis+sentinel://{watchers}/{SERVICE}"

    def current(self) -> Server:
        """The primary, as the first sentinel knows it."""
        _, port = self.watchers[0].call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return next(server for server in (self.primary, self.replica) if server.port == int(port))

    def _is_complete(self) -> bool:
        return all(
            len(watcher.call("SENTINEL", "SENTINELS", SERVICE)) == 2
            and len(watcher.call("SENTINEL", "REPLICAS", SERVICE)) == 1
            for watcher in self.watchers
        )


class Sentinel(Server):
    """A sentinel, which takes none of a store's options."""

    @classmethod
    def watching(cls, folder: Path, primary: Server) -> Self:
        config = Path(tempfile.mkstemp(".conf", "sentinel-", folder)[1])
        config.write_text(
            f"sentinel monitor {SERVICE} {HOST} {primary.port} 2\n"
            f"sentinel down-after-milliseconds {SERVICE} {NODE_TIMEOUT_MS}\n"
            f"sentinel failover-timeout {SERVICE} 6000\n"
        )
        return cls(folder, str(config), "--sentinel")

    def start(self) -> None:
        config, flag = self._options
        text = Path(config).read_text()
        Path(config).write_text(f"port {self.port}\nbind {HOST}\ndir {self.folder}\n{text}")
        self.process = spawn(
            [installed()[0].path, config, flag],
            death_signal=signal.SIGKILL,
            log=self.folder / "log",
        )
        until(self.ask_ping, f"the sentinel {self.address} answers")


def _is_in_step(node: Server) -> bool:
    """Whether a node serves its part of a whole cluster, and has a replica, or is one in step."""
    state, role = str(node.call("CLUSTER", "INFO")), node.call("ROLE")
    is_replicated = role[3] == "connected" if role[0] == "slave" else bool(role[2])
    return "cluster_state:ok" in state.replace("'", "").replace(": ", ":") and is_replicated


def _has(part: str, slot: int) -> bool:
    if part.startswith("["):
        return False
    first, _, last = part.partition("-")
    return int(first) <= slot <= int(last or first)


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A directory with a short name."""
    with tempfile.TemporaryDirectory(prefix="snapbid-nodes-") as path:
        yield Path(path)
