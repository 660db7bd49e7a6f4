"""Risks of losing the ledger through the configuration of a Redis server.

Most risks are read from `INFO`. If a provider disables `CONFIG`, the risk `appendfsync` is not
detected.
"""

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from snapbid.base.addresses import redis_cli
from snapbid.base.risks import Risk, Severity

OLDEST: Final = (6, 2)
SYNCED_BY_UP: Final = "snapbid-up"
"""The `syslog-ident` of a Redis whose append-only file `snapbid up` syncs every second itself."""
_CONFIG: Final = ("appendfsync", "syslog-ident", "save", "stop-writes-on-bgsave-error")
DISK_IS_FULL: Final = 1
"""The `maxmemory` that `snapbid up` sets, in bytes, while the disk of its Redis is full."""
NEARLY: Final = 0.9  # of maxmemory
FULL: Final = 0.95  # of maxmemory; heartbeat.lua has it, too
MIB: Final = 2**20


async def fetch_risks(redis: Redis, server: str, url: str) -> list[Risk]:
    """Fetch the risks of the server at `url`, called `server` in messages. Raises RedisError."""
    info = await redis.info()
    config: dict[Any, Any] = {}
    with contextlib.suppress(ResponseError):
        for option in _CONFIG:  # one by one, since Redis 6.2 accepts only one
            config |= await redis.config_get(option)
    return judge(info, config, server, redis_cli(url))


def judge(
    info: Mapping[str, Any], config: Mapping[Any, Any], server: str, command: str
) -> list[Risk]:
    """Derive risks from the replies to `INFO` and `CONFIG GET`.

    `command`: how the remedies call redis-cli.
    """
    risks: list[Risk] = []

    def set_to(option: str, value: str) -> str:
        return f"run `{command} config set {option} {value}`, and write it into redis.conf"

    def add(name: str, severity: Severity, text: str, remedy: str) -> None:
        risks.append(Risk("redis", name, severity, f"{server} {text}", remedy))

    version = str(info.get("redis_version", ""))
    if _release(version) < OLDEST:
        add("version", "unsupported", f"is {version}", "upgrade to 6.2 or newer")
    if not info.get("aof_enabled"):
        add(
            "appendonly",
            "volatile",
            "runs with appendonly no: a restart loses open bids, counts, budgets and events",
            set_to("appendonly", "yes"),
        )
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        add(
            "eviction",
            "volatile",
            f"runs with maxmemory-policy {policy}: short of memory, it deletes bids and counts",
            set_to("maxmemory-policy", "noeviction"),
        )
    if info.get("role") == "slave":
        writable = not info.get("slave_read_only", 1)
        add(
            "replica",
            "volatile" if writable else "readonly",
            "is a replica: " + ("its primary overwrites what is written to it" if writable
                                else "it refuses writes, so no bids are made"),
            "name the primary in SNAPBID_REDIS_URL",
        )  # fmt: skip
    if config.get("appendfsync") == "no" and config.get("syslog-ident") != SYNCED_BY_UP:
        add(
            "appendfsync",
            "weak",
            "runs with appendfsync no: if its machine crashes, the last half minute is lost",
            set_to("appendfsync", "everysec"),
        )
    if info.get("aof_enabled") and info.get("aof_last_write_status", "ok") != "ok":
        add(
            "aof_write",
            "readonly",
            "cannot write its append-only file and refuses writes: no bids are made",
            "free space on its disk (df -h), and check its log",
        )
    stops = config.get("save") != "" and config.get("stop-writes-on-bgsave-error") != "no"
    if info.get("rdb_last_bgsave_status", "ok") != "ok" and stops:
        add(
            "rdb_write",
            "readonly",
            "could not write its last snapshot and refuses writes: no bids are made",
            f"free space on its disk (df -h), check its log, and run `{command} bgsave`",
        )
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    is_ups = config.get("syslog-ident") == SYNCED_BY_UP
    if most == DISK_IS_FULL and is_ups:
        add(
            "memory",
            "readonly",
            "refuses writes because its disk is full: no bids are made",
            "free space on the disk of SNAPBID_HOME (df -h)",
        )
    elif most and used >= most * NEARLY:
        share = FULL if used >= most * FULL else NEARLY
        text = f"uses {share:.0%} of its maxmemory, {most / MIB:,.0f} MiB"
        severity: Severity = "weak"
        if share == FULL:
            severity = "readonly"
            text += ": no bids are made, so that notices still count"
        remedy = "see what has grown (server events wait there for the warehouse), and "
        more = "add memory to the machine, half of which it may use"
        add("memory", severity, text, remedy + (more if is_ups else set_to("maxmemory", "SIZE")))
    return risks


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
