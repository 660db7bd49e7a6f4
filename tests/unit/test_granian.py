"""What `server.granian` relies on in Granian, whose names and signatures are private."""

import asyncio
import dataclasses
import inspect
import multiprocessing
import os
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from granian._granian import CallbackScheduler
from granian.http import HTTP1Settings
from granian.server import common, mp
from granian.server.mp import MPServer, WorkerProcess

from snapbid.server.granian import GranianServer, install


def parameters(function: object) -> list[str]:
    assert callable(function)
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (MPServer._spawn_worker, ["self", "idx", "target", "callback_loader"]),
        (MPServer._respawn_workers, ["self", "workers", "spawn_target", "target_loader", "delay"]),
        (MPServer.serve, ["self", "spawn_target", "target_loader", "wrap_loader"]),
        (WorkerProcess.join, ["self", "timeout"]),
        (WorkerProcess.terminate, ["self"]),
        (WorkerProcess.kill, ["self"]),
        (WorkerProcess.is_alive, ["self"]),
        (WorkerProcess.start, ["self"]),
    ],
)
def test_signatures(function: object, expected: list[str]) -> None:
    assert parameters(function) == expected


def test_overridden_methods_exist_in_granian() -> None:
    own = {name for name in vars(GranianServer) if callable(getattr(GranianServer, name))}
    assert {name for name in own if hasattr(MPServer, name)} == {
        "_spawn_worker",
        "_respawn_workers",
        "_stop_workers",
        "signal_handler_interrupt",
        "signal_handler_reload",
    }
    for name in ("_spawn_worker", "_respawn_workers", "_stop_workers"):
        assert parameters(getattr(GranianServer, name)) == parameters(getattr(MPServer, name))


def test_attributes_of_a_server() -> None:
    server = GranianServer("x:y", respawn_interval=5, workers_kill_timeout=7)
    assert (server.wrks, server.interrupt_children) == ([], [])
    assert server.interrupt_signal is False
    assert server.workers_kill_timeout == 7
    assert server.respawned_wrks == {}, "read to detect crash loops, and left empty here"


@pytest.mark.parametrize("name", ["signal_handler_interrupt", "signal_handler_reload"])
def test_a_signal_may_come_while_the_event_is_locked(name: str) -> None:
    """As in `Event.wait`, which the handler interrupts: it must not wait for that lock."""
    server: Any = GranianServer("x:y")
    handled = threading.Thread(target=getattr(server, name), args=(15, None), daemon=True)
    with server.main_loop_interrupt._cond:
        handled.start()
        handled.join(10)
        assert not handled.is_alive()
    assert server.main_loop_interrupt.wait(10)


@pytest.mark.parametrize("delay", [0, 5])
@pytest.mark.parametrize("name", ["signal_handler_interrupt", "signal_handler_reload"])
def test_a_signal_is_not_lost_while_workers_are_respawned(name: str, delay: float) -> None:
    """Granian clears the event between its look at the signals and this."""
    server = GranianServer("x:y")
    getattr(server, name)(15, None)
    assert server.main_loop_interrupt.wait(10)
    server.main_loop_interrupt.clear()
    server._respawn_workers([], None, None, delay)
    assert server.main_loop_interrupt.is_set()


def test_when_workers_are_respawned() -> None:
    """`delay` tells a replacement (SIGHUP) from a crash; a crash loop ends `serve` otherwise."""
    reload = inspect.getsource(common.AbstractServer._reload)
    assert "delay=self.respawn_interval" in reload
    assert "main_loop_interrupt.clear()" in reload
    loop = inspect.getsource(common.AbstractServer._serve_loop)
    assert "self._respawn_workers(workers, spawn_target, target_loader)" in loop
    assert "self.respawned_wrks.get(idx, 0)" in loop


def test_one_time_out_is_for_idle_connections_and_heads() -> None:
    """Hyper awaits a request's head for as long as it keeps an idle connection: one setting."""
    fields = {field.name for field in dataclasses.fields(HTTP1Settings)}
    assert fields == {"header_read_timeout", "keep_alive", "max_buffer_size", "pipeline_flush"}, (
        "is there a half_close now, or a time-out for idle connections alone? Use it."
    )


def test_worker_shutdown_steps() -> None:
    watcher = inspect.getsource(common.AbstractWorker._watcher)
    assert "if not self.interrupt_by_parent:" in watcher
    assert "self.parent.interrupt_children.append(self.idx)" in watcher
    assert {"birth", "interrupt_by_parent", "parent"} <= set(
        common.AbstractWorker.__init__.__code__.co_names
    )


def test_one_function_builds_the_request_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    """`install` replaces it in a worker; a request's coroutine is `in_task`."""
    original: Any = vars(mp)["_new_cbscheduler"]
    monkeypatch.setattr(mp, "_new_cbscheduler", original)  # put back afterwards
    assert parameters(original) == ["loop", "cb", "impl_asyncio"]
    for spawn in (MPServer._spawn_asgi_lifespan_worker, MPServer._spawn_asgi_worker):
        source = inspect.getsource(inspect.unwrap(spawn))
        assert "scheduler = _new_cbscheduler(loop, wcallback, impl_asyncio=" in source
        assert "wcallback = _future_watcher_wrapper(" in source

    async def application(*_: Any) -> None: ...

    install(application, lambda path: 1)
    replaced: Any = vars(mp)["_new_cbscheduler"]
    assert replaced is not original
    loop = asyncio.new_event_loop()
    try:
        assert isinstance(replaced(loop, application, impl_asyncio=True), CallbackScheduler)
    finally:
        loop.close()


def test_ended_workers_are_not_killed() -> None:
    """Though another thread, which has its status, has not noted that yet."""
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    process.start()
    killed: list[int] = []

    def end() -> None:
        process.terminate()
        assert process.pid
        os.waitpid(process.pid, 0)

    worker: Any = SimpleNamespace(
        idx=0,
        inner=process,
        terminate=end,
        join=process.join,
        is_alive=process.is_alive,
        kill=lambda: killed.append(1),
    )
    server = GranianServer("x:y", workers_kill_timeout=10)
    server.wrks.append(worker)
    server._stop_workers()
    assert not killed
    assert not server.wrks
