"""`snapbid up`: everything on one machine, starting from an empty directory (contract 1).

It locks the home, starts Redis and PostgreSQL, prepares the warehouse, and starts the programs.
Each child process has its own session, so Ctrl-C in a terminal reaches only this process, which
stops them in reverse order. A process that exits unexpectedly is restarted, with increasing pauses.
"""

import asyncio
import errno
import http.client
import json
import os
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Final

import msgspec

from snapbid.base.errors import is_disk_full
from snapbid.base.settings import (
    ServingSettings,
    Settings,
    bound,
    load,
    reachable,
    require_serving,
    to_environ,
    url_of,
    without_settings,
)
from snapbid.drain.run import SETTINGS as DRAIN_SETTINGS
from snapbid.embedded import EmbeddedError, Home, Postgres, Redis, demo
from snapbid.embedded.home import unusable
from snapbid.embedded.process import STILL_WAITING_S
from snapbid.embedded.supervise import Program, Restarter, Service, Signals, describe_status, say
from snapbid.operations.dashboard.server import is_loopback
from snapbid.warehouse import registry
from snapbid.warehouse.migrate import MigrationError, migrate
from snapbid.warehouse.unavailable import UNAVAILABLE, session

ORPHANS_S = 30.0  # for orphans of a killed instance to finish their work and exit
PROGRAMS: Final[dict[str, Container[str] | None]] = {"drain": DRAIN_SETTINGS, "serve": None}
"""The commands to run, in starting order, with the settings they need; None: all."""


class UpError(RuntimeError):
    """`up` cannot start; the message has the reason and a remedy."""


def run(settings: Settings) -> int:
    """Run `snapbid up` until a signal arrives; return 0, or 1 with a message if starting fails."""
    with Signals() as signals:
        try:
            with Home(settings.home) as home:
                _await_ports(settings, ORPHANS_S if home.left_behind else 0.0, signals)
                if settings.redis_url or settings.database_url:
                    say("SNAPBID_REDIS_URL and SNAPBID_DATABASE_URL are not used: "
                        "`up` has its own stores")  # fmt: skip
                _run_all(settings, home, signals)
        except (EmbeddedError, UpError) as error:
            print(f"snapbid up: {error}", file=sys.stderr, flush=True)
            return 1
        except OSError as error:
            if error.filename is None and not is_disk_full(error):
                raise  # not from a file
            print(f"snapbid up: {unusable(settings.home, error)}", file=sys.stderr, flush=True)
            return 1
    return 0


def _run_all(settings: Settings, home: Home, signals: Signals) -> None:
    redis = Redis(home, say, lambda: signals.stopping)
    postgres = Postgres(home, say, lambda: signals.stopping)
    serving = _serving(settings, home, redis.url, postgres.dsn)
    programs = [
        Program(command, without_settings(os.environ) | to_environ(serving, needed))
        for command, needed in PROGRAMS.items()
    ]
    started: list[Service] = []
    try:
        if not _start([redis, postgres], started, signals):
            return
        _prepare(postgres.dsn)
        home.announce(to_environ(serving) | {"SNAPBID_HOME": str(home.path)})
        ssp = asyncio.run(_example_ssp(postgres.dsn))
        if not _start(programs, started, signals):
            return
        stores = [Restarter(redis), Restarter(postgres)]
        if _await_ready(settings, programs, stores, signals):
            say(_greeting(serving, home, ssp))
            _supervise([*stores, *map(Restarter, programs)], signals)
    finally:
        say("stopping")
        for service in reversed(started):
            service.stop()
    say("stopped")


def _serving(settings: Settings, home: Home, redis_url: str, database_url: str) -> ServingSettings:
    """Return the settings with the URLs of the home's stores, and its secrets if none are set."""
    is_private = is_loopback(settings.ops_host, settings.ops_port)
    ops_token = settings.ops_token or (None if is_private else home.ops_token())
    return require_serving(
        msgspec.structs.replace(
            settings,
            redis_url=redis_url,
            database_url=database_url,
            jwt_secret=settings.jwt_secret or home.secret(),
            ops_token=ops_token,
        )
    )


def _start(services: Sequence[Service], started: list[Service], signals: Signals) -> bool:
    """Start services, adding each to `started`; False if a signal comes first."""
    for service in services:
        if signals.stopping:
            return False
        say(f"starting {service.name}")
        started.append(service)
        try:
            service.start()
        except EmbeddedError:
            if not signals.stopping:
                raise
    return not signals.stopping


def _prepare(dsn: str) -> None:
    """Bring the schema up to date, and add the demo data to an empty warehouse."""
    try:
        for name in asyncio.run(migrate(dsn)):
            say(f"schema: applied {name}")
        if asyncio.run(demo.seed(dsn)):
            say("added demo SSPs and campaigns")
    except (MigrationError, *UNAVAILABLE) as error:
        raise UpError(f"the warehouse cannot be prepared: {error}") from error


async def _example_ssp(dsn: str) -> str:
    """Return a canonical SSP id for the examples, preferably that of the demo SSP."""
    async with session(dsn) as connection:
        known = await registry.fetch_all(connection)
    return known.get("acme", next(iter(known.values()), "YOUR-SSP"))


def _await_ready(
    settings: Settings, programs: list[Program], stores: list[Restarter], signals: Signals
) -> bool:
    """Wait until /readyz answers 200, restarting stores meanwhile; False if a signal comes first.

    Raises UpError if a program exits before that; the program has logged the reason.
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
                    f"{program.name} exited ({describe_status(exit_status)}) before it was ready:"
                    " see its messages above"
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


def _await_ports(settings: Settings, timeout_s: float, signals: Signals) -> None:
    """Wait until the public and the private port are free.

    Raises UpError if they are not free within `timeout_s`, or if a signal arrives first.
    """
    deadline = time.monotonic() + timeout_s
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
    """Raise UpError, naming the variable to change, if `host:port` is unavailable."""
    try:
        family, address = bound(host, port)
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        host_variable = variable.replace("PORT", "HOST")
        if error.errno == errno.EADDRINUSE:
            raise UpError(
                f"port {port} on {host} is taken: stop whatever listens there, or set {variable} "
                "to a free port"
            ) from error
        if error.errno == errno.EACCES:
            raise UpError(
                f"port {port} on {host} needs privileges: set {variable} to 1024 or above"
            ) from error
        raise UpError(
            f"{host} is not an address of this machine ({error.strerror}): change {host_variable}"
        ) from error


def _greeting(serving: ServingSettings, home: Home, ssp: str) -> str:
    address = url_of(reachable(serving.host), serving.port)
    private = url_of(serving.ops_host, serving.ops_port).removeprefix("http://")
    asks = ", which asks for SNAPBID_OPS_TOKEN" if serving.ops_token is not None else ""
    command = _own_command(home)
    return f"""ready at {address} (private port: {private}{asks})

{_examples(address, ssp, command)}
The settings of this instance, for other commands in another terminal:

  export $({command} env)

Ctrl-C stops everything.
"""


def _examples(address: str, ssp: str, snapbid: str) -> str:
    """Return commands to copy, from a bid to a server event, for the server at `address`.

    `ssp`: a canonical id; `snapbid`: the command line of this instance's `snapbid`.
    """
    # A new auction id each time: otherwise the report would not count repeated examples.
    auction = f"connectivity-test-{int(time.time())}"
    request = {
        "id": auction,
        "at": 1,
        "imp": [{"id": "1", "banner": {"w": 300, "h": 250}, "bidfloor": 0}],
        "site": {"domain": "example.com", "page": "https://example.com/"},
        "device": {"ua": "Mozilla/5.0", "ip": "192.0.2.1", "geo": {"country": "USA"}},
    }
    event = {
        "event": "register",
        "timestamp": time.time_ns() // 1_000_000,
        "identity": {"client_user_id": "user-1"},
        "context": {"ip_address": "192.0.2.1", "user_agent": "Mozilla/5.0"},
    }
    return f"""A bid (document 2, connectivity test), its win and its billing notice:

  curl -i '{address}/api/v1/openrtb2/{ssp}/bid' \\
    -H 'Content-Type: application/json' \\
    -d '{json.dumps(request)}'
  curl -s '{address}/rtb/win?id={auction}&impId=1' -o /dev/null -w '%{{http_code}}\\n'
  curl -s '{address}/rtb/bill?id={auction}&impId=1' -o /dev/null -w '%{{http_code}}\\n'

Today's report (document 1), a few seconds later:

  TODAY=$(date -u +%F)
  curl -i "{address}/api/v1/ssp/{ssp}/report?from=$TODAY&to=$TODAY" \\
    -H "Authorization: Bearer $({snapbid} token issue {ssp})"

A server event (document 3): a key, a test that stores nothing, and the event itself:

  KEY=$({snapbid} key issue demo-shop); sleep 2
  curl -i '{address}/v3/s2s/event' -H "X-API-KEY: $KEY" \\
    -H 'Content-Type: application/json' -H 'X-Test-Mode: true' \\
    -d '{json.dumps(event)}'
  curl -i '{address}/v3/s2s/event' -H "X-API-KEY: $KEY" \\
    -H 'Content-Type: application/json' \\
    -d '{json.dumps(event)}'
"""


def _own_command(home: Home) -> str:
    """Return a shell command for this instance's `snapbid`, to be run in the current directory."""
    installed = Path(sys.executable).with_name("snapbid")
    program = os.path.relpath(installed)
    if program.startswith(".."):
        program = "snapbid" if shutil.which("snapbid") else str(installed)
    default = home.path == load({}).home
    return program if default else f"SNAPBID_HOME={shlex.quote(str(home.path))} {program}"
