"""The embedded Redis on a disk that fills up while clients write."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.exceptions import ConnectionError, OutOfMemoryError, ResponseError
from support.machine import temporary_home
from support.processes import eventually
from support.soak.disk import Disk, mounted

from snapbid.embedded import Redis
from snapbid.embedded.space import RESERVE, DiskReserve

MB = 64 + (RESERVE >> 20)
WRITERS = 6
PIECE = b"x" * 4000


class Writer(threading.Thread):
    """Increments a counter until Redis refuses or is gone."""

    def __init__(self, url: str, number: int) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.key = f"writer:{number}"
        self.acknowledged = 0
        self.refused: Exception | None = None
        self.start()

    def run(self) -> None:
        with redis.Redis.from_url(self._url) as client:
            while not self.refused:
                try:
                    client.hset(self.key, self.acknowledged + 1, PIECE)
                    self.acknowledged += 1
                except (ResponseError, ConnectionError) as error:
                    self.refused = error


class Stand:
    """A Redis, its disk, and its messages."""

    def __init__(self, server: Redis, disk: Disk, told: list[str]) -> None:
        self.server = server
        self.disk = disk
        self.told = told

    def kept(self) -> dict[str, int]:
        with redis.Redis.from_url(self.server.url) as client:
            return {key.decode(): client.hlen(key) for key in client.keys("writer:*")}

    def takes(self) -> bool:
        with redis.Redis.from_url(self.server.url) as client:
            try:
                return bool(client.set("one", "more"))
            except ResponseError:
                return False


@pytest.fixture
def stand() -> Iterator[Stand]:
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(temporary_home())
        disk = stack.enter_context(mounted(home.path / "redis", MB))
        if disk is None:
            pytest.skip("no tmpfs can be mounted here")
        told: list[str] = []
        server = Redis(home, told.append)
        stack.callback(server.stop)
        server.start()
        yield Stand(server, disk, told)


def test_acknowledged_writes_survive_a_kill(stand: Stand) -> None:
    """Without the reserve, some of the last writes were lost each time."""
    writers = [Writer(stand.server.url, number) for number in range(WRITERS)]
    eventually(lambda: all(writer.acknowledged > 100 for writer in writers), "writes")
    stand.disk.fill()
    for writer in writers:
        writer.join(60)
    refused = [writer.refused for writer in writers]
    assert all(isinstance(error, OutOfMemoryError) for error in refused), refused
    assert stand.server.process
    stand.server.process.kill()
    stand.server.process.wait()
    stand.disk.fill()  # also what the process leaves free
    stand.server.start()
    assert stand.kept() == {writer.key: writer.acknowledged for writer in writers}
    assert not stand.takes(), "the disk is still full"
    stand.disk.free()
    eventually(stand.takes, "room again")
    said = ["full: Redis refuses writes until space is freed", "space"]
    eventually(
        lambda: [line.partition(" is ")[2] or "space" for line in stand.told] == said, "word of it"
    )


def test_a_file_keeps_its_reserve_from_others(stand: Stand, tmp_path: Path) -> None:
    (file,) = stand.server.data.rglob("*.aof")  # from Redis 7 on in a folder of its own
    before = file.stat()
    assert before.st_blocks * 512 - before.st_size >= RESERVE
    reserve = DiskReserve()
    assert reserve.reserve([file, tmp_path / "gone"])
    assert file.stat().st_size == before.st_size
    stand.disk.fill()
    beside = file.with_name("beside")
    beside.touch()
    assert not reserve.reserve([beside])
    assert reserve.reserve([file]), "what is reserved stays so"
