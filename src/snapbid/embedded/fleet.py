"""What `snapbid up` runs: stores, and the programs of one machine or of several.

One machine has a private Redis. Several share a Redis Cluster and two drains; each has a home and
ports of its own, as if it stood elsewhere. An own home of the ledger is of one kind or the other.
"""

import os
from collections.abc import Callable, Container
from typing import Final, NamedTuple

import msgspec

from snapbid.drain.run import SETTINGS as DRAIN_SETTINGS
from snapbid.embedded import EmbeddedError, Home, Postgres, Redis
from snapbid.embedded.cluster import PRIMARIES, Cluster
from snapbid.embedded.supervise import Program, Service, say
from snapbid.ops.server import is_loopback
from snapbid.setting_values import Secret
from snapbid.settings import (
    ServingSettings,
    Settings,
    require_serving,
    to_environ,
    url_of,
    without_settings,
)

PORT_STEP: Final = 10  # between the ports of machines
DRAINS: Final = 2  # one works, the other is there when it cannot
NEEDED: Final[dict[str, Container[str] | None]] = {"drain": DRAIN_SETTINGS, "serve": None}
"""The settings that a command needs; None: all."""


class Fleet(NamedTuple):
    """`stores` in the order of their start; once they run, `prepare` makes them fit for use."""

    stores: list[Service]
    prepare: Callable[[], None]
    machines: list[ServingSettings]
    programs: list[Program]


def machines_of(settings: Settings, count: int) -> list[Settings]:
    """The settings of each machine, without its stores. Raises EmbeddedError."""
    if count == 1:
        return [settings]
    machines = []
    has_own_urls = settings.base_url == url_of(settings.host, settings.port)
    for number in range(1, count + 1):
        port = settings.port + PORT_STEP * (number - 1)
        machines.append(
            msgspec.structs.replace(
                settings,
                home=settings.home / f"machine-{number}",
                port=port,
                ops_port=settings.ops_port + PORT_STEP * (number - 1),
                base_url=url_of(settings.host, port) if has_own_urls else settings.base_url,
                ledger_shards=max(settings.ledger_shards, PRIMARIES),
            )
        )
    ports = [port for machine in machines for port in (machine.port, machine.ops_port)]
    if len(set(ports)) < len(ports) or max(ports) > 65_535:
        raise EmbeddedError(
            f"the ports of {count} machines, SNAPBID_PORT and SNAPBID_OPS_PORT and every "
            f"{PORT_STEP}th above, must differ and be at most 65535 "
            f"(found {settings.port} and {settings.ops_port})"
        )
    return machines


def muster(machines: list[Settings], home: Home) -> Fleet:
    """What runs in a home. Raises EmbeddedError where its ledger is of the other kind."""
    postgres = Postgres(home)
    if len(machines) == 1:
        _refuse(home, "redis-formed", "a cluster", "start it with --machines")
        redis = Redis(home, say)
        return _fleet([redis, postgres], lambda: None, redis.url, postgres.dsn, machines, home)
    _refuse(home, "redis", "one Redis", "start it without --machines")
    cluster = Cluster(home, say)
    stores: list[Service] = [*cluster.nodes, postgres]
    return _fleet(stores, cluster.form, cluster.url, postgres.dsn, machines, home)


def _refuse(home: Home, name: str, what: str, remedy: str) -> None:
    if (home.path / name).exists():
        raise EmbeddedError(
            f"SNAPBID_HOME {home.path} has the ledger of {what}: {remedy}, or choose another "
            "directory"
        )


def _fleet(
    stores: list[Service],
    prepare: Callable[[], None],
    redis_url: str,
    database_url: str,
    machines: list[Settings],
    home: Home,
) -> Fleet:
    serving = [
        require_serving(
            msgspec.structs.replace(
                machine,
                redis_url=redis_url,
                database_url=database_url,
                jwt_secret=machine.jwt_secret or home.secret(),
                ops_token=machine.ops_token or _ops_token(machine, home),
            )
        )
        for machine in machines
    ]
    of_drains = serving[:DRAINS]
    programs = [
        *(_program("drain", number, of_drains) for number in range(len(of_drains))),
        *(_program("serve", number, serving) for number in range(len(serving))),
    ]
    return Fleet(stores, prepare, serving, programs)


def _program(command: str, number: int, machines: list[ServingSettings]) -> Program:
    environ = without_settings(os.environ) | to_environ(machines[number], NEEDED[command])
    name = f"snapbid {command}" + (f" {number + 1}" if len(machines) > 1 else "")
    return Program(command, environ, name)


def _ops_token(settings: Settings, home: Home) -> Secret | None:
    """The token of a private port that more than this machine can reach."""
    return None if is_loopback(settings.ops_host, settings.ops_port) else home.ops_token()
