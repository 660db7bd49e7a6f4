"""`snapbid up`: everything on one machine, from an empty directory to a bid (contract 1).

It locks the home, starts Redis and PostgreSQL, prepares the warehouse, and starts the programs.
Each runs in its own session, so that Ctrl-C in a terminal reaches this process alone, which stops
them in reverse order. What ends unexpectedly is restarted, with growing pauses.
"""

import asyncio
import errno
import http.client
import os
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import asyncpg

from snapbid.embedded import EmbeddedError, Home, demo, examples
from snapbid.embedded.cluster import HOST, ClusterNode
from snapbid.embedded.fleet import Fleet, machines_of, muster
from snapbid.embedded.supervise import Program, Restarter, Service, Signals, describe_status, say
from snapbid.report import tokens
from snapbid.settings import Settings, bound, load, reachable, to_environ, url_of
from snapbid.warehouse import registry
from snapbid.warehouse.away import AWAY
from snapbid.warehouse.migrate import MigrationError, migrate

STILL_WAITING_S = 15.0
ORPHANS_S = 30.0  # for orphans of a killed instance to finish what is in flight, and end


class UpError(RuntimeError):
    """The reason why `up` cannot start, with a remedy."""


def run(settings: Settings, machines: int = 1) -> int:
    """Run until a signal arrives. Return 0, or 1 with a message where it cannot start."""
    with Signals() as signals:
        try:
            each = machines_of(settings, machines)
            with Home(settings.home) as home:
                _await_ports(each, ORPHANS_S if home.left_behind else 0.0, signals)
                if settings.redis_url or settings.database_url:
                    say("SNAPBID_REDIS_URL and SNAPBID_DATABASE_URL are not used: "
                        "`up` has its own stores")  # fmt: skip
                _run_all(muster(each, home), home, signals)
        except (EmbeddedError, UpError) as error:
            print(f"snapbid up: {error}", file=sys.stderr, flush=True)
            return 1
    return 0


def _run_all(fleet: Fleet, home: Home, signals: Signals) -> None:
    first = fleet.machines[0]
    started: list[Service] = []
    try:
        if not _start(fleet.stores, started, signals):
            return
        fleet.prepare()
        _prepare(first.database_url)
        home.announce(to_environ(first) | {"SNAPBID_HOME": str(home.path)})
        ssp = asyncio.run(_example_ssp(first.database_url))
        if not _start(fleet.programs, started, signals):
            return
        stores = [*map(Restarter, fleet.stores)]
        if all(_await_ready(each, fleet.programs, stores, signals) for each in fleet.machines):
            say(_greeting(fleet, home, ssp))
            _supervise([*stores, *map(Restarter, fleet.programs)], signals)
    finally:
        say("stopping")
        for service in reversed(started):
            service.stop()
    say("stopped")


def _start(services: Sequence[Service], started: list[Service], signals: Signals) -> bool:
    """Start services, noting each; whether no signal came before."""
    for service in services:
        if signals.stopping:
            return False
        say(f"starting {service.name}")
        started.append(service)
        service.start()
    return not signals.stopping


def _prepare(dsn: str) -> None:
    """Bring the schema up to date, and add the demo data to an empty warehouse."""
    try:
        for name in asyncio.run(migrate(dsn)):
            say(f"schema: applied {name}")
        if asyncio.run(demo.seed(dsn)):
            say("demo SSPs and campaigns are in the warehouse")
    except (MigrationError, *AWAY) as error:
        raise UpError(f"the warehouse cannot be prepared: {error}") from error


async def _example_ssp(dsn: str) -> str:
    """Return an SSP for the examples: the demo's, if it is registered."""
    connection = await asyncpg.connect(dsn)
    try:
        known = await registry.fetch_all(connection)
    finally:
        await connection.close()
    return "acme" if "acme" in known else next(iter(known), "YOUR-SSP")


def _await_ready(
    settings: Settings, programs: list[Program], stores: list[Restarter], signals: Signals
) -> bool:
    """Wait until /readyz is 200, restarting stores meanwhile; False when a signal comes first.

    Raises UpError when a program ends before; it has logged the reason itself.
    """
    report_at = time.monotonic() + STILL_WAITING_S
    while not signals.stopping:
        status, body = _readyz(settings)
        if status == 200:
            return True
        for program in programs:
            exit_status = program.poll()
            if exit_status is not None:
                raise UpError(
                    f"{program.name} ended ({describe_status(exit_status)}) before it was ready"
                )
        for store in stores:
            store.tend(time.monotonic())
        if time.monotonic() > report_at:
            report_at = time.monotonic() + STILL_WAITING_S
            say(f"not ready yet: {body.decode(errors='replace').strip() or 'no answer'}")
        signals.wait(0.05)
    return False


def _readyz(settings: Settings) -> tuple[int, bytes]:
    client = http.client.HTTPConnection(reachable(settings.host), settings.port, timeout=5)
    try:
        client.request("GET", "/readyz")
        answer = client.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        client.close()


def _supervise(restarters: list[Restarter], signals: Signals) -> None:
    while not signals.stopping:
        signals.wait(min(restarter.tend(time.monotonic()) for restarter in restarters))


def _await_ports(machines: list[Settings], timeout_s: float, signals: Signals) -> None:
    """Wait until all ports are free; raise UpError where they are not within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            for machine in machines:
                check_port("SNAPBID_PORT", machine.host, machine.port)
                check_port("SNAPBID_OPS_PORT", machine.ops_host, machine.ops_port)
            return
        except UpError:
            if signals.stopping or time.monotonic() >= deadline:
                raise
        signals.wait(0.1)


def check_port(variable: str, host: str, port: int) -> None:
    """Raise UpError, naming the variable to change, where `host:port` cannot be listened on."""
    try:
        family, address = bound(host, port)
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        host_variable = variable.replace("PORT", "HOST")
        if error.errno == errno.EADDRINUSE:
            raise UpError(
                f"port {port} on {host} is taken: stop what listens there, or set {variable} to "
                "a free port"
            ) from error
        if error.errno == errno.EACCES:
            raise UpError(
                f"port {port} on {host} needs privileges: set {variable} to 1024 or above"
            ) from error
        raise UpError(
            f"{host} is no address of this machine ({error.strerror}): set {host_variable}"
        ) from error


def _greeting(fleet: Fleet, home: Home, ssp: str) -> str:
    first = fleet.machines[0]
    token = tokens.issue(ssp, first.jwt_secret.key(), first.jwt_issuer)
    command = _own_command(home)
    ready = "; ".join(map(_ready, fleet.machines))
    nodes = "".join(
        f"\n{store.name} at {HOST}:{store.port}"
        for store in fleet.stores
        if isinstance(store, ClusterNode)
    )
    return f"""ready at {ready}{nodes}

{examples.text(_address(first), ssp, token, command)}
The settings of this instance, for other commands in another terminal:

  export $({command} env)

Ctrl-C stops everything.
"""


def _address(machine: Settings) -> str:
    return url_of(reachable(machine.host), machine.port)


def _ready(machine: Settings) -> str:
    asks = ", which asks for SNAPBID_OPS_TOKEN" if machine.ops_token is not None else ""
    private = url_of(machine.ops_host, machine.ops_port).removeprefix("http://")
    return f"{_address(machine)} (private port: {private}{asks})"


def _own_command(home: Home) -> str:
    """Return how to call this program on this instance from the current directory."""
    installed = Path(sys.executable).with_name("snapbid")
    program = os.path.relpath(installed)
    if program.startswith(".."):
        program = "snapbid" if shutil.which("snapbid") else str(installed)
    default = home.path == load({}).home
    return program if default else f"SNAPBID_HOME={shlex.quote(str(home.path))} {program}"
