"""`snapbid serve`: the process that starts the HTTP workers and publishes their catalog.

Its main thread supervises Granian's workers, which serve partners. Other threads publish the
catalog, serve the private port, allocate budgets, and publish releases.
"""

import asyncio
import errno
import fcntl
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from granian.constants import HTTPModes, Interfaces, Loops, RuntimeModes
from granian.http import HTTP1Settings
from granian.log import LogLevels

from snapbid.base.child import ChildProcess
from snapbid.base.errors import is_disk_full
from snapbid.base.logs import GRANIAN, log_to_stderr
from snapbid.base.risks import RiskLog
from snapbid.base.settings import VARIABLES, ServingSettings, Settings, bound, reachable, url_of
from snapbid.base.version import version
from snapbid.catalog.publisher.publisher import CatalogPublisher
from snapbid.operations import preflight
from snapbid.operations.dashboard.server import OpsServer
from snapbid.operations.dashboard.watch import Watch
from snapbid.operations.recording.recorder import open_file
from snapbid.reference.geo import GeoDatabase, GeoDatabaseError
from snapbid.report import tokens
from snapbid.server import connections
from snapbid.server.allocating import AllocatorThread
from snapbid.server.granian import GranianServer
from snapbid.server.process import create

BACKLOG: Final = 4096
STOP_S: Final = 20  # for requests in flight
WRITER_STOP_S: Final = 60.0  # for the auction log's writer, to convert the remaining rows
START_S: Final = 60  # for a replacement worker to listen

ANNOUNCE_POLL_S: Final = 0.1

logger = logging.getLogger(__name__)


class ServeError(RuntimeError):
    """The server cannot start; the message says what to change."""

    status = 2  # exit status for a wrong setting


class PortError(ServeError):
    """The server cannot have a port, or another one has its home."""

    status = 1


def serve(settings: ServingSettings) -> int:
    """Serve until SIGTERM or SIGINT; return the exit status.

    SIGHUP replaces the workers one by one.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until workers run
    log_to_stderr()
    multiprocessing.set_start_method("spawn", force=True)  # a fork copies held locks
    publisher = CatalogPublisher(settings.database_url, settings.catalog_path)
    risks = RiskLog()
    try:
        _check(settings)
        settings = asyncio.run(preflight.check(settings, risks))
        watch = Watch(settings, publisher, risks)
        allocator = _make_allocator(settings)
        ops = _open_ops(settings, watch)
    except (ServeError, preflight.VolatileStoreError) as error:
        print(error, file=sys.stderr)
        return error.status
    logger.info("starting snapbid %(version)s", {"version": version()})
    _warn_of_base_url(settings)
    os.environ.pop(VARIABLES["ops_token"], None)  # hidden from the workers
    os.environ[VARIABLES["ledger_shards"]] = str(settings.shards)  # read by the workers
    writer = None
    if settings.auction_log is not None:
        writer = ChildProcess(
            "auction log writer", "snapbid.auctionlog", str(settings.auction_log),
            str(settings.auction_log_s), stop_s=WRITER_STOP_S,
        )  # fmt: skip
        writer.start()
    allocator.start()
    publisher.start()
    watch.start()
    ops.start()
    threading.Thread(target=_announce, args=(settings,), name="announce", daemon=True).start()
    try:
        _run_workers(settings)
    finally:
        allocator.stop()
        publisher.stop()
        watch.stop()
        ops.shutdown()
        if writer is not None:
            writer.stop()
    return 0


def _check(settings: ServingSettings) -> None:
    try:
        tokens.check_key(settings.jwt_secret.key())
    except ValueError as error:
        raise ServeError(f"SNAPBID_JWT_SECRET: {error}") from error
    try:
        GeoDatabase(settings.geo_db).close()
    except GeoDatabaseError as error:
        raise ServeError(f"SNAPBID_GEO_DB: {error}") from error
    if settings.record is not None:
        try:
            os.close(open_file(settings.record))
        except OSError as error:
            raise ServeError(
                f"SNAPBID_RECORD {settings.record} cannot be used: {error.strerror}"
            ) from error
    if settings.auction_log is not None and (problem := _log_problem(settings.auction_log)):
        raise ServeError(f"SNAPBID_AUCTION_LOG {problem}")
    try:
        family, address = bound(settings.host, settings.port)
        with socket.create_server(address, family=family, reuse_port=False):
            pass
    except OSError as error:
        raise PortError(
            f"SNAPBID_PORT {settings.port} on {settings.host} cannot be used: {error.strerror}"
        ) from error


def _log_problem(directory: Path) -> str | None:
    """Return why a directory cannot hold the auction log; None if it can."""
    if find_spec("duckdb") is None:
        return "needs duckdb: pip install 'snapbid[parquet]'"
    try:
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as error:
        return f"{directory}: {error.strerror}"
    return None if os.access(directory, os.W_OK | os.X_OK) else f"{directory}: not writable"


def _warn_of_base_url(settings: ServingSettings) -> None:
    """Warn if notification URLs begin with an address like 0.0.0.0, which SSPs cannot reach."""
    host = urlsplit(settings.base_url).hostname or ""
    if reachable(host) != host:
        logger.warning(
            "notification URLs begin with %(base_url)s, which SSPs cannot reach: set "
            "SNAPBID_BASE_URL to the URL at which they reach this server",
            {"base_url": settings.base_url},
        )


def _make_allocator(settings: ServingSettings) -> AllocatorThread:
    """Make and lock the runtime directory, and make the allocator, which writes to it."""
    try:
        settings.runtime_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(settings.runtime_dir, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        _lock(settings)
        return AllocatorThread(settings)
    except OSError as error:
        remedy = (
            "free some space"
            if is_disk_full(error)
            else "set it to a directory that you can write to"
        )
        raise ServeError(
            f"SNAPBID_HOME {settings.home} cannot be used: {error.strerror}: {remedy}"
        ) from error


def _lock(settings: ServingSettings) -> None:
    """Keep other servers out of the runtime directory until this process ends."""
    file = os.open(settings.runtime_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(file, 32, 0).decode(errors="replace").strip()
        raise PortError(
            f"SNAPBID_HOME {settings.home} is in use on port {settings.port} by process {holder}: "
            "stop it, or set SNAPBID_HOME to another directory"
        ) from error
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()}\n".encode(), 0)


def _open_ops(settings: ServingSettings, watch: Watch) -> OpsServer:
    try:
        return OpsServer(settings.ops_host, settings.ops_port, watch, settings.ops_token)
    except ValueError as error:
        raise ServeError(
            f"SNAPBID_OPS_TOKEN must be set, since SNAPBID_OPS_HOST {settings.ops_host} is not a "
            "loopback address: generate one with openssl rand -hex 32"
        ) from error
    except OSError as error:
        raise PortError(
            f"SNAPBID_OPS_PORT {settings.ops_port} on {settings.ops_host} cannot be used: "
            f"{error.strerror}"
        ) from error


def _announce(settings: ServingSettings) -> None:
    """Log the server's addresses once a worker accepts connections."""
    while True:
        with suppress(OSError):
            socket.create_connection((reachable(settings.host), settings.port), timeout=1).close()
            break
        time.sleep(ANNOUNCE_POLL_S)
    logger.info(
        "listening on %(url)s (SNAPBID_WORKERS: %(workers)d), private port %(ops_url)s/ops,"
        " notification URLs at %(base_url)s",
        {
            "url": url_of(settings.host, settings.port),
            "workers": settings.workers,
            "ops_url": url_of(settings.ops_host, settings.ops_port),
            "base_url": settings.base_url,
        },
    )


def schedule_as_batch() -> None:
    """Schedule this process and its children as SCHED_BATCH, where that exists.

    Otherwise a worker's two threads, which read and answer requests, preempt each other at every
    request, costing a third of its processor time (bench/README.md).
    """
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may forbid it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _run_workers(settings: ServingSettings) -> None:
    """Run Granian and its workers until a signal stops them."""
    schedule_as_batch()
    connections.prepare()
    with suppress(SystemExit):  # raised by Granian if a worker crashed while it stopped
        _server(settings).serve(target_loader=create, wrap_loader=False)


def _server(settings: Settings) -> GranianServer:
    """Build a Granian server with the fastest options for small requests (bench/README.md)."""
    return GranianServer(
        "snapbid.server.process:create",  # for Granian's log; `serve` is given the function
        address=bound(settings.host, settings.port)[1][0],
        port=settings.port,
        interface=Interfaces.ASGI,
        workers=settings.workers,
        runtime_mode=RuntimeModes.st,
        loop=Loops.uvloop,
        http=HTTPModes.http1,
        http1_settings=HTTP1Settings(
            header_read_timeout=settings.idle_timeout_s * 1000,
            max_buffer_size=connections.MAX_HEAD_BYTES,
        ),
        websockets=False,
        backlog=BACKLOG,
        backpressure=connections.most(),
        log_level=LogLevels.warning,
        log_dictconfig=GRANIAN,
        respawn_failed_workers=True,
        respawn_interval=START_S,
        workers_kill_timeout=STOP_S,
    )
