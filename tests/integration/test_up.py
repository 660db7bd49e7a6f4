"""`snapbid up` from an empty directory to a bid, through crashes, to a clean end."""

import contextlib
import json
import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.processes import children_of
from support.soak.disk import mounted
from support.stack import START_S, Stack, run

from snapbid.embedded import Home
from snapbid.embedded.supervise import FIRST_PAUSE_S, LONGEST_PAUSE_S, STEADY_S, Restarter

Start = Callable[..., Stack]
SOURCES = Path(__file__).parents[2] / "src"
READY = "Ctrl-C stops everything"


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="snapbid-up-") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def running(initialise: Callable[[Path], None]) -> Iterator[Stack]:
    """An instance that several tests share; each leaves it as it was."""
    with tempfile.TemporaryDirectory(prefix="snapbid-up-") as path:
        initialise(Path(path))
        instance = Stack({"SNAPBID_HOME": path}, "up")
        with contextlib.closing(instance):
            instance.launch()
            await_text(instance, READY)
            yield instance
            assert instance.stop() == 0
            assert "Traceback" not in instance.output


@pytest.fixture
def launch(home: Path) -> Iterator[Start]:
    """Launch `snapbid up` without waiting for anything."""
    with contextlib.ExitStack() as stack:

        def start(**environ: str) -> Stack:
            instance = Stack({"SNAPBID_HOME": str(home), **environ}, "up")
            stack.callback(instance.close)
            instance.launch()
            return instance

        yield start


@pytest.fixture
def up(launch: Start) -> Start:
    def start(**environ: str) -> Stack:
        instance = launch(**environ)
        await_text(instance, READY)
        return instance

    return start


def await_text(instance: Stack, text: str, times: int = 1) -> None:
    """Wait until the output holds `text` so many times, or the process has ended without."""
    assert instance.process
    deadline = time.monotonic() + START_S
    while instance.output.count(text) < times and time.monotonic() < deadline:
        with contextlib.suppress(subprocess.TimeoutExpired):
            instance.process.wait(0.02)
            break
    assert instance.output.count(text) >= times, instance.output


def child(instance: Stack, part: str) -> int:
    assert instance.process
    (pid,) = (pid for pid, line in children_of(instance.process.pid).items() if part in line)
    return pid


def await_end(watched: list[int]) -> None:
    for pidfd in watched:
        assert select.select([pidfd], [], [], 60)[0], "a child outlives its parent"
        os.close(pidfd)


def environment(instance: Stack) -> dict[str, str]:
    done = run({"SNAPBID_HOME": instance.environ["SNAPBID_HOME"]}, "env")
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def connectivity_test(instance: Stack) -> subprocess.CompletedProcess[str]:
    """Run the printed curl as it was printed."""
    example = re.search(r"^  (curl (?:.*\\\n)*.*)$", instance.output, re.MULTILINE)
    assert example, instance.output
    return subprocess.run(
        shlex.split(example[1].replace("\\\n", "")), capture_output=True, text=True
    )


@pytest.mark.skipif(shutil.which("curl") is None, reason="the printed example needs curl")
def test_from_nothing_to_a_bid_to_a_clean_end(up: Start, home: Path) -> None:
    instance = up()
    assert instance.process
    answer = connectivity_test(instance)
    assert answer.stdout.startswith("HTTP/1.1 200"), answer
    head, body = answer.stdout.replace("\r\n", "\n").split("\n\n", 1)
    assert "application/json" in head
    (bid,) = json.loads(body)["seatbid"][0]["bid"]
    for name in ("nurl", "burl", "lurl"):
        assert bid[name].startswith(f"{instance.base_url}/rtb/")
    assert "Bearer ey" not in instance.output  # what is printed may be kept in a log
    report = re.search(r"^  TODAY=.*\n(?:  .*\n)+", instance.output, re.MULTILINE)
    assert report, instance.output
    answer = subprocess.run(["bash", "-c", report[0]], capture_output=True, text=True)
    assert answer.stdout.startswith("HTTP/1.1 200"), answer

    settings = environment(instance)
    assert settings["SNAPBID_PORT"] == str(instance.port)
    assert settings["SNAPBID_JWT_ISSUER"] == "snapbid"
    assert len(settings["SNAPBID_JWT_SECRET"]) >= 32
    assert {"SNAPBID_REDIS_URL", "SNAPBID_DATABASE_URL", "SNAPBID_BASE_URL"} <= set(settings)

    watched = [os.pidfd_open(pid) for pid in children_of(instance.process.pid)]
    assert len(watched) == 4
    assert instance.stop(signal.SIGINT) == 0
    await_end(watched)
    assert "Traceback" not in instance.output
    assert not (home / "env").exists()


def test_root_in_a_home_that_is_closed_to_others(closed: Path) -> None:
    """Mode 0700, as Debian makes root's; what was installed there with this umask is closed too."""
    environ = {"SNAPBID_HOME": str(closed / "var"), "PYTHONPATH": f"{closed}:{SOURCES}"}
    instance = Stack(environ, "up")
    with contextlib.closing(instance):
        instance.launch("sh", "-c", 'umask 077; exec "$@"', "sh")
        await_text(instance, READY)
        assert instance.stop() == 0
        assert "Traceback" not in instance.output


def test_the_secret_given_is_used(running: Stack) -> None:
    assert environment(running)["SNAPBID_JWT_SECRET"] == running.environ["SNAPBID_JWT_SECRET"]
    assert not (Path(running.environ["SNAPBID_HOME"]) / "secret").exists()


@pytest.mark.long
def test_whatever_ends_is_started_again(running: Stack) -> None:
    for number, part in enumerate(("redis-server", "postgres", "snapbid serve"), 1):
        os.kill(child(running, part), signal.SIGKILL)
        await_text(running, "ended unexpectedly (SIGKILL); restarting it", number)
        await_text(running, "restarted ", number)
        running.await_ready()
        assert child(running, part)


@pytest.mark.long
def test_a_store_that_ends_before_all_is_ready_is_started_again(
    launch: Start, home: Path, initialise: Callable[[Path], None]
) -> None:
    initialise(home)
    instance = launch()
    await_text(instance, "starting snapbid serve")
    os.kill(child(instance, "redis-server"), signal.SIGKILL)
    await_text(instance, "restarted Redis")
    await_text(instance, READY)
    assert instance.stop() == 0


@pytest.mark.long
def test_a_killed_instance_takes_all_with_it_and_comes_back(
    up: Start, home: Path, initialise: Callable[[Path], None]
) -> None:
    initialise(home)
    first = up()
    assert first.process
    watched = [os.pidfd_open(pid) for pid in children_of(first.process.pid)]
    first.stop(signal.SIGKILL)
    await_end(watched)
    second = up()
    assert "applied" not in second.output  # the same warehouse
    assert second.stop() == 0


def test_a_second_instance_on_the_same_home_is_refused(running: Stack, launch: Start) -> None:
    second = launch(SNAPBID_HOME=running.environ["SNAPBID_HOME"])
    assert running.process
    assert second.process
    assert second.process.wait(60) == 1
    assert f"is in use by process {running.process.pid}" in second.output
    assert running.get("/readyz")[0] == 200


def test_a_stop_during_the_start_is_clean(launch: Start) -> None:
    instance = launch()
    await_text(instance, "starting")
    assert instance.stop() == 0
    assert "Traceback" not in instance.output


@pytest.mark.parametrize("variable", ["SNAPBID_PORT", "SNAPBID_OPS_PORT"])
def test_a_taken_port_is_named(launch: Start, variable: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        instance = launch(**{variable: str(port)})
        assert instance.process
        assert instance.process.wait(60) == 1
    assert f"port {port} on 127.0.0.1 is taken" in instance.output
    assert f"set {variable} to" in instance.output


def test_an_address_that_is_not_ours_is_named(launch: Start) -> None:
    instance = launch(SNAPBID_HOST="192.0.2.1")
    assert instance.process
    assert instance.process.wait(60) == 1
    assert "change SNAPBID_HOST" in instance.output


def test_a_full_disk_is_named(launch: Start, home: Path) -> None:
    with mounted(home, 1) as disk:
        if disk is None:
            pytest.skip("no tmpfs can be mounted here")
        with Home(home):
            pass  # leaves a lock, so that what fails is a later file
        disk.fill()
        instance = launch()
        assert instance.process
        assert instance.process.wait(60) == 1
        assert f"SNAPBID_HOME {home} cannot be used: No space left on device: free some space" in (
            instance.output
        )
        assert "Traceback" not in instance.output


def test_a_file_that_cannot_be_written_is_named(launch: Start, home: Path) -> None:
    (home / "lock").touch()
    (home / "log" / "redis.log").mkdir(parents=True)
    instance = launch()
    assert instance.process
    assert instance.process.wait(60) == 1
    assert f"SNAPBID_HOME {home} cannot be used: Is a directory" in instance.output
    assert "Traceback" not in instance.output


def test_wrong_settings_are_all_named(launch: Start) -> None:
    instance = launch(SNAPBID_WORKERS="none", SNAPBID_TMAX="5")
    assert instance.process
    assert instance.process.wait(60) == 2
    assert "SNAPBID_WORKERS must be" in instance.output
    assert "SNAPBID_TMAX is not a setting" in instance.output


class Fragile:
    """A service that ends whenever it is told to."""

    name = "fragile"

    def __init__(self) -> None:
        self.status: int | None = None
        self.starts = 0

    def start(self) -> None:
        self.status = None
        self.starts += 1

    def stop(self) -> None: ...

    def poll(self) -> int | None:
        return self.status


def test_pauses_grow_to_a_bound_and_shrink_after_a_steady_time() -> None:
    service = Fragile()
    restarter = Restarter(service)
    clock = 1e9  # long after the start
    pauses = []
    for _ in range(12):
        service.status = 1
        pause = restarter.tend(clock)
        assert restarter.tend(clock + pause * 0.9) > 0
        assert service.poll() == 1
        clock += pause
        restarter.tend(clock)
        assert service.poll() is None
        pauses.append(pause)
    assert pauses[:4] == [FIRST_PAUSE_S * 2**n for n in range(4)]
    assert pauses[-1] == LONGEST_PAUSE_S
    assert service.starts == 12
    service.status = 1
    assert restarter.tend(clock + STEADY_S + 1) == FIRST_PAUSE_S
