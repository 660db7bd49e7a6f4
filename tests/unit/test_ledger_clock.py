"""The ledger's time is that of Redis, whatever this machine's clock says."""

from time import monotonic, time

from snapbid.ledger.bids.clock import LedgerClock

SERVER_MS = 1_907_755_200_123


def test_starts_as_the_machine_clock() -> None:
    assert abs(LedgerClock().now_ms(monotonic()) / 1000 - time()) < 5


def test_continues_from_the_last_reading() -> None:
    clock = LedgerClock()
    clock.adjust(SERVER_MS, 50.0, 50.01)
    assert abs(clock.now_ms(50.005) - SERVER_MS) <= 1
    assert clock.now(60.005) == divmod(clock.now_ms(60.005), 1000)
    assert abs(clock.now_ms(3650.005) - SERVER_MS - 3_600_000) <= 1


def test_reports_the_machine_clocks_offset() -> None:
    clock = LedgerClock()
    assert (clock.is_known, clock.behind_ms) == (False, 0)
    now_s = monotonic()
    own_ms = clock.now_ms(now_s)
    clock.adjust(own_ms - 5_000, now_s, now_s)
    assert clock.is_known
    assert abs(clock.behind_ms + 5_000) <= 2


def test_two_machines_agree() -> None:
    """Their monotonic clocks begin anywhere."""
    first, second = LedgerClock(), LedgerClock()
    first.adjust(SERVER_MS, 10.0, 10.002)
    second.adjust(SERVER_MS + 500, 99_000.0, 99_000.004)
    assert abs(first.now_ms(11.0) - second.now_ms(99_000.5)) <= 5


def test_a_slow_reading_changes_little() -> None:
    clock = LedgerClock()
    clock.adjust(SERVER_MS, 10.0, 14.0)
    assert abs(clock.now_ms(12.0) - SERVER_MS) <= 1
    clock.adjust(SERVER_MS + 8_000, 20.0, 20.002)  # was right by chance
    assert abs(clock.now_ms(20.0) - SERVER_MS - 8_000) <= 2
    before_ms = clock.now_ms(30.0)
    for late_ms in (1, 60, 90):  # of an answer that took 90 ms: when the time was told, none knows
        clock.adjust(before_ms + late_ms, 30.0, 30.091)
        assert clock.now_ms(30.0) == before_ms


def test_an_offset_that_a_slow_reading_excludes_is_corrected() -> None:
    clock = LedgerClock()
    clock.adjust(SERVER_MS, 10.0, 10.002)
    clock.adjust(SERVER_MS + 90_000, 20.0, 20.5)  # the clock was set ahead
    assert abs(clock.now_ms(20.25) - SERVER_MS - 90_000) <= 1
    clock.adjust(SERVER_MS + 90_100, 20.5, 20.502)  # and that was not half-way
    assert abs(clock.now_ms(20.5) - SERVER_MS - 90_100) <= 3


def test_a_simulated_clock_is_the_time() -> None:
    clock = LedgerClock(lambda: 1_900_000_000.25)
    clock.adjust(SERVER_MS, 1.0, 1.0)
    assert clock.now(1.0) == (1_900_000_000, 250)
