"""The spool: notices on disk before they are answered, whatever becomes of the process."""

import asyncio
import contextlib
import errno
import fcntl
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest

from snapbid.ledger.bids.records import NOTICE, WIN, BidBatch
from snapbid.ledger.bids.spool import MAGIC, Spool, SpoolFile, SpoolFullError

ENTRY = 6 + NOTICE.size
HEAD = len(MAGIC)
PLENTY = 1 << 20


def notice(number: int) -> bytes:
    digest, came = number.to_bytes(16, "big"), (1_900_000_000, number % 1000)
    return NOTICE.pack(WIN, -1, digest, *came, 1_800_000_000, 7)


def entry(shard: int, packed: bytes) -> bytes:
    return shard.to_bytes(2, "little") + crc32(packed).to_bytes(4, "little") + packed


async def write(spool: Spool, shard: int, packed: bytes) -> None:
    """Write a notice and wait until it is on disk."""
    done: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
    spool.append([(shard, packed)], done)
    await done


async def write_all(spool: Spool, numbers: range) -> None:
    for number in numbers:
        await write(spool, number % 3, notice(number))


def abandoned(directory: Path) -> list[tuple[int, bytes]]:
    """The notices that a later worker finds; removes them."""
    notices: list[tuple[int, bytes]] = []
    for spooled in Spool(directory, PLENTY).abandoned():
        notices += spooled.notices() or []
        spooled.done()
    return notices


def listed(numbers: range) -> list[tuple[int, bytes]]:
    return [(number % 3, notice(number)) for number in numbers]


async def test_notices_are_found_by_another_worker(tmp_path: Path) -> None:
    directory = tmp_path / "not" / "there yet"
    spool = Spool(directory, PLENTY)
    await write_all(spool, range(10))
    await spool.close()
    assert abandoned(directory) == listed(range(10))
    assert not list(directory.iterdir())
    assert abandoned(directory) == []


async def test_a_missing_directory_holds_nothing(tmp_path: Path) -> None:
    assert abandoned(tmp_path / "nothing") == []


async def test_a_file_still_in_use_is_left_alone(tmp_path: Path) -> None:
    spool, other = Spool(tmp_path, PLENTY), Spool(tmp_path, PLENTY)
    await write_all(spool, range(5))
    assert list(other.abandoned()) == []
    assert list(spool.abandoned()) == []
    await spool.set_aside()
    await write_all(spool, range(5, 8))
    (spooled,) = other.abandoned()
    assert spooled.notices() == listed(range(5))
    assert list(spool.abandoned()) == [], "one at a time"
    spooled.keep()
    (spooled,) = spool.abandoned()
    spooled.done()
    await spool.close()
    assert abandoned(tmp_path) == listed(range(5, 8))


async def test_a_file_being_created_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker lists the directory between the file's creation and its lock."""
    spool, other = Spool(tmp_path, PLENTY), Spool(tmp_path, PLENTY)
    lock = fcntl.flock
    taken: list[SpoolFile] = []

    def look_first(file: int, how: int) -> None:
        monkeypatch.undo()
        taken.extend(other.abandoned())
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", look_first)
    await write(spool, 0, notice(0))
    for spooled in taken:
        spooled.done()
    await write(spool, 1, notice(1))
    await spool.close()
    assert abandoned(tmp_path) == listed(range(2))


async def test_a_write_returns_only_when_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes that arrive during a sync share the next one."""
    synced: list[int] = []
    fsync = os.fsync

    def noted(file: int) -> None:
        fsync(file)
        synced.append(os.fstat(file).st_size)

    monkeypatch.setattr(os, "fsync", noted)
    spool = Spool(tmp_path, PLENTY)

    async def written(number: int) -> None:
        await write(spool, 0, notice(number))
        assert synced
        assert synced[-1] >= HEAD + ENTRY

    await asyncio.gather(*(written(number) for number in range(500)))
    assert synced[-1] == HEAD + 500 * ENTRY
    assert len(synced) < 50
    await spool.close()


@pytest.mark.parametrize("cut", [1, ENTRY // 2, ENTRY - 1])
async def test_a_last_entry_cut_short_is_ignored(tmp_path: Path, cut: int) -> None:
    spool = Spool(tmp_path, PLENTY)
    await write_all(spool, range(4))
    await spool.close()
    (path,) = tmp_path.glob("*.spool")
    os.truncate(path, HEAD + 4 * ENTRY - cut)
    assert abandoned(tmp_path) == listed(range(3))


async def test_a_damaged_entry_is_ignored(tmp_path: Path) -> None:
    whole = MAGIC + b"".join(entry(*notice) for notice in listed(range(3)))
    damaged = bytearray(whole)
    damaged[HEAD + ENTRY + 10] ^= 1
    (tmp_path / "1-1.spool").write_bytes(damaged)
    (tmp_path / "1-2.spool").write_bytes(MAGIC + bytes(ENTRY * 2))
    assert abandoned(tmp_path) == [listed(range(3))[0], listed(range(3))[2]]


async def test_reused_process_ids_hide_no_files(tmp_path: Path) -> None:
    """In a container ids repeat: an earlier worker of our number may have died in a write."""
    spool = Spool(tmp_path, PLENTY)
    await write(spool, 0, notice(0))
    await spool.close()
    (path,) = tmp_path.glob("*.spool")
    with path.open("ab") as file:
        file.write(entry(1, notice(1))[:7])
    successor = Spool(tmp_path, PLENTY)
    await write_all(successor, range(1, 4))
    await successor.close()
    assert sorted(abandoned(tmp_path)) == sorted(listed(range(4)))


@pytest.mark.parametrize("left", [0, 5, ENTRY - 1])
async def test_the_spool_is_bounded(tmp_path: Path, left: int) -> None:
    spool = Spool(tmp_path, HEAD + 10 * ENTRY + left)
    await write_all(spool, range(10))
    for _ in range(3):
        with pytest.raises(SpoolFullError, match="full"):
            await write(spool, 0, notice(99))
    await spool.close()
    assert abandoned(tmp_path) == listed(range(10))
    await write_all(spool, range(10))
    await spool.close()
    assert abandoned(tmp_path) == listed(range(10))


async def test_unsettled_files_count_against_the_bound(tmp_path: Path) -> None:
    """Redis that comes and goes makes many files; together they stay bounded."""
    spool = Spool(tmp_path, 3 * HEAD + 10 * ENTRY)
    kept = 0
    for number in range(40):
        try:
            await write(spool, 0, notice(number))
            kept += 1
        except SpoolFullError:
            pass
        if number % 4 == 3:
            await spool.set_aside()
            for spooled in spool.abandoned():
                spooled.keep()
    assert kept == 10
    await spool.close()
    assert len(abandoned(tmp_path)) == kept


@contextlib.contextmanager
def small_files(size: int) -> Iterator[None]:
    """Limit file sizes, so that a write fails half way.

    The limit is the whole process's, so nothing else may write meanwhile, the test's report least.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


async def test_a_full_disk_refuses_and_damages_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path, PLENTY)
    await write_all(spool, range(3))
    with small_files(HEAD + 3 * ENTRY + 7):
        for _ in range(3):
            with pytest.raises(SpoolFullError):
                await write(spool, 0, notice(99))
    await write_all(spool, range(3, 6))
    await spool.close()
    assert abandoned(tmp_path) == listed(range(6))


async def test_a_failed_sync_refuses_all_waiters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path, PLENTY)
    await write(spool, 0, notice(0))

    def fail(file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        results = await asyncio.gather(
            *(write(spool, 0, notice(number)) for number in range(1, 4)), return_exceptions=True
        )
    assert [type(result) for result in results] == [SpoolFullError] * 3
    await write(spool, 1, notice(4))
    await spool.close()
    left = abandoned(tmp_path)
    assert (0, notice(0)) in left
    assert (1, notice(4)) in left


async def test_a_path_that_is_not_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    spool = Spool(tmp_path / "file", PLENTY)
    for _ in range(2):
        with pytest.raises(SpoolFullError):
            await write(spool, 0, notice(0))


async def test_setting_aside_between_writes_strands_no_waiter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that comes at the very moment when the sync that it waits for has ended."""
    spool = Spool(tmp_path, PLENTY)
    fsync = os.fsync

    def slow(file: int) -> None:
        time.sleep(0.05)
        fsync(file)

    monkeypatch.setattr(os, "fsync", slow)
    first = asyncio.create_task(write(spool, 0, notice(0)))
    await asyncio.sleep(0)
    syncing = spool._syncing
    assert syncing is not None

    async def write_at_its_end() -> None:
        await syncing
        await write(spool, 1, notice(1))

    second = asyncio.create_task(write_at_its_end())
    await asyncio.sleep(0)
    aside = asyncio.create_task(spool.set_aside())
    async with asyncio.timeout(60):
        await asyncio.gather(first, second, aside)
    await spool.close()
    assert sorted(abandoned(tmp_path)) == listed(range(2))


async def test_the_bound_is_checked_anew_once_redis_is_back(tmp_path: Path) -> None:
    (tmp_path / "1-1.spool").write_bytes(
        MAGIC + b"".join(entry(*notice) for notice in listed(range(10)))
    )
    spool = Spool(tmp_path, HEAD + 10 * ENTRY)
    with pytest.raises(SpoolFullError):
        await write(spool, 0, notice(10))
    assert spool.holds_own
    await spool.set_aside()
    assert abandoned(tmp_path) == listed(range(10))
    await write(spool, 1, notice(10))
    await spool.close()
    assert abandoned(tmp_path) == listed(range(10, 11))


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from snapbid.ledger.bids.records import NOTICE
from snapbid.ledger.bids.spool import Spool

async def main():
    spool = Spool(Path(sys.argv[1]), 1 << 20)
    for number in range(10_000):
        digest, came = number.to_bytes(16, "big"), (1_900_000_000, number % 1000)
        notice = NOTICE.pack(1, -1, digest, *came, 1_800_000_000, 7)
        done = asyncio.get_running_loop().create_future()
        spool.append([(number % 3, notice)], done)
        await done
        print(number, flush=True)

asyncio.run(main())
"""


def test_notices_acknowledged_by_a_killed_process_survive(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE)
    assert writer.stdout
    for _ in range(25):
        writer.stdout.readline()
    writer.kill()
    acknowledged = 25 + len(writer.stdout.read().splitlines())
    writer.stdout.close()
    assert writer.wait() == -signal.SIGKILL
    kept = abandoned(tmp_path)
    assert len(kept) in (acknowledged, acknowledged + 1)
    assert kept == listed(range(len(kept)))


# -- what else is left in the directory -----------------------------------------------------------


@pytest.mark.parametrize("content", [b"", MAGIC[:-1] + b"\x02" + bytes(ENTRY)])
def test_a_file_in_another_format_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.spool"
    path.write_bytes(content)
    (spooled,) = Spool(tmp_path, PLENTY).abandoned()
    assert spooled.notices() is None
    spooled.keep()
    assert path.read_bytes() == content


def test_unconfirmed_batches_are_left_to_another_process(tmp_path: Path) -> None:
    batches = [(0, BidBatch("writer", 7, b"\0entries\xff")), (2, BidBatch("other", 8, b""))]
    Spool(tmp_path, PLENTY).leave_unconfirmed(batches)
    (left,) = Spool(tmp_path, PLENTY).abandoned_batches()
    assert left.batches() == batches
    left.done()
    (tmp_path / "x.doubt").write_bytes(b"\x92\x00")
    (left,) = Spool(tmp_path, PLENTY).abandoned_batches()
    assert left.batches() == []
    left.keep()


async def test_ended_processes_and_their_files_are_found(tmp_path: Path) -> None:
    first, second = Spool(tmp_path, PLENTY), Spool(tmp_path, PLENTY)
    first.join()
    second.join()
    assert list(second.gone()) == []
    await write(first, 0, notice(1))
    was_empty = first.is_empty
    await first.close()
    (gone,) = second.gone()
    assert gone.token == first.token
    assert second.has_notices_of(first.token)
    (spooled,) = second.abandoned()
    spooled.done()
    assert (was_empty, first.is_empty) == (False, True)
    assert not second.has_notices_of(first.token)
    gone.done()
    second.leave()
    assert not list(tmp_path.iterdir())


async def test_local_times_become_redis_times(tmp_path: Path) -> None:
    """However far the two differ; the others are as they were."""
    spool = Spool(tmp_path, PLENTY)
    loop = asyncio.get_running_loop()
    waiting: list[asyncio.Future[str | None]] = [loop.create_future() for _ in range(3)]
    for number, done in enumerate(waiting):
        spool.append([(2, notice(number))], done, own_time=number != 1)
    await asyncio.gather(*waiting)
    await spool.close()
    (spooled,) = Spool(tmp_path, PLENTY).abandoned()
    assert spooled.notices() == [(2, notice(number)) for number in range(3)]
    for behind_ms, seconds, ms in ((-5_001, 1_899_999_994, 999), (300_007, 1_900_000_300, 7)):
        first, second, third = spooled.notices(behind_ms) or []
        assert first == (2, NOTICE.pack(WIN, -1, bytes(16), seconds, ms, 1_800_000_000, 7))
        assert second == (2, notice(1))
        came = divmod(1_900_000_000_002 + behind_ms, 1000)
        assert NOTICE.unpack(third[1])[2:] == ((2).to_bytes(16, "big"), *came, 1_800_000_000, 7)
    spooled.done()
