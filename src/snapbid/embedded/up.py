"""`snapbid up`: everything on one machine, from an empty directory to a bid (contract 1).

Start: lock the home, Redis, PostgreSQL, schema, demo data, then the programs that serve. Each is a
session of its own, so that Ctrl-C in a terminal reaches this process alone, and stops in reverse
order. Whatever ends unexpectedly is started again, with growing pauses.
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
from pathlib import Path

import asyncpg
import msgspec

from snapbid.embedded import EmbeddedError, Home, Postgres, Redis, demo, examples
from snapbid.embedded.supervise import Keeper, Member, Program, Signals, ended, say
from snapbid.report import tokens
from snapbid.settings import ServingSettings, Settings, load, require_serving, to_environ
from snapbid.warehouse import registry
from snapbid.warehouse.migrate import MigrationError, migrate

PROGRAMS = ("drain", "serve")  # `snapbid` commands, in the order of their start
STILL_WAITING_S = 15.0
ORPHANS_S = 30.0  # for what a killed instance has left behind to finish what is in flight, and end


class UpError(RuntimeError):
    """What keeps `up` from starting, and what to do about it."""


def run(settings: Settings) -> int:
    """Run until a signal comes: exit status 0; 1 with a message where it cannot start."""
    with Signals() as signals:
        try:
            with Home(settings.home) as home:
                _await_ports(settings, ORPHANS_S if home.left_behind else 0.0, signals)
                _run_all(settings, home, signals)
        except (EmbeddedError, UpError) as error:
            print(f"snapbid up: {error}", file=sys.stderr, flush=True)
            return 1
    return 0


def _run_all(settings: Settings, home: Home, signals: Signals) -> None:
    redis, postgres = Redis(home, say), Postgres(home)
    if settings.redis_url or settings.database_url:
        say("SNAPBID_REDIS_URL and SNAPBID_DATABASE_URL are not used: `up` has its own stores")
    serving = require_serving(
        msgspec.structs.replace(
            settings,
            redis_url=redis.url,
            database_url=postgres.dsn,
            jwt_secret=settings.jwt_secret or home.secret(),
        )
    )
    environ = _child_environ(serving)
    programs = [Program(command, environ) for command in PROGRAMS]
    stores: list[Member] = [redis, postgres]
    members = [*stores, *programs]
    started: list[Member] = []
    try:
        for member in members:
            if signals.stopping:
                return
            say(f"starting {member.name}")
            started.append(member)
            member.start()
            if member is postgres:
                _prepare(postgres.dsn)
                home.announce(to_environ(serving))
                ssp = asyncio.run(_some_ssp(postgres.dsn))
        keepers = [Keeper(store) for store in stores]
        if _await_ready(settings, programs, keepers, signals):
            say(_greeting(serving, ssp))
            _supervise([*keepers, *map(Keeper, programs)], signals)
    finally:
        say("stopping")
        for member in reversed(started):
            member.stop()
    say("stopped")


def _prepare(dsn: str) -> None:
    """Schema, and the demo data where there is none."""
    try:
        for name in asyncio.run(migrate(dsn)):
            say(f"schema: applied {name}")
        if asyncio.run(demo.seed(dsn)):
            say("demo SSPs and campaigns are in the warehouse")
    except (MigrationError, asyncpg.PostgresError, OSError) as error:
        raise UpError(f"the warehouse cannot be prepared: {error}") from error


async def _some_ssp(dsn: str) -> str:
    """An SSP for the example: the demo's where it is there."""
    connection = await asyncpg.connect(dsn)
    try:
        known = await registry.fetch_all(connection)
    finally:
        await connection.close()
    return "acme" if "acme" in known else next(iter(known), "YOUR-SSP")


def _await_ready(
    settings: Settings, programs: list[Program], stores: list[Keeper], signals: Signals
) -> bool:
    """Wait until /readyz is 200, keeping the stores: True; False when a signal came first.

    Raises UpError when a program ends before; it has told why itself.
    """
    tell = time.monotonic() + STILL_WAITING_S
    while not signals.stopping:
        status, body = _readyz(settings)
        if status == 200:
            return True
        for program in programs:
            end = program.poll()
            if end is not None:
                raise UpError(f"{program.name} ended ({ended(end)}) before it was ready")
        for store in stores:
            store.tend(time.monotonic())
        if time.monotonic() > tell:
            tell = time.monotonic() + STILL_WAITING_S
            say(f"not ready yet: {body.decode(errors='replace').strip() or 'no answer'}")
        signals.wait(0.05)
    return False


def _readyz(settings: Settings) -> tuple[int, bytes]:
    client = http.client.HTTPConnection(_reachable(settings.host), settings.port, timeout=5)
    try:
        client.request("GET", "/readyz")
        answer = client.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        client.close()


def _supervise(keepers: list[Keeper], signals: Signals) -> None:
    while not signals.stopping:
        signals.wait(min(keeper.tend(time.monotonic()) for keeper in keepers))


def _await_ports(settings: Settings, patience_s: float, signals: Signals) -> None:
    """Raise UpError where a port cannot be had within `patience_s`."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            check_port("SNAPBID_PORT", settings.host, settings.port)
            check_port("SNAPBID_OPS_PORT", settings.ops_host, settings.ops_port)
            return
        except UpError:
            if signals.stopping or time.monotonic() >= deadline:
                raise
        signals.wait(0.1)


def check_port(variable: str, host: str, port: int) -> None:
    """Raise UpError, naming the variable to change, where `host:port` cannot be listened on."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind) as probe:
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


def _child_environ(settings: ServingSettings) -> dict[str, str]:
    """Our environment with the checked settings in the place of the raw ones."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SNAPBID_") or name == "SNAPBID_DEBUG"
    }
    return kept | to_environ(settings)


def _greeting(settings: ServingSettings, ssp: str) -> str:
    host = _reachable(settings.host)
    address = f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"
    token = tokens.issue(ssp, settings.jwt_secret.key(), settings.jwt_issuer)
    command = _command(settings)
    return f"""ready at {address} (private port: {settings.ops_host}:{settings.ops_port})

{examples.text(address, ssp, token, command)}
The settings of this instance, for other commands in another terminal:

  export $({command} env)

Ctrl-C stops everything.
"""


def _command(settings: Settings) -> str:
    """How to call this program on this instance from the same directory."""
    installed = Path(sys.executable).with_name("snapbid")
    program = os.path.relpath(installed)
    if program.startswith(".."):
        program = "snapbid" if shutil.which("snapbid") else str(installed)
    default = settings.home == load({}).home
    return program if default else f"SNAPBID_HOME={shlex.quote(str(settings.home))} {program}"


def _reachable(host: str) -> str:
    """Where a client on this machine finds what listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
