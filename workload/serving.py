"""What a server needs before it can serve: a free port, and budgets that may be spent."""

import contextlib
import random
import socket
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import redis

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.scripts import script

LOOPBACK: Final = "127.0.0.1"
CHANCE: Final = random.SystemRandom()  # which Hypothesis does not seed


def free_ports(count: int, bus: int = 0) -> list[int]:
    """Distinct loopback ports that are free, as are those `bus` above.

    They are below the range of ephemeral ports, which clients use up by the thousand meanwhile.
    """
    below = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports: set[int] = set()
    while len(ports) < count:
        port = CHANCE.randrange(below // 2, below - bus)
        with contextlib.suppress(OSError):
            for each in {port, port + bus}:
                with socket.socket() as probe:
                    probe.bind((LOOPBACK, each))
            ports.add(port)
    return list(ports)


def confirm_budgets(redis_url: str, shards: int = 1) -> None:
    """Let budgeted campaigns bid on a ledger without a drain.

    A drain does so once it knows that nothing was lost.
    """
    with closing(redis.Redis.from_url(redis_url)) as client:
        for number in range(shards):
            keys = ShardKeys(number)
            reply: Any = client.eval(script("begin"), 1, keys.epoch)
            client.hset(keys.state, mapping={"confirmed": reply[1], "carried": 1})
