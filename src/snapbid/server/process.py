"""The entry point of a worker process for Granian, and the signal that the worker is listening."""

import asyncio
import ctypes
import gc
import os
import signal
import socket
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Final

from snapbid.base.logs import log_to_stderr
from snapbid.base.settings import load, require_serving

if TYPE_CHECKING:
    from snapbid.server.app import Application

PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
# Requests make hardly any cycles; at the default threshold the collector took a tenth of a bid's
# processor time.
GC_THRESHOLD: Final = (50_000, 20, 100)
POLL_S: Final = 0.01


def create(listening: Connection) -> "Application":
    """Build the application; it writes to the pipe `listening` once this worker's port is open."""
    from snapbid.server.app import Application  # not imported by the process that starts workers
    from snapbid.server.granian import install
    from snapbid.server.worker import Worker

    log_to_stderr()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)
    _end_with_parent()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # every process gets it when a terminal closes
    # Granian would miss a signal that arrives before its handlers are set: keep it pending.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    application = Application(
        Worker(require_serving(load(os.environ))), started=partial(_announce, listening)
    )
    install(application.__call__, application.kind_of)  # a method is called faster than an object
    return application


async def _announce(listening: Connection) -> None:
    """Unblock the signals and notify the parent, once the port is open.

    Granian opens it in a thread, a few milliseconds after the application's startup.
    """
    while not _is_listening():
        await asyncio.sleep(POLL_S)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    with listening, suppress(BrokenPipeError):  # the parent was killed
        listening.send_bytes(b"1")


def _is_listening() -> bool:
    """Whether any socket of this process is listening."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the file was closed meanwhile
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                with socket.socket(fileno=os.dup(int(name))) as own:
                    if own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        return True
    return False


def _end_with_parent() -> None:
    """Exit when the parent is killed, so as not to keep the port."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
