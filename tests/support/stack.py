"""Databases of the session's server, and `snapbid` processes."""

import asyncio
import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from snapbid.base.settings import reachable, url_of
from snapbid.embedded import Postgres
from snapbid.embedded.postgres import DATABASE
from snapbid.warehouse.migrate import migrate
from support.http import ask
from workload.serving import confirm_budgets, free_ports

START_S = 120.0
STOP_S = 120.0
LOCK_S = 30.0
JWT_SECRET = "a secret that only the tests ever use"
PAGE = (Path(__file__).parents[2] / "src/snapbid/server/PRODUCTION.md").read_text(encoding="utf-8")
PERMISSIONS = re.findall(r"`(~\* [^`]+)`", PAGE)[0].split()
"""What PRODUCTION.md says that a Redis user needs."""


class Databases:
    """Fresh, migrated databases, copied from the server's own."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        self._copies: defaultdict[str, list[str]] = defaultdict(list)
        asyncio.run(migrate(server.dsn))

    @contextlib.contextmanager
    def fresh(self) -> Iterator[str]:
        """The DSN of a new database, dropped afterwards with its copies, even if in use."""
        name = f"test_{next(self._numbers)}"
        self._run(f'CREATE DATABASE "{name}" TEMPLATE "{DATABASE}" STRATEGY file_copy')
        try:
            yield self._server.dsn_of(name)
        finally:
            for each in (name, *self._copies.pop(name, ())):
                self._run(f'DROP DATABASE IF EXISTS "{each}" WITH (FORCE)')

    def copy(self, dsn: str) -> str:
        """Copy a fresh database that nobody is connected to; give the copy's name."""
        original, copy = self._name(dsn), f"test_{next(self._numbers)}"
        self._copies[original].append(copy)
        self._run(f'CREATE DATABASE "{copy}" TEMPLATE "{original}"')
        return copy

    def restore(self, name: str, dsn: str) -> None:
        """Put a copy in the place of a database, and end its connections."""
        replaced = self._name(dsn)
        self._run(f'DROP DATABASE "{replaced}" WITH (FORCE)')
        self._run(f'ALTER DATABASE "{name}" RENAME TO "{replaced}"')

    def dump(self, dsn: str) -> str:
        """Return what `pg_dump` writes of a database."""
        return self._program("pg_dump", "--no-owner", dsn)

    def restore_in_place(self, dump: str, dsn: str) -> None:
        """Put a dump in the place of a database's content at once; connections stay."""
        again = f"drop schema public cascade; create schema public;\n{dump}"
        self._program("psql", "--single-transaction", "--set=ON_ERROR_STOP=1", dsn, input=again)

    def _program(self, name: str, *arguments: str, input: str = "") -> str:
        assert self._server.process
        program = Path(f"/proc/{self._server.process.pid}/exe").readlink().with_name(name)
        done = subprocess.run(
            [program, *arguments], input=input, check=True, capture_output=True, text=True
        )
        return done.stdout

    def _name(self, dsn: str) -> str:
        return urlsplit(dsn).path.removeprefix("/")

    def _run(self, sql: str) -> None:
        """Run a statement, also where an event loop is running."""
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, execute(self._server.dsn, sql)).result()


@contextlib.asynccontextmanager
async def connected(dsn: str, user: str | None = None) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn, user=user)
    try:
        yield connection
    finally:
        await connection.close()


async def execute(dsn: str, sql: str, *values: Any) -> None:
    async with connected(dsn) as connection:
        await connection.execute(sql, *values)


async def fetch(dsn: str, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    async with connected(dsn) as connection:
        return [tuple(row) for row in await connection.fetch(sql, *values)]


async def lock_is_awaited(connection: asyncpg.Connection) -> None:
    """Wait until somebody waits for a lock."""
    async with asyncio.timeout(LOCK_S):
        while not await connection.fetchval(
            "select exists (select from pg_locks where not granted)"
        ):
            await asyncio.sleep(0.005)


def clean_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of this process, with its settings replaced by `environ`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SNAPBID_")}
    return kept | dict(environ)


def run(
    environ: Mapping[str, str], *arguments: str, **more: Any
) -> "subprocess.CompletedProcess[str]":
    """Run a `snapbid` command with no settings but `environ`, and free ports if it is to listen."""
    if "serve" in arguments:
        port, ops_port = map(str, free_ports(2))
        environ = {"SNAPBID_PORT": port, "SNAPBID_OPS_PORT": ops_port, **environ}
    return subprocess.run(
        [sys.executable, "-m", "snapbid", *arguments],
        env=clean_environ(environ),
        capture_output=True,
        text=True,
        timeout=300,
        **more,
    )


class Stack:
    """A `snapbid` process (`serve` by default) on free ports; keeps its output."""

    def __init__(self, environ: Mapping[str, str], *command: str) -> None:
        self.port, self.ops_port = free_ports(2)
        self.host = reachable(environ.get("SNAPBID_HOST", "127.0.0.1"))
        self.base_url = url_of(self.host, self.port)
        self.ops_url = f"http://127.0.0.1:{self.ops_port}"
        self.environ = clean_environ(
            {
                "SNAPBID_PORT": str(self.port),
                "SNAPBID_OPS_PORT": str(self.ops_port),
                "SNAPBID_JWT_SECRET": JWT_SECRET,
                "SNAPBID_TMAX_MS": "60000",  # so that a busy machine is not late
                **environ,
            }
        )
        self.command = command or ("serve",)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until `/readyz` is 200. Fails with the output if it ends first."""
        self.launch()
        self.await_ready()

    def launch(self, *before: str) -> subprocess.Popen[bytes]:
        """Start it, by the command `before` if there is one."""
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", "snapbid", *self.command],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=self.environ,
            start_new_session=True,
        )
        return self.process

    def await_ready(self) -> None:
        assert self.process
        deadline = time.monotonic() + START_S
        while self.get("/readyz")[0] != 200:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self.process.wait(0.02)
                raise AssertionError(f"ended with {status} before it was ready:\n{self.output}")
            if time.monotonic() > deadline:
                raise AssertionError(f"not ready within {START_S} s:\n{self.output}")
        url = self.environ.get("SNAPBID_REDIS_URL", "")  # none: `up` has its own
        if self.command == ("serve",) and "+" not in url:  # as a drain would, if there were one
            confirm_budgets(url, int(self.environ.get("SNAPBID_LEDGER_SHARDS", "1")))

    def get(self, path: str, *, ops: bool = False, within_s: float = 60.0) -> tuple[int, bytes]:
        """GET over a new connection; returns status (0 without an answer) and body."""
        port = self.ops_port if ops else self.port
        try:
            reply = ask(port, "GET", path, host=self.host, within_s=within_s)
        except (OSError, HTTPException):
            return 0, b""
        return reply.status, reply.body

    @property
    def output(self) -> str:
        """The output so far."""
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size, 0).decode(errors="replace")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; returns the exit status."""
        assert self.process
        self.process.send_signal(how)
        return self.process.wait(STOP_S)

    def close(self) -> None:
        """Stop the process; kill its whole session if it does not stop by itself."""
        if self.process and self.process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self._output.close()


@contextlib.contextmanager
def draining(served: Stack) -> Iterator[Stack]:
    """Run a drain on the stores of a server; give the drain."""
    with contextlib.closing(Stack(served.environ, "drain")) as drain:
        drain.launch()
        yield drain
