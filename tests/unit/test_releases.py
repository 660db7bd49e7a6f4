"""What a machine's allocator tells its workers, through a file."""

from pathlib import Path

import pytest

from snapbid.ledger.budgets.releases import (
    ALL,
    SLOTS,
    Release,
    ReleaseReader,
    ReleaseWriter,
    releases_path,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return releases_path(tmp_path)


def test_workers_read_each_release_once(path: Path) -> None:
    writer = ReleaseWriter(path)
    writer.publish([Release(7, 0)])
    early, late = ReleaseReader(path), None
    assert early.read() == []  # from now on
    writer.publish([Release(2**31, 2), Release(ALL, 1)])
    late = ReleaseReader(path)
    assert early.read() == [(2**31, 2), (ALL, 1)]
    assert early.read() == late.read() == []


def test_around_the_ring(path: Path) -> None:
    writer = ReleaseWriter(path)
    reader = ReleaseReader(path)
    for number in range(0, 3 * SLOTS, 1000):
        some = [Release(each, 1) for each in range(number, number + 1000)]
        writer.publish(some)
        assert reader.read() == some


@pytest.mark.parametrize(("number", "known"), [(SLOTS, True), (SLOTS + 1, False)])
def test_a_worker_a_full_ring_behind_gets_none(path: Path, number: int, known: bool) -> None:
    writer, reader = ReleaseWriter(path), ReleaseReader(path)
    writer.publish(Release(each, 0) for each in range(number))
    assert (reader.read() is not None) is known
    writer.publish([Release(1, 1)])
    assert reader.read() == [(1, 1)]


def test_a_missing_file_is_an_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ReleaseReader(path)
