"""`snapbid up`: everything on one machine, from an empty directory to a bid (contract 1).

Start: lock the home, Redis, PostgreSQL, schema, demo data, then the programs that serve. Each is a
session of its own, so that Ctrl-C in a terminal reaches this process alone, and stops in reverse
order. Whatever ends unexpectedly is started again, with growing pauses.
"""

import asyncio
import contextlib
import errno
import http.client
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Protocol, Self

import asyncpg
import msgspec

from snapbid.embedded import EmbeddedError, Home, Postgres, Redis
from snapbid.embedded.process import spawn, stop
from snapbid.settings import Settings, load, to_environ
from snapbid.warehouse import demo, registry
from snapbid.warehouse.migrate import MigrationError, migrate

PROGRAMS = ("serve",)  # `snapbid` commands, in the order of their start
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0  # who has run for so long starts with the first pause again
STILL_WAITING_S = 15.0


class UpError(RuntimeError):
    """What keeps `up` from starting, and what to do about it."""


class Member(Protocol):
    """What `up` runs: a store or a program."""

    @property
    def name(self) -> str: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def poll(self) -> int | None: ...


class Program:
    """A `snapbid` command as a child process; its output goes where ours goes."""

    def __init__(self, command: str, environ: Mapping[str, str]) -> None:
        self.name = f"snapbid {command}"
        self._command = [sys.executable, "-m", "snapbid", command]
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = spawn(self._command, env=self._environ)

    def poll(self) -> int | None:
        return self._process.poll() if self._process else None

    def stop(self) -> None:
        if self._process:
            stop(self._process, signal.SIGTERM)
            with contextlib.suppress(ProcessLookupError):  # workers that outlive a killed parent
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process = None


class Signals:
    """While entered: INT, TERM and HUP set `stopping`; they and CHLD end a `wait`."""

    def __init__(self) -> None:
        self.stopping = False

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._woke = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        heard = [signal.SIGINT, signal.SIGTERM, signal.SIGCHLD]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup asks for
            heard.append(signal.SIGHUP)
        self._before = {number: signal.signal(number, self._note) for number in heard}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._woke)
        os.close(self._read)
        os.close(self._write)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self.stopping = True

    def wait(self, seconds: float) -> None:
        """Sleep until a signal comes, at most `seconds`."""
        if select.select([self._read], [], [], seconds)[0]:
            os.read(self._read, 4096)


class Keeper:
    """Starts one member again whenever it has ended."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._since = time.monotonic()
        self._pause = FIRST_PAUSE_S
        self._due: float | None = None

    def tend(self, now: float) -> float:
        """Do what is due; the seconds after which there may be more to do."""
        if self._due is None:
            status = self._member.poll()
            if status is not None:
                self._plan(now, f"ended unexpectedly ({_ended(status)})")
        elif now >= self._due:
            self._due, self._since = None, now
            self._member.stop()  # forgets the one that ended
            try:
                self._member.start()
            except (EmbeddedError, OSError) as error:
                self._plan(now, f"does not start: {error}")
            else:
                _say(f"{self._member.name} is started again")
        return 1.0 if self._due is None else max(0.0, self._due - now)

    def _plan(self, now: float, what: str) -> None:
        if now - self._since > STEADY_S:
            self._pause = FIRST_PAUSE_S
        _say(f"{self._member.name} {what}; starting it again in {self._pause:g} s")
        self._due = now + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE_S)


def run(settings: Settings) -> int:
    """Run until a signal comes: exit status 0; 1 with a message where it cannot start."""
    with Signals() as signals:
        try:
            with Home(settings.home) as home:
                check_port("SNAPBID_PORT", settings.host, settings.port)
                check_port("SNAPBID_OPS_PORT", settings.ops_host, settings.ops_port)
                _run_all(settings, home, signals)
        except (EmbeddedError, UpError) as error:
            print(f"snapbid up: {error}", file=sys.stderr, flush=True)
            return 1
    return 0


def _run_all(settings: Settings, home: Home, signals: Signals) -> None:
    redis, postgres = Redis(home), Postgres(home)
    if settings.redis_url or settings.database_url:
        _say("SNAPBID_REDIS_URL and SNAPBID_DATABASE_URL are not used: `up` has its own stores")
    settings = msgspec.structs.replace(
        settings,
        redis_url=redis.url,
        database_url=postgres.dsn,
        jwt_secret=settings.jwt_secret or home.secret(),
    )
    environ = _child_environ(settings)
    programs = [Program(command, environ) for command in PROGRAMS]
    members: list[Member] = [redis, postgres, *programs]
    started: list[Member] = []
    try:
        for member in members:
            if signals.stopping:
                return
            _say(f"starting {member.name}")
            started.append(member)
            member.start()
            if member is postgres:
                _prepare(postgres.dsn)
                home.announce(to_environ(settings))
        if _await_ready(settings, programs, signals):
            _say(_examples(settings, asyncio.run(_some_ssp(postgres.dsn))))
            _supervise(members, signals)
    finally:
        _say("stopping")
        for member in reversed(started):
            member.stop()
    _say("stopped")


def _prepare(dsn: str) -> None:
    """Schema, and the demo data where there is none."""
    try:
        for name in asyncio.run(migrate(dsn)):
            _say(f"schema: applied {name}")
        if asyncio.run(demo.seed(dsn)):
            _say("demo SSPs and campaigns are in the warehouse")
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


def _await_ready(settings: Settings, programs: list[Program], signals: Signals) -> bool:
    """Wait until /readyz is 200: True; False when a signal came first.

    Raises UpError when a program ends before; it has told why itself.
    """
    tell = time.monotonic() + STILL_WAITING_S
    while not signals.stopping:
        status, body = _readyz(settings)
        if status == 200:
            return True
        for program in programs:
            ended = program.poll()
            if ended is not None:
                raise UpError(f"{program.name} ended ({_ended(ended)}) before it was ready")
        if time.monotonic() > tell:
            tell = time.monotonic() + STILL_WAITING_S
            _say(f"not ready yet: {body.decode(errors='replace').strip() or 'no answer'}")
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


def _supervise(members: list[Member], signals: Signals) -> None:
    keepers = [Keeper(member) for member in members]
    while not signals.stopping:
        signals.wait(min(keeper.tend(time.monotonic()) for keeper in keepers))


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


def _child_environ(settings: Settings) -> dict[str, str]:
    """Our environment with the checked settings in the place of the raw ones."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SNAPBID_") or name == "SNAPBID_DEBUG"
    }
    return kept | to_environ(settings)


def _examples(settings: Settings, ssp: str) -> str:
    host = _reachable(settings.host)
    address = f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"
    request = {
        "id": "connectivity-test-1",
        "imp": [{"id": "1", "banner": {"w": 300, "h": 250}, "bidfloor": 0}],
        "site": {"domain": "example.com", "page": "https://example.com/"},
        "device": {"ua": "Mozilla/5.0", "ip": "192.0.2.1", "geo": {"country": "USA"}},
        "at": 1,
    }
    return f"""ready at {address} (operator's page: {settings.ops_host}:{settings.ops_port})

A bid (document 2, connectivity test):

  curl -i '{address}/api/v1/openrtb2/{ssp}/bid' \\
    -H 'Content-Type: application/json' \\
    -d '{json.dumps(request)}'

The settings of this instance, for other commands in another terminal:

  export $({_command(settings)} env)

Ctrl-C stops everything.
"""


def _command(settings: Settings) -> str:
    """How this program is called from the present directory, for this home."""
    beside = Path(sys.executable).with_name("snapbid")
    program = os.path.relpath(beside) if beside.exists() else "snapbid"
    default = load({}).home == settings.home
    return program if default else f"SNAPBID_HOME={shlex.quote(str(settings.home))} {program}"


def _reachable(host: str) -> str:
    """Where a client on this machine finds what listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _ended(status: int) -> str:
    return f"exit status {status}" if status >= 0 else signal.Signals(-status).name


def _say(text: str) -> None:
    print(f"snapbid up: {text}", flush=True)
