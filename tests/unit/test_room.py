"""What a machine's allocator tells its workers, through a file."""

from pathlib import Path

import pytest

from snapbid.ledger.budgets.room import ALL, SLOTS, RoomReader, RoomWriter, Vacancy, room_path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return room_path(tmp_path)


def test_workers_read_each_announcement_once(path: Path) -> None:
    writer = RoomWriter(path)
    writer.announce([Vacancy(7, 0)])
    early, late = RoomReader(path), None
    assert early.read() == []  # from now on
    writer.announce([Vacancy(2**31, 2), Vacancy(ALL, 1)])
    late = RoomReader(path)
    assert early.read() == [(2**31, 2), (ALL, 1)]
    assert early.read() == late.read() == []


def test_around_the_ring(path: Path) -> None:
    writer = RoomWriter(path)
    reader = RoomReader(path)
    for number in range(0, 3 * SLOTS, 1000):
        some = [Vacancy(each, 1) for each in range(number, number + 1000)]
        writer.announce(some)
        assert reader.read() == some


@pytest.mark.parametrize(("number", "known"), [(SLOTS, True), (SLOTS + 1, False)])
def test_a_worker_a_whole_ring_behind_gets_none(path: Path, number: int, known: bool) -> None:
    writer, reader = RoomWriter(path), RoomReader(path)
    writer.announce(Vacancy(each, 0) for each in range(number))
    assert (reader.read() is not None) is known
    writer.announce([Vacancy(1, 1)])
    assert reader.read() == [(1, 1)]


def test_a_missing_file_is_an_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        RoomReader(path)
